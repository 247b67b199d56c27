"""Writing the rate limits of tiers."""

from __future__ import annotations

from datetime import time

from django.db import transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.core import cron
from apps.core.errors import InvalidInput
from apps.storage.models import StorageTier
from apps.transfers.models import TierRateLimit

_MIDNIGHT = time(0)


@transaction.atomic
def add(
    *,
    tier: StorageTier,
    max_bytes_per_second: int,
    begins: time = _MIDNIGHT,
    ends: time = _MIDNIGHT,
    time_zone: str = "UTC",
    actor: str,
) -> TierRateLimit:
    """Limit all transfers together that read from or write to the tier, each day from `begins` to `ends` (the same: the
    whole day). Raises InvalidInput."""
    if max_bytes_per_second < 1:
        raise InvalidInput("Use a whole number of at least 1.", pointer="/max_bytes_per_second")
    try:
        cron.require_zone(time_zone)
    except cron.BadSchedule as problem:
        raise InvalidInput(problem.detail, pointer="/time_zone") from problem
    limit = TierRateLimit.objects.create(
        tier=tier,
        max_bytes_per_second=max_bytes_per_second,
        begins=begins.replace(tzinfo=None),
        ends=ends.replace(tzinfo=None),
        time_zone=time_zone,
        created_at=timezone.now(),
    )
    _log(limit, "add", actor)
    return limit


@transaction.atomic
def remove(*, limit: TierRateLimit, actor: str) -> None:
    """Take a limit away."""
    _log(limit, "remove", actor)
    limit.delete()


def _log(limit: TierRateLimit, verb: str, actor: str) -> None:
    log_activity(
        actor=actor,
        action=f"rate_limit.{verb}",
        target_kind="tier",
        target_id=limit.tier_id,
        cluster_id=limit.tier.cluster_id,
        detail={"max_bytes_per_second": limit.max_bytes_per_second},
    )
