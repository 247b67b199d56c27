"""Bodies and queries: alerts."""

# Generated from docs/openapi.yaml by `make openapi`; changes here are lost.
from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

AlertRuleKindEnum = Literal[
    "damage",
    "agent_lost",
    "objective_breached",
    "drill_failed",
    "not_drilled",
    "not_verified",
    "schedule_missed",
    "tier_unreadable",
    "tier_behind",
    "tier_full",
    "transfer_stuck",
    "channel_disabled",
    "backup_old",
]

AlertSeverityEnum = Literal["info", "warning", "critical"]

CreateChannelKindEnum = Literal["email", "slack", "pagerduty", "webhook"]


class Alert(TypedDict):
    """`subject_kind` and `subject_id` name what it is about; `cluster` is null where that is Muster itself."""

    id: str
    cluster: str | None
    cluster_name: NotRequired[str | None]
    run: str | None
    run_name: NotRequired[str | None]
    rule: str
    severity: str
    subject_kind: str
    subject_id: str
    state: str
    summary: str
    silence: str | None
    flapping_at: str | None
    calm_at: str | None
    opened_at: str
    acknowledged_at: str | None
    acknowledged_by: str
    resolved_at: str | None


class AlertRule(TypedDict):
    """`cluster` null: for everywhere. Of several the narrowest holds: a run's, then its cluster's. `threshold` is in
    `threshold_unit`, null where the kind has none.
    """

    id: str
    kind: str
    says: str
    cluster: str | None
    cluster_name: NotRequired[str | None]
    run: str | None
    run_name: NotRequired[str | None]
    enabled: bool
    severity: str
    threshold: float | None
    threshold_unit: str | None
    updated_by: str
    updated_at: str


class Channel(TypedDict):
    """`target` without what may be secret: a webhook's query is left out, and of Slack's address only the host is
    there. `secret_count` is 2 while a signing key is replaced, null where the secret cannot be opened any more.
    """

    id: str
    name: str
    kind: str
    target: str
    secret_count: int | None
    secrets_set_at: str | None
    min_severity: str
    clusters: list[str]
    event_types: list[str]
    enabled: bool
    disabled_reason: str
    last_delivered_at: str | None
    created_by: str
    created_at: str


class CreateAlertRuleRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    enabled: NotRequired[bool]
    severity: NotRequired[AlertSeverityEnum]
    threshold: NotRequired[float | None]
    kind: AlertRuleKindEnum
    cluster: str
    run: NotRequired[str | None]


class CreateChannelRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: str
    target: NotRequired[str]
    secret: NotRequired[str]
    min_severity: NotRequired[AlertSeverityEnum]
    clusters: NotRequired[list[str]]
    event_types: NotRequired[list[str]]
    enabled: NotRequired[bool]
    kind: CreateChannelKindEnum


class CreateSilenceRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    reason: str
    ends_at: str
    starts_at: NotRequired[str]
    cluster: NotRequired[str | None]
    rule: NotRequired[AlertRuleKindEnum]
    run: NotRequired[str | None]
    subject_id: NotRequired[str]
    summary_contains: NotRequired[str]


class Delivery(TypedDict):
    """`event` is the `webhook-id`, the same at every try and replay."""

    id: str
    channel: str
    channel_name: str
    event: str
    event_type: str
    subject: str
    state: str
    tries: int
    problem: str
    next_attempt_at: str | None
    requested_by: str
    created_at: str
    finished_at: str | None


class DeliveryAttempt(TypedDict):
    at: str
    seconds: float
    status: int | None
    problem: str
    answer: str


class Health(TypedDict):
    """`watching` is false when any part stands still: then no alert means nothing."""

    watching: bool
    parts: list[Part]


class NewChannel(TypedDict):
    """A channel just made; `signing_key` is shown this once, and empty where none was made."""

    id: str
    name: str
    kind: str
    target: str
    secret_count: int | None
    secrets_set_at: str | None
    min_severity: str
    clusters: list[str]
    event_types: list[str]
    enabled: bool
    disabled_reason: str
    last_delivered_at: str | None
    created_by: str
    created_at: str
    signing_key: str


class Part(TypedDict):
    """One part of Muster. `age_seconds` since its last sign of life, or how long its oldest work has been due; null
    where it never gave one, or does not answer.
    """

    name: str
    does: str
    is_well: bool
    age_seconds: float | None
    limit_seconds: float
    cure: str


class PatchedUpdateAlertRuleRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    enabled: NotRequired[bool]
    severity: NotRequired[AlertSeverityEnum]
    threshold: NotRequired[float | None]


class PatchedUpdateChannelRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    name: NotRequired[str]
    target: NotRequired[str]
    secret: NotRequired[str]
    min_severity: NotRequired[AlertSeverityEnum]
    clusters: NotRequired[list[str]]
    event_types: NotRequired[list[str]]
    enabled: NotRequired[bool]


class RotateRequest(TypedDict):
    """A plain serializer that refuses fields it does not know, each with a pointer to it."""

    keep_old: NotRequired[bool]
    signing_key: NotRequired[str]


class SigningKey(TypedDict):
    signing_key: str


class Silence(TypedDict):
    """Empty or null fields match everything."""

    id: str
    cluster: str | None
    cluster_name: NotRequired[str | None]
    rule: str
    run: str | None
    run_name: NotRequired[str | None]
    subject_id: str
    summary_contains: str
    reason: str
    starts_at: str
    ends_at: str
    created_by: str
    created_at: str
    ended_by: str


class WholeDelivery(TypedDict):
    """With every try, the newest first."""

    id: str
    channel: str
    channel_name: str
    event: str
    event_type: str
    subject: str
    state: str
    tries: int
    problem: str
    next_attempt_at: str | None
    requested_by: str
    created_at: str
    finished_at: str | None
    event_data: Any
    attempts: list[DeliveryAttempt]


class ListAlertRulesQuery(TypedDict, total=False):
    """Of `list_alert_rules`."""

    cluster: str
    cursor: str
    enabled: bool
    kind: list[
        Literal[
            "agent_lost",
            "backup_old",
            "channel_disabled",
            "damage",
            "drill_failed",
            "not_drilled",
            "not_verified",
            "objective_breached",
            "schedule_missed",
            "tier_behind",
            "tier_full",
            "tier_unreadable",
            "transfer_stuck",
        ]
    ]
    limit: int
    run: str
    sort: Literal["kind", "-kind", "updated_at", "-updated_at"]


class ListAlertsQuery(TypedDict, total=False):
    """Of `list_alerts`."""

    cluster: str
    cursor: str
    limit: int
    rule: list[
        Literal[
            "agent_lost",
            "backup_old",
            "channel_disabled",
            "damage",
            "drill_failed",
            "not_drilled",
            "not_verified",
            "objective_breached",
            "schedule_missed",
            "tier_behind",
            "tier_full",
            "tier_unreadable",
            "transfer_stuck",
        ]
    ]
    run: str
    severity: list[Literal["critical", "info", "warning"]]
    sort: Literal["opened_at", "-opened_at"]
    state: list[Literal["acknowledged", "open", "resolved"]]
    subject_id: str


class ListChannelsQuery(TypedDict, total=False):
    """Of `list_channels`."""

    cursor: str
    enabled: bool
    kind: list[Literal["email", "pagerduty", "slack", "webhook"]]
    limit: int
    sort: Literal["created_at", "-created_at", "name", "-name"]


class ListDeliveriesQuery(TypedDict, total=False):
    """Of `list_deliveries`."""

    channel: str
    cursor: str
    event: str
    limit: int
    sort: Literal["created_at", "-created_at"]
    state: list[Literal["cancelled", "delivered", "failed", "pending"]]
    subject: str


class ListSilencesQuery(TypedDict, total=False):
    """Of `list_silences`."""

    cluster: str
    cursor: str
    limit: int
    rule: list[
        Literal[
            "agent_lost",
            "backup_old",
            "channel_disabled",
            "damage",
            "drill_failed",
            "not_drilled",
            "not_verified",
            "objective_breached",
            "schedule_missed",
            "tier_behind",
            "tier_full",
            "tier_unreadable",
            "transfer_stuck",
        ]
    ]
    run: str
    sort: Literal["created_at", "-created_at", "ends_at", "-ends_at"]
    standing: bool
