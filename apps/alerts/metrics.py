"""Open alerts, and Muster's own signs of life, for `/metrics`."""

from __future__ import annotations

from django.db.models import Count
from django.utils import timezone

from apps.alerts import backup_age, outbox_age, own_health
from apps.alerts.models import Alert, Delivery
from apps.core.metrics import Families, counter, gauge


def families() -> Families:
    standing = Alert.objects.exclude(state=Alert.State.RESOLVED).values_list("cluster__name", "rule", "state")
    yield gauge(
        "muster_alerts", "Alerts whose cause stands.", ("cluster", "rule", "state"),
        ((tuple(key), count) for *key, count in standing.order_by().annotate(count=Count("pk"))),
    )  # fmt: skip
    yield from _deliveries()
    yield gauge(
        "muster_backup_age_seconds", "Since the newest backup of Muster's own database was made; absent without one.",
        (), [((), backup_age.seconds(timezone.now()))],
    )  # fmt: skip
    parts = own_health.parts()
    yield gauge(
        "muster_part_well", "1 while this part of Muster gives signs of life.", ("part",),
        (((part.name,), float(part.is_well)) for part in parts),
    )  # fmt: skip
    yield gauge(
        "muster_part_age_seconds", "Since its last sign of life; of overdue work, how long it has been due.", ("part",),
        (((part.name,), part.age_seconds) for part in parts),
    )  # fmt: skip
    yield gauge(
        "muster_watching", "1 while all parts do: 0 or absent means that Muster's silence says nothing.", (),
        [((), float(all(part.is_well for part in parts)))],
    )  # fmt: skip


def _deliveries() -> Families:
    counted = Delivery.objects.order_by().values_list("channel__kind", "state").annotate(count=Count("pk"))
    rows = [(kind, state, count) for kind, state, count in counted]
    pending = Delivery.State.PENDING
    yield gauge(
        "muster_outbox_pending", "Deliveries on their way, those that wait for their next try too.", ("channel_kind",),
        (((kind,), count) for kind, state, count in rows if state == pending),
    )  # fmt: skip
    yield counter(
        "muster_deliveries", "Deliveries that ended.", ("channel_kind", "result"),
        (((kind, state), count) for kind, state, count in rows if state != pending),
    )  # fmt: skip
    yield gauge(
        "muster_outbox_oldest_age_seconds", "How long the delivery or change that waits longest has been due.", (),
        [((), outbox_age.seconds(timezone.now()))],
    )  # fmt: skip
