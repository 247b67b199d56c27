"""A policy's plan, shown; and the same plan, carried out."""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone
from muster_agent.decide.retention import Action, Line, Plan, plan

from apps.accounts.services import log_activity
from apps.checkpoints.models import Placement
from apps.core.errors import ApplicationError, Conflict
from apps.storage.models import StorageTier
from apps.transfers import facts, services
from apps.transfers.models import Migration, RetentionPolicy, Transfer

log = logging.getLogger(__name__)
_KINDS = {
    Action.MOVE: Transfer.Kind.MOVE,
    Action.RETIRE: Transfer.Kind.RETIRE,
    Action.EXPIRE: Transfer.Kind.EXPIRE,
}


def preview(policy: RetentionPolicy, now: datetime | None = None) -> Plan:
    """What the policy would do now. A constant number of queries; nothing is written."""
    copies = facts.copies_of(
        facts.runs_of(policy),
        exempt_labels=policy.exempt_labels,
        with_optimizer=policy.optimizer_newest is not None,
        now=now,
    )
    return plan(
        copies,
        facts.rules_of(policy),
        facts.tier_states(policy.cluster_id),
        bytes_per_second=facts.measured_bytes_per_second(policy.hot_tier_id, policy.cold_tier_id),
    )


@transaction.atomic
def run_policy(*, policy: RetentionPolicy, planned_at: datetime | None = None, actor: str) -> Migration:
    """Plan, and begin what the plan says, unless the policy only plans. Raises Conflict where another worker has
    answered this moment of its schedule."""
    found = preview(policy)
    migration = Migration(
        policy=policy,
        planned_at=planned_at,
        plan_only=policy.plan_only,
        move_count=len(found.of(Action.MOVE)),
        retire_count=len(found.of(Action.RETIRE)),
        expire_count=len(found.of(Action.EXPIRE)),
        stay_count=len(found.of(Action.STAY)),
        moved_bytes=found.moved_bytes,
        freed_bytes=found.freed_bytes,
        estimated_seconds=found.seconds,
        notes=list(found.notes),
        requested_by=actor,
        created_at=timezone.now(),
    )
    try:
        with transaction.atomic():
            migration.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict("This moment of the schedule has been answered already.") from error
    log_activity(
        actor=actor,
        action="policy.run",
        target_kind="retention_policy",
        target_id=policy.pk,
        cluster_id=policy.cluster_id,
        detail={"migration": migration.pk, "plan_only": policy.plan_only},
    )
    if not policy.plan_only:
        _begin(migration, policy, found, actor)
    return migration


def _begin(migration: Migration, policy: RetentionPolicy, found: Plan, actor: str) -> None:
    lines = sorted((line for line in found.lines if line.action is not Action.STAY), key=_order)
    rows = Placement.objects.select_related("checkpoint__run", "tier__cluster", "manifest").defer("manifest__body")
    placements = rows.in_bulk([line.copy.placement for line in lines])
    tiers = StorageTier.objects.in_bulk({line.to_tier for line in lines if line.to_tier})
    for line in lines:
        placement = placements.get(line.copy.placement)
        if placement is not None:
            _request(migration, policy, line, placement, tiers.get(line.to_tier or ""), actor)
    if migration.notes:
        Migration.objects.filter(pk=migration.pk).update(notes=migration.notes)


def _order(line: Line) -> tuple[bool, str, int, str]:
    """What only removes goes first, since that makes room; then the oldest."""
    return line.action is Action.MOVE, line.copy.run, line.copy.step, line.copy.placement


def _request(
    migration: Migration,
    policy: RetentionPolicy,
    line: Line,
    placement: Placement,
    tier: StorageTier | None,
    actor: str,
) -> None:
    try:
        services.request_transfer(
            placement=placement,
            kind=_KINDS[line.action],
            target_tier=tier,
            proof=policy.proof,
            where=policy.where,
            without_optimizer=line.without_optimizer,
            max_bytes_per_second=policy.max_bytes_per_second,
            reasons=line.reasons,
            migration=migration,
            actor=actor,
        )
    except ApplicationError as error:
        log.info("no transfer of %s: %s", placement.path, error.detail)
        migration.notes.append(f"{placement.path}: {error.detail}"[:500])
