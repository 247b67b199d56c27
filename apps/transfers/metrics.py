"""Transfers between tiers, for `/metrics`."""

from __future__ import annotations

from django.db.models import Count

from apps.core.metrics import Families, counter, gauge
from apps.transfers.models import Transfer

ENDED = (Transfer.State.DONE, Transfer.State.CANCELLED, Transfer.State.FAILED)


def families() -> Families:
    by_state = Transfer.objects.values_list("cluster__name", "kind", "state").order_by().annotate(count=Count("pk"))
    rows = list(by_state)
    labels = ("cluster", "kind", "state")
    yield gauge(
        "muster_transfers", "Transfers under way.", labels,
        ((tuple(key), count) for *key, count in rows if key[2] not in ENDED),
    )  # fmt: skip
    yield counter(
        "muster_transfers_finished", "Transfers that ended, by how.", labels,
        ((tuple(key), count) for *key, count in rows if key[2] in ENDED),
    )  # fmt: skip
