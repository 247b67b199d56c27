"""Policies that are due: by their schedule, or since a run has a new complete checkpoint."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from apps.checkpoints.models import Placement
from apps.core import cron
from apps.core.errors import ApplicationError
from apps.transfers.facts import runs_of
from apps.transfers.models import RetentionPolicy
from apps.transfers.planning import run_policy

log = logging.getLogger(__name__)
_AT_ONCE = 200
BY_SCHEDULE, BY_CHECKPOINT = "schedule", "new checkpoint"


def fire_due(now: datetime | None = None) -> int:
    """Run the policies whose time has come; times that were missed are one run together. Gives how many ran."""
    at = now or timezone.now()
    due = RetentionPolicy.objects.filter(enabled=True, next_at__lte=at).select_related("hot_tier", "cold_tier")
    return sum(_fire(policy, at) for policy in due.order_by("next_at")[:_AT_ONCE])


def _fire(policy: RetentionPolicy, now: datetime) -> int:
    planned_at = policy.next_at
    try:
        following: datetime | None = cron.next_time(policy.cron, policy.time_zone, now)
    except cron.BadSchedule as problem:
        log.error("policy %s is not scheduled any more: %s", policy.pk, problem.detail)
        following = None
    with transaction.atomic():
        mine = RetentionPolicy.objects.filter(pk=policy.pk, next_at=planned_at, enabled=True).update(next_at=following)
        if mine != 1 or following is None:
            return 0
        return _run(policy, BY_SCHEDULE, planned_at)


def fire_on_complete() -> int:
    """Run the policies that wait for new checkpoints and whose runs have one on the hot tier. Gives how many ran."""
    waiting = RetentionPolicy.objects.filter(enabled=True, on_complete=True).select_related("hot_tier", "cold_tier")
    return sum(_fire_on_complete(policy) for policy in waiting[:_AT_ONCE])


def _fire_on_complete(policy: RetentionPolicy) -> int:
    whole = Placement.objects.filter(
        tier=policy.hot_tier_id, status=Placement.Status.COMPLETE, checkpoint__run__in=runs_of(policy)
    )
    newest = whole.aggregate(at=Max("first_seen_at"))["at"]
    if newest is None or (policy.seen_checkpoint_at is not None and newest <= policy.seen_checkpoint_at):
        return 0
    with transaction.atomic():
        before = policy.seen_checkpoint_at
        mine = RetentionPolicy.objects.filter(pk=policy.pk, seen_checkpoint_at=before)
        if mine.update(seen_checkpoint_at=newest) != 1:
            return 0
        return _run(policy, BY_CHECKPOINT, None)


def _run(policy: RetentionPolicy, why: str, planned_at: datetime | None) -> int:
    try:
        run_policy(policy=policy, planned_at=planned_at, actor=f"policy {policy.name} ({why})")
    except ApplicationError as error:
        log.warning("policy %s could not run: %s", policy.pk, error.detail)
        return 0
    return 1
