"""Writing channels. A secret is shown when it is made, and never again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.alerts import messages, standard_webhooks, targets
from apps.alerts.deliveries import cancel_pending
from apps.alerts.events import Draft, send_to
from apps.alerts.models import Channel, Delivery, Severity
from apps.alerts.wants import EVENT_TYPES, ONLY_ALERTS, unknown_patterns
from apps.core.errors import Conflict, InvalidInput
from apps.core.sealing import SealBroken, seal, unseal
from apps.fleet.models import Cluster

CHANGEABLE = frozenset({"name", "target", "secret", "min_severity", "clusters", "event_types", "enabled"})
MAX_PATTERNS = 50


def channel_rows() -> QuerySet[Channel]:
    """With how many deliveries wait, and whether the newest that ended failed."""
    pending = Count("deliveries", filter=Q(deliveries__state=Delivery.State.PENDING))
    trouble = Delivery.objects.filter(channel=OuterRef("pk"), state=Delivery.State.PENDING, tries__gt=0)
    return Channel.objects.prefetch_related("clusters").annotate(pending_count=pending, has_trouble=Exists(trouble))


@transaction.atomic
def create_channel(
    *, name: str, kind: str, target: str, actor: str, secret: str = "", clusters: Iterable[Cluster] = (), **details: Any
) -> tuple[Channel, str]:
    """The channel, and the signing key that was made for a webhook ("" for other kinds, or where one was given).
    Raises InvalidInput for what makes no sense, Conflict where another channel has its name."""
    if kind not in Channel.Kind.values:
        raise InvalidInput(f"Use one of {', '.join(Channel.Kind.values)}.", pointer="/kind")
    channel = Channel(name=name, kind=kind, created_by=actor, created_at=timezone.now(), **details)
    if kind == Channel.Kind.WEBHOOK and "event_types" not in details:
        channel.event_types = list(ONLY_ALERTS)
    made = standard_webhooks.new_signing_key() if kind == Channel.Kind.WEBHOOK and not secret else ""
    _aim(channel, target, secret or made)
    _save(channel)
    channel.clusters.set(clusters)
    _log(channel, "create", actor, {"kind": kind, "target": targets.shown(channel)})
    return channel, made


@transaction.atomic
def update_channel(*, channel: Channel, changes: dict[str, Any], actor: str) -> Channel:
    """Change fields. A new secret replaces all; `rotate_signing_key` keeps the old one for a while. Disabling cancels
    what waits."""
    unknown = sorted(changes.keys() - CHANGEABLE)
    if unknown:
        raise InvalidInput(f"A channel has no changeable field {unknown[0]!r}.", pointer=f"/{unknown[0]}")
    plain = {name: value for name, value in changes.items() if name not in ("target", "secret", "clusters")}
    for name, value in plain.items():
        setattr(channel, name, value)
    if "target" in changes or changes.get("secret"):
        _aim(channel, changes.get("target", channel.target), changes.get("secret") or "")
    if changes.get("enabled"):
        channel.disabled_reason = ""
    _save(channel)
    if "clusters" in changes:
        channel.clusters.set(changes["clusters"])
    if changes.get("enabled") is False:
        cancel_pending(channel, f"the channel was disabled by {actor}")
    _log(channel, "update", actor, {"fields": sorted(changes)})
    return channel


@transaction.atomic
def delete_channel(*, channel: Channel, actor: str) -> None:
    """With the log of its deliveries."""
    _log(channel, "delete", actor, {"name": channel.name})
    channel.delete()


@transaction.atomic
def rotate_signing_key(*, channel: Channel, actor: str, secret: str = "", keep_old: bool = True) -> str:
    """A new signing key for a webhook, which is given. With `keep_old` messages carry signatures of both until the key
    is rotated again, so that the receiver may change over in its own time. Raises InvalidInput."""
    if channel.kind != Channel.Kind.WEBHOOK:
        raise InvalidInput("Only webhooks are signed; set another secret instead.", pointer="/kind")
    made = secret or standard_webhooks.new_signing_key()
    _require_key(made)
    channel.secrets = seal([made, *(_opened(channel)[:1] if keep_old else [])])
    channel.secrets_set_at = timezone.now()
    channel.save(update_fields=["secrets", "secrets_set_at"])
    _log(channel, "rotate", actor, {"keep_old": keep_old})
    return made


@transaction.atomic
def drop_old_key(*, channel: Channel, actor: str) -> Channel:
    """Sign with the newest key alone. Raises Conflict where there is no other."""
    keys = _opened(channel)
    if channel.kind != Channel.Kind.WEBHOOK or len(keys) < 2:
        raise Conflict("This channel has one secret only.", code="one_secret")
    channel.secrets = seal(keys[:1])
    channel.save(update_fields=["secrets"])
    _log(channel, "drop_old_key", actor, {})
    return channel


def secret_count(channel: Channel) -> int | None:
    """How many it has; None where they cannot be opened any more."""
    try:
        return len(unseal(channel.secrets)) if channel.secrets else 0
    except SealBroken:
        return None


@transaction.atomic
def send_test(*, channel: Channel, actor: str) -> Delivery:
    """A test on its way, tried once, whatever the channel is for. PagerDuty's incident is resolved right after. Raises
    Conflict while the channel is disabled."""
    if not channel.enabled:
        raise Conflict("The channel is disabled; enable it first.", code="channel_disabled")
    now = timezone.now()
    subject = f"test/{channel.pk}-{now:%Y%m%dT%H%M%S%f}"
    data = {"summary": f"Test of the channel {channel.name}, sent by {actor}.", "severity": "info", "page": "/alerts/"}
    draft = Draft(messages.TEST, subject, None, {**data, "channel": channel.pk}, now, Severity.INFO)
    event = send_to(draft, [channel], requested_by=actor)
    if channel.kind == Channel.Kind.PAGERDUTY:
        send_to(
            Draft(messages.TEST_ENDED, subject, None, draft.data, now, Severity.INFO), [channel], requested_by=actor
        )
    log_activity(actor=actor, action="channel.test", target_kind="channel", target_id=channel.pk)
    return event.deliveries.get()


def _aim(channel: Channel, target: str, secret: str) -> None:
    """Check and set where it leads, and its secret where one is given."""
    kind = channel.kind
    if kind == Channel.Kind.EMAIL:
        channel.target = targets.checked_addresses(target)
        _require_mail_server()
        if secret:
            raise InvalidInput("E-mail has no secret here; MUSTER_SMTP_URL holds it.", pointer="/secret")
        return
    if kind == Channel.Kind.SLACK:
        if secret:
            raise InvalidInput("The address is the secret here; give it as the target.", pointer="/secret")
        _aim_slack(channel, target)
        return
    channel.target = targets.checked_url(target or (messages.PAGERDUTY_URL if kind == Channel.Kind.PAGERDUTY else ""))
    if kind == Channel.Kind.WEBHOOK and secret:
        _require_key(secret)
    elif kind == Channel.Kind.PAGERDUTY and not (secret or channel.secrets):
        raise InvalidInput("Give the routing key of the service's Events API v2 integration.", pointer="/secret")
    if secret:
        _keep(channel, secret)


def _aim_slack(channel: Channel, url: str) -> None:
    """The URL is the secret: only its host stays readable. What is shown, sent back unchanged, changes nothing."""
    if channel.secrets and url == channel.target:
        return
    _keep(channel, targets.checked_url(url))
    channel.target = targets.origin_of(url.strip())


def _keep(channel: Channel, secret: str) -> None:
    channel.secrets, channel.secrets_set_at = seal([secret]), timezone.now()


def _opened(channel: Channel) -> list[str]:
    """Its secrets; none where they cannot be opened any more."""
    try:
        return unseal(channel.secrets) if channel.secrets else []
    except SealBroken:
        return []


def _require_key(secret: str) -> None:
    try:
        standard_webhooks.key_of(secret)
    except ValueError as error:
        raise InvalidInput(str(error), pointer="/secret") from error


def _require_mail_server() -> None:
    if not settings.EMAIL_HOST:
        told = "No mail server is set. Give the servers MUSTER_SMTP_URL first, such as smtp+starttls://user@host:587."
        raise InvalidInput(told, pointer="/kind")


def _save(channel: Channel) -> None:
    channel.name = channel.name.strip()
    if not 1 <= len(channel.name) <= 100 or not channel.name.isprintable():
        raise InvalidInput("A name has 1 to 100 printable characters.", pointer="/name")
    if channel.min_severity not in Severity.values:
        raise InvalidInput(f"Use one of {', '.join(Severity.values)}.", pointer="/min_severity")
    _check_types(channel)
    try:
        with transaction.atomic():
            channel.save()
    except IntegrityError as error:
        raise Conflict(f"Another channel is called {channel.name!r}.") from error


def _check_types(channel: Channel) -> None:
    if channel.kind != Channel.Kind.WEBHOOK:
        if channel.event_types:
            raise InvalidInput("Only webhooks choose events; other kinds are told of alerts.", pointer="/event_types")
        return
    if not 1 <= len(channel.event_types) <= MAX_PATTERNS:
        raise InvalidInput(f"Give one to {MAX_PATTERNS} events, such as alert.*.", pointer="/event_types")
    if unknown := unknown_patterns(channel.event_types):
        told = f"{unknown[0]!r} matches no event. There are {', '.join(EVENT_TYPES)}; alert.* takes all of alerts."
        raise InvalidInput(told, pointer="/event_types")


def _log(channel: Channel, verb: str, actor: str, detail: dict[str, Any]) -> None:
    log_activity(actor=actor, action=f"channel.{verb}", target_kind="channel", target_id=channel.pk, detail=detail)
