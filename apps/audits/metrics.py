"""Audits, for `/metrics`."""

from __future__ import annotations

from django.db.models import Count, Sum

from apps.audits.models import Audit
from apps.core.metrics import Families, counter, gauge


def families() -> Families:
    ended = Audit.objects.filter(state=Audit.State.FINISHED).values_list("mode", "outcome").order_by()
    rows = list(ended.annotate(count=Count("pk"), read=Sum("checked_bytes")))
    yield counter(
        "muster_audits_finished", "Sealings and verifications that ended, by how.", ("mode", "outcome"),
        (((mode, outcome), count) for mode, outcome, count, _read in rows),
    )  # fmt: skip
    yield counter(
        "muster_audit_read_bytes", "Bytes that they read and hashed.", ("mode", "outcome"),
        (((mode, outcome), read) for mode, outcome, _count, read in rows),
    )  # fmt: skip
    open_audits = Audit.objects.exclude(state=Audit.State.FINISHED).values_list("mode", "state").order_by()
    yield gauge(
        "muster_audits", "Audits under way.", ("mode", "state"),
        (((mode, state), count) for mode, state, count in open_audits.annotate(count=Count("pk"))),
    )  # fmt: skip
