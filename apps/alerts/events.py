"""Writing events for channels, in the transaction of what they tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Prefetch
from django.utils import timezone

from apps.alerts import flapping, messages
from apps.alerts.models import Alert, Channel, Delivery, Event
from apps.alerts.wants import ONLY_ALERTS, Wishes
from apps.core import units
from apps.core.dispatch import enqueue
from apps.fleet.models import Cluster

DELIVER = "muster.notify.deliver"
MAX_TEXT = 600


@dataclass(frozen=True)
class Draft:
    """An event that channels may want. `severity` is "" for what is no alert."""

    type: str
    subject: str
    cluster_id: str | None
    data: Mapping[str, Any]
    at: datetime
    severity: str = ""
    source_key: str | None = None


def wishes_of(channel: Channel) -> Wishes:
    """From a channel whose clusters are at hand."""
    types = channel.event_types if channel.kind == Channel.Kind.WEBHOOK else ONLY_ALERTS
    return Wishes(types, channel.min_severity, [cluster.pk for cluster in channel.clusters.all()])


def enabled_channels() -> list[Channel]:
    clusters = Prefetch("clusters", Cluster.objects.only("pk"))
    return list(Channel.objects.filter(enabled=True).prefetch_related(clusters).order_by("pk"))


def publish(draft: Draft, channels: Iterable[Channel]) -> Event | None:
    """Tell those of `channels` that want it; None, and no row, where none does."""
    wanting = [one for one in channels if wishes_of(one).wants(draft.type, draft.severity, draft.cluster_id)]
    return send_to(draft, wanting) if wanting else None


@transaction.atomic
def send_to(draft: Draft, channels: Iterable[Channel], *, requested_by: str = "") -> Event:
    """Write the event with a delivery to each of `channels`, and wake a worker after commit."""
    event = Event.objects.create(
        type=draft.type, subject=draft.subject, cluster_id=draft.cluster_id, severity=draft.severity,
        data=dict(draft.data), at=draft.at, source_key=draft.source_key,
    )  # fmt: skip
    now = timezone.now()
    for channel in channels:
        delivery = Delivery.objects.create(
            event=event, channel=channel, subject=event.subject, created_at=now, next_attempt_at=now,
            requested_by=requested_by,
        )  # fmt: skip
        enqueue(DELIVER, delivery_id=delivery.pk)
    return event


def tell_opened(alert: Alert, opened_count: int = 0) -> None:
    """Everybody who wants alerts of its severity. `opened_count`: where it flaps, how often it opened lately."""
    draft = _of_alert(alert, messages.ALERT_OPENED)
    if opened_count:
        window = units.duration(flapping.WINDOW.total_seconds())
        told = f"Flapping: opened {opened_count} times within {window}, and is told again once it stays away. "
        draft = replace(draft, data={**draft.data, "summary": f"{told}{alert.summary}"})
    publish(draft, enabled_channels())


def tell_followup(alert: Alert, event_type: str) -> None:
    """Those who were told that it opened, whatever they want meanwhile: no incident is left open."""
    told = Delivery.objects.filter(subject=_subject(alert), event__type=messages.ALERT_OPENED)
    ids = told.exclude(state=Delivery.State.CANCELLED).values_list("channel", flat=True)
    channels = [one for one in enabled_channels() if one.pk in set(ids) and wishes_of(one).has(event_type)]
    if channels:
        send_to(_of_alert(alert, event_type), channels)


def _subject(alert: Alert) -> str:
    return f"alert/{alert.pk}"


def _of_alert(alert: Alert, event_type: str) -> Draft:
    cluster, run = alert.cluster, alert.run
    data = {
        "alert": alert.pk, "rule": alert.rule, "rule_label": alert.get_rule_display(), "severity": alert.severity,
        "state": alert.state, "summary": alert.summary, "subject_kind": alert.subject_kind,
        "subject_id": alert.subject_id, "cluster": alert.cluster_id, "cluster_name": cluster.name if cluster else None,
        "run": alert.run_id, "run_name": run.name if run else None, "opened_at": iso(alert.opened_at),
        "acknowledged_at": iso(alert.acknowledged_at), "acknowledged_by": alert.acknowledged_by,
        "resolved_at": iso(alert.resolved_at), "flapping": alert.flapping_at is not None, "page": "/alerts/",
    }  # fmt: skip
    return Draft(event_type, _subject(alert), alert.cluster_id, data, timezone.now(), alert.severity)


def iso(at: datetime | None) -> str | None:
    """As the body of an event has a time; null where there is none."""
    return at.isoformat().replace("+00:00", "Z") if at else None
