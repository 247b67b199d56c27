"""Who is told of alerts and who is not: channels, what was delivered to them, silences."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest

from apps.accounts.models import Role
from apps.alerts import channels, deliveries, silences, targets
from apps.alerts.models import Channel, Delivery
from apps.dashboard.lists.spec import BY_NAME, NEWEST, ListSpec, Sort, by_field, by_half, by_id, by_text
from apps.fleet.access import require_role, visible_clusters


def silences_in_sight(request: HttpRequest) -> Any:
    """Those of visible clusters, and those that hold everywhere."""
    return silences.silence_rows().filter(Q(cluster=None) | Q(cluster__in=visible_clusters(request)))


def _channels(request: HttpRequest) -> Any:
    """Channels are of no single cluster, so they are for those whose role holds everywhere."""
    require_role(request, Role.VIEWER)
    return channels.channel_rows()


def _deliveries(request: HttpRequest) -> Any:
    require_role(request, Role.VIEWER)
    return deliveries.delivery_rows()


SILENCES = ListSpec(
    name="silences",
    noun="silence",
    plural="silences",
    rows=silences_in_sight,
    sorts=(*NEWEST, Sort("ending", "ends last", "-ends_at")),
    choices=(
        by_half(
            "standing", "Standing", (("true", "Holds now"), ("false", "Ended or later")),
            Q(starts_at__lte=Now(), ends_at__gt=Now()),
        ),
    ),
    search_for="Why or by whom",
    search=by_text("reason", "created_by"),
    time_field="created_at",
    links={"cluster": by_id("cluster_id"), "run": by_id("run_id")},
    columns=(
        ("id", "pk"), ("reason", "reason"), ("rule", "rule"), ("cluster", "cluster.name"), ("run", "run.name"),
        ("subject_id", "subject_id"), ("summary_contains", "summary_contains"), ("starts_at", "starts_at"),
        ("ends_at", "ends_at"), ("created_by", "created_by"), ("created_at", "created_at"), ("ended_by", "ended_by"),
    ),
)  # fmt: skip

CHANNELS = ListSpec(
    name="channels",
    noun="channel",
    plural="channels",
    rows=_channels,
    sorts=(*NEWEST, BY_NAME),
    choices=(
        by_field("kind", "Kind", Channel.Kind.choices),
        by_half("enabled", "Told", (("true", "On"), ("false", "Off")), Q(enabled=True)),
    ),
    search_for="Channel name",
    search=by_text("name"),
    columns=(
        ("id", "pk"), ("name", "name"), ("kind", "kind"), ("leads_to", targets.shown), ("enabled", "enabled"),
        ("disabled_reason", "disabled_reason"), ("min_severity", "min_severity"), ("event_types", "event_types"),
        ("waiting_count", "pending_count"), ("last_delivered_at", "last_delivered_at"), ("created_by", "created_by"),
        ("created_at", "created_at"),
    ),
)  # fmt: skip

DELIVERIES = ListSpec(
    name="deliveries",
    noun="delivery",
    plural="deliveries",
    rows=_deliveries,
    sorts=NEWEST,
    choices=(by_field("state", "State", Delivery.State.choices),),
    search_for="Event or trouble",
    search=by_text("event__type", "problem"),
    time_field="created_at",
    links={"channel": by_id("channel_id")},
    columns=(
        ("id", "pk"), ("event_id", "event_id"), ("event", "event.type"), ("subject", "subject"),
        ("channel", "channel.name"), ("state", "state"), ("tries", "tries"), ("problem", "problem"),
        ("requested_by", "requested_by"), ("created_at", "created_at"), ("finished_at", "finished_at"),
        ("next_attempt_at", "next_attempt_at"),
    ),
)  # fmt: skip
