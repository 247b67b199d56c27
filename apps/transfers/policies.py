"""Writing retention policies. A new one only plans."""

from __future__ import annotations

import re
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.models import TrainingRun
from apps.core import cron
from apps.core.errors import Conflict, InvalidInput
from apps.fleet.models import Cluster
from apps.storage.models import StorageTier
from apps.transfers.models import RetentionPolicy

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_LABEL = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
CHANGEABLE = frozenset(
    {
        "name", "hot_tier", "cold_tier", "keep_newest", "keep_every_steps", "exempt_labels", "move_after_days",
        "expire_after_days", "high_water_ratio", "low_water_ratio", "optimizer_newest", "proof",
        "where", "max_bytes_per_second", "plan_only", "enabled", "cron", "time_zone", "on_complete",
    }
)  # fmt: skip
_SCHEDULE = frozenset({"cron", "time_zone", "enabled"})
_MAX_DAYS = 36_500.0


@transaction.atomic
def create_policy(
    *,
    cluster: Cluster,
    name: str,
    hot_tier: StorageTier,
    run: TrainingRun | None = None,
    actor: str,
    **details: Any,
) -> RetentionPolicy:
    """A new policy of one run, or of a whole cluster. Raises InvalidInput for what makes no sense, Conflict where
    another policy has its name or its place."""
    _require_known(details)
    policy = RetentionPolicy(
        cluster=cluster, name=name, hot_tier=hot_tier, run=run, created_by=actor, created_at=timezone.now(), **details
    )
    _schedule(policy)
    _save(policy)
    _log(policy, "create", actor, {"plan_only": policy.plan_only})
    return policy


@transaction.atomic
def update_policy(*, policy: RetentionPolicy, changes: dict[str, Any], actor: str) -> RetentionPolicy:
    """Change fields. What it has begun goes on as it was asked for."""
    _require_known(changes)
    for name, value in changes.items():
        setattr(policy, name, value)
    if changes.keys() & _SCHEDULE:
        _schedule(policy)
    _save(policy)
    _log(policy, "update", actor, {"fields": sorted(changes)})
    return policy


@transaction.atomic
def delete_policy(*, policy: RetentionPolicy, actor: str) -> None:
    """Remove a policy and the record of its plans. Its transfers stay, and go on."""
    _log(policy, "delete", actor, {"name": policy.name})
    policy.delete()


def _log(policy: RetentionPolicy, verb: str, actor: str, detail: dict[str, Any]) -> None:
    log_activity(
        actor=actor,
        action=f"policy.{verb}",
        target_kind="retention_policy",
        target_id=policy.pk,
        cluster_id=policy.cluster_id,
        detail=detail,
    )


def _require_known(details: dict[str, Any]) -> None:
    unknown = sorted(details.keys() - CHANGEABLE)
    if unknown:
        raise InvalidInput(f"A policy has no changeable field {unknown[0]!r}.", pointer=f"/{unknown[0]}")


def _schedule(policy: RetentionPolicy) -> None:
    policy.cron, policy.time_zone = policy.cron.strip(), policy.time_zone.strip()
    try:
        cron.require_zone(policy.time_zone)
        wanted = policy.cron and policy.enabled
        following = cron.next_time(policy.cron, policy.time_zone, timezone.now()) if policy.cron else None
        policy.next_at = following if wanted else None
    except cron.BadSchedule as problem:
        raise InvalidInput(problem.detail, pointer=f"/{problem.field}") from problem


def _save(policy: RetentionPolicy) -> None:
    _check(policy)
    try:
        with transaction.atomic():
            policy.save()
    except IntegrityError as error:
        raise Conflict(
            f"Another policy is called {policy.name!r}, or looks after the same runs on {policy.hot_tier.name}."
        ) from error


def _check(policy: RetentionPolicy) -> None:
    if not _NAME.fullmatch(policy.name):
        raise InvalidInput("Use a-z, 0-9, - and _, at most 63 characters, no sign first.", pointer="/name")
    _check_tiers(policy)
    if not 1 <= policy.keep_newest <= 10_000:
        raise InvalidInput("Keep at least 1 and at most 10000.", pointer="/keep_newest")
    for field in ("keep_every_steps", "optimizer_newest", "max_bytes_per_second"):
        value = getattr(policy, field)
        if value is not None and not 1 <= value < 2**31 * (2**32 if field == "max_bytes_per_second" else 1):
            raise InvalidInput("Use a whole number of at least 1, or null.", pointer=f"/{field}")
    for field in ("move_after_days", "expire_after_days"):
        value = getattr(policy, field)
        if value is not None and not 0 < value <= _MAX_DAYS:
            raise InvalidInput(f"Use days above 0 and up to {_MAX_DAYS:.0f}, or null.", pointer=f"/{field}")
    _check_marks(policy)
    if policy.proof not in RetentionPolicy.Proof.values:
        raise InvalidInput(f"Use one of {', '.join(RetentionPolicy.Proof.values)}.", pointer="/proof")
    if policy.where not in RetentionPolicy.Where.values:
        raise InvalidInput(f"Use one of {', '.join(RetentionPolicy.Where.values)}.", pointer="/where")
    if len(policy.cron) > 100 or len(policy.time_zone) > 64:
        raise InvalidInput("A schedule has at most 100 characters, a time zone 64.", pointer="/cron")
    labels = policy.exempt_labels
    if not isinstance(labels, list) or not all(isinstance(label, str) and _LABEL.fullmatch(label) for label in labels):
        raise InvalidInput("Give labels of a-z, 0-9, -, _ and dots.", pointer="/exempt_labels")


def _check_tiers(policy: RetentionPolicy) -> None:
    hot, cold = policy.hot_tier, policy.cold_tier
    if hot.cluster_id != policy.cluster_id:
        raise InvalidInput("This tier is of another cluster.", pointer="/hot_tier")
    if policy.run is not None and policy.run.cluster_id != policy.cluster_id:
        raise InvalidInput("This run is of another cluster.", pointer="/run")
    if cold is None:
        if policy.expire_after_days is not None:
            raise InvalidInput("Only copies on a cold tier expire; name one.", pointer="/cold_tier")
        return
    if cold.cluster_id != policy.cluster_id:
        raise InvalidInput("This tier is of another cluster.", pointer="/cold_tier")
    if cold.speed_order <= hot.speed_order:
        raise InvalidInput(
            f"{cold.name} is not slower than {hot.name} (speed_order {cold.speed_order} and {hot.speed_order}).",
            pointer="/cold_tier",
        )


def _check_marks(policy: RetentionPolicy) -> None:
    high, low = policy.high_water_ratio, policy.low_water_ratio
    if high is not None and not 0 < high <= 1:
        raise InvalidInput("Use a ratio above 0 and at most 1, or null.", pointer="/high_water_ratio")
    if low is not None and (high is None or not 0 < low <= high):
        raise InvalidInput("The low mark lies above 0 and not above the high one.", pointer="/low_water_ratio")


def is_label(text: str) -> bool:
    """Whether the text can be a checkpoint's label."""
    return _LABEL.fullmatch(text) is not None
