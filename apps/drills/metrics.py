"""Drills, for `/metrics`."""

from __future__ import annotations

from django.db.models import Count, Sum

from apps.core.metrics import Families, counter, gauge
from apps.drills.models import Drill


def families() -> Families:
    ended = Drill.objects.filter(state=Drill.State.FINISHED).order_by()
    by_outcome = ended.values_list("cluster__name", "kind", "outcome", "objective_state")
    yield counter(
        "muster_drills_finished", "Drills that ended: whether it restored, and whether in time.",
        ("cluster", "kind", "outcome", "objective"),
        ((tuple(key), count) for *key, count in by_outcome.annotate(count=Count("pk"))),
    )  # fmt: skip
    read = ended.exclude(total_bytes=None).values_list("cluster__name", "kind")
    yield counter(
        "muster_drill_read_bytes", "Bytes of the checkpoints that drills read.", ("cluster", "kind"),
        ((tuple(key), total) for *key, total in read.annotate(total=Sum("total_bytes"))),
    )  # fmt: skip
    running = Drill.objects.exclude(state=Drill.State.FINISHED).values_list("cluster__name", "kind", "state")
    yield gauge(
        "muster_drills", "Drills under way.", ("cluster", "kind", "state"),
        ((tuple(key), count) for *key, count in running.order_by().annotate(count=Count("pk"))),
    )  # fmt: skip
