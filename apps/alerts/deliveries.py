"""Taking deliveries to their channels: at least once, each try with the same id, one worker at a time."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.alerts import messages, sending
from apps.alerts.answers import Again, Answer, Delivered, GivenUp, verdict
from apps.alerts.events import DELIVER
from apps.alerts.messages import Told
from apps.alerts.models import Channel, Delivery, DeliveryAttempt, Event
from apps.core.dispatch import enqueue
from apps.core.errors import Conflict
from apps.core.slices import LEASE, is_free, take_lease
from apps.core.transitions import transition

AT_ONCE = 500
JUST_NOW = timedelta(seconds=2)
MUSTER = "muster"
"""Who acts where nobody did."""


def delivery_rows() -> QuerySet[Delivery]:
    return Delivery.objects.select_related("event", "channel")


def due_rows() -> QuerySet[Delivery]:
    """Those that a worker could take up now: the earliest of each subject on each enabled channel."""
    now = timezone.now()
    earlier = Delivery.objects.filter(
        channel=OuterRef("channel"),
        subject=OuterRef("subject"),
        state=Delivery.State.PENDING,
        created_at__lt=OuterRef("created_at"),
    )
    pending = Delivery.objects.filter(is_free(now, LEASE), state=Delivery.State.PENDING, next_attempt_at__lte=now)
    return pending.filter(~Exists(earlier), channel__enabled=True)


def wake_due(within: timedelta | None = None) -> None:
    """Have a worker take up what is due; only what has become so `within` the last seconds, where that is said: a tick
    would else wake the same long queue every second."""
    rows = due_rows() if within is None else due_rows().filter(next_attempt_at__gt=timezone.now() - within)
    for delivery_id in rows.order_by("next_attempt_at").values_list("pk", flat=True)[:AT_ONCE]:
        enqueue(DELIVER, delivery_id=delivery_id)


def deliver(delivery_id: str) -> None:
    """Try once, where it is due and nobody is at it. Calling it twice, or from two workers, sends once.

    A worker that is killed between sending and writing so leaves its lease; once that has run out another one sends
    it again, with the same id.
    """
    delivery = delivery_rows().filter(pk__in=due_rows().filter(pk=delivery_id).values("pk")).first()
    if delivery is None:
        return
    now = timezone.now()
    if not take_lease(delivery, state=Delivery.State.PENDING, next_attempt_at__lte=now):
        return
    answer = sending.send(delivery.channel, told(delivery.event))
    _record(delivery, answer)


def told(event: Event) -> Told:
    return Told(event.pk, event.type, event.subject, event.at, event.data, settings.PUBLIC_URL)


@transaction.atomic
def replay(*, delivery: Delivery, actor: str) -> Delivery:
    """Send it again from the beginning, with the same id. Raises Conflict while it is pending, or its channel is
    disabled."""
    if not delivery.channel.enabled:
        raise Conflict("The channel is disabled; enable it first.", code="channel_disabled")
    now = timezone.now()
    again = transition(
        delivery,
        old=(Delivery.State.DELIVERED, Delivery.State.FAILED, Delivery.State.CANCELLED),
        new=Delivery.State.PENDING,
        reason="replayed",
        actor=actor,
        tries=0,
        problem="",
        requested_by=actor,
        finished_at=None,
        next_attempt_at=now,
    )
    if not again:
        raise Conflict("It is on its way already; see its tries.", code="pending")
    log_activity(actor=actor, action="delivery.replay", target_kind="delivery", target_id=delivery.pk)
    enqueue(DELIVER, delivery_id=delivery.pk)
    return delivery


@transaction.atomic
def _record(delivery: Delivery, answer: Answer) -> None:
    """What came back, and what follows; of a delivery that another worker took over meanwhile only that it arrived."""
    now = timezone.now()
    DeliveryAttempt.objects.create(
        delivery=delivery, at=now - timedelta(seconds=answer.seconds), seconds=answer.seconds, status=answer.status,
        problem=answer.problem, answer=answer.text,
    )  # fmt: skip
    once = delivery.event.type in (messages.TEST, messages.TEST_ENDED)
    found = verdict(answer, tries=delivery.tries + 1, once=once, jitter=random.random())
    free: dict[str, Any] = {
        "lease_expires_at": None,
        "lease_token": "",
        "tries": delivery.tries + 1,
        "problem": answer.problem,
    }
    if isinstance(found, Delivered):
        _end(delivery, Delivery.State.DELIVERED, free)
        Channel.objects.filter(pk=delivery.channel_id).update(last_delivered_at=now)
    elif isinstance(found, Again):
        mine = Delivery.objects.filter(pk=delivery.pk, lease_token=delivery.lease_token, state=Delivery.State.PENDING)
        mine.update(**free, next_attempt_at=now + timedelta(seconds=found.wait_seconds))
    elif _end(delivery, Delivery.State.FAILED, free):
        _disable_if_dead(delivery, found, once)


def _end(delivery: Delivery, state: Delivery.State, changes: dict[str, Any]) -> bool:
    ended = transition(
        delivery, old=Delivery.State.PENDING, new=state, reason=str(changes["problem"]), next_attempt_at=None,
        finished_at=timezone.now(), **changes,
    )  # fmt: skip
    for following in due_rows().filter(channel=delivery.channel_id, subject=delivery.subject)[:1]:
        enqueue(DELIVER, delivery_id=following.pk)
    return ended


def _disable_if_dead(delivery: Delivery, found: GivenUp, once: bool) -> None:
    """A receiver that is gone, or to which nothing has come through since this delivery began, is not tried for ever.
    That a single message is not taken says nothing against the others."""
    if found.channel_is_gone:
        disable(delivery.channel, "Its receiver answered HTTP 410: it is gone. Enter its new address and enable it.")
        return
    channel = Channel.objects.get(pk=delivery.channel_id)
    arrived = channel.last_delivered_at
    if once or (arrived is not None and arrived > delivery.created_at):
        return
    reason = f"Nothing arrived since {delivery.created_at:%Y-%m-%d %H:%M} UTC, last: {delivery.problem}. "
    disable(channel, reason + "Mend its receiver, send a test and enable it.")


@transaction.atomic
def disable(channel: Channel, reason: str) -> None:
    """By Muster itself; an alert tells of it. What waits is cancelled, and can be replayed by hand."""
    if Channel.objects.filter(pk=channel.pk, enabled=True).update(enabled=False, disabled_reason=reason) != 1:
        return
    log_activity(
        actor=MUSTER, action="channel.disable", target_kind="channel", target_id=channel.pk, detail={"reason": reason}
    )
    cancel_pending(channel, "the channel was disabled")


def cancel_pending(channel: Channel, reason: str) -> None:
    for delivery in Delivery.objects.filter(channel=channel, state=Delivery.State.PENDING):
        transition(
            delivery, old=Delivery.State.PENDING, new=Delivery.State.CANCELLED, reason=reason, problem=reason,
            next_attempt_at=None, finished_at=timezone.now(),
        )  # fmt: skip


def prune() -> None:
    """Forget events that ended longer ago than `MUSTER_DELIVERY_KEEP_DAYS`, with their deliveries."""
    if not settings.DELIVERY_KEEP_DAYS:
        return
    before = timezone.now() - timedelta(days=settings.DELIVERY_KEEP_DAYS)
    pending = Delivery.objects.filter(event=OuterRef("pk"), state=Delivery.State.PENDING)
    old = Event.objects.filter(~Exists(pending), at__lt=before).order_by("at").values_list("pk", flat=True)[:AT_ONCE]
    Event.objects.filter(pk__in=list(old)).delete()
