"""Repairs that somebody or a policy asks for: which copy is good enough to repair from, and when nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.audits.models import Audit, Repair
from apps.checkpoints.missing import PROVEN
from apps.checkpoints.models import Placement
from apps.checkpoints.placements import hold, release
from apps.core.dispatch import enqueue
from apps.core.errors import Conflict, InvalidInput
from apps.core.slices import forget_cursor
from apps.core.transitions import record, transition
from apps.core.wakeups import announce
from apps.transfers.reach import workers_reach

OWNER_KIND = "repair"
SLICE = "muster.move.repair_slice"
State = Repair.State
UNFINISHED = (State.SURVEYING, State.WRITING, State.PROVING)


def sources(placement: Placement) -> list[Placement]:
    """The copies that it can be repaired from, the fastest first: every byte of theirs is proven, and they were sealed
    with the same digests."""
    rows = Placement.objects.filter(
        checkpoint=placement.checkpoint_id,
        status=Placement.Status.COMPLETE,
        damaged_at=None,
        trust__in=PROVEN,
        manifest__root_xxh3_128=placement.manifest.root_xxh3_128 if placement.manifest else "none",
    ).exclude(pk=placement.pk)
    found = rows.select_related("tier__cluster", "manifest").defer("manifest__body").order_by("tier__speed_order", "pk")
    return [row for row in found if workers_reach(row.path)]


def why_not(placement: Placement, candidates: Sequence[Placement]) -> str:
    """Why it cannot be repaired now; empty where it can."""
    if placement.damaged_at is None:
        return "No damage that was found by reading stands against this copy; there is nothing to repair."
    if placement.manifest is None:
        return "This copy was never sealed, so nobody knows what its bytes should be. Copy the step from another tier."
    if placement.status in (Placement.Status.MISSING, Placement.Status.ARCHIVED):
        return f"This copy is {placement.status}; there is nothing to repair."
    if not workers_reach(placement.path):
        return f"Workers write only below the places in MUSTER_WORKER_ROOTS, and {placement.path} is in none of them."
    if not candidates:
        return (
            "No other copy of this step that the workers reach is verified and sealed with the same digests. "
            "Verify one, or resume from an older step."
        )
    return ""


@transaction.atomic
def request_repair(
    *, placement: Placement, source: Placement | None = None, audit: Audit | None = None, actor: str
) -> Repair:
    """Have the bad chunks of a damaged copy rewritten from another one. Raises InvalidInput for a source that is not
    good enough, Conflict where it cannot be done now."""
    candidates = sources(placement)
    told = why_not(placement, candidates)
    if told:
        raise Conflict(told, code="not_repairable")
    chosen = candidates[0] if source is None else next((one for one in candidates if one.pk == source.pk), None)
    if chosen is None:
        raise InvalidInput("That copy is not verified, or not sealed with the same digests.", pointer="/from_placement")
    now = timezone.now()
    repair = Repair(
        placement=placement,
        source=chosen,
        audit=audit,
        manifest=placement.manifest,
        requested_by=actor,
        created_at=now,
        next_attempt_at=now,
    )
    try:
        with transaction.atomic():
            repair.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict("A repair of this copy is under way; wait for it, or cancel it.") from error
    for copy in (placement, chosen):
        hold(placement=copy, source_kind=OWNER_KIND, source_id=repair.pk)
    record("repair", repair.pk, old="", new=repair.state, actor=actor)
    detail = {"placement": placement.pk, "path": placement.path, "from": chosen.path}
    log_activity(
        actor=actor,
        action="repair.start",
        target_kind="repair",
        target_id=repair.pk,
        cluster_id=repair.placement.tier.cluster_id,
        detail=detail,
    )
    enqueue(SLICE, repair_id=repair.pk)
    return repair


@transaction.atomic
def cancel_repair(*, repair: Repair, actor: str) -> Repair:
    """Stop it. What was written stays: each chunk of it is as it was sealed. Raises Conflict once it has ended."""
    repair.refresh_from_db()
    if not end(repair, State.CANCELLED, f"cancelled by {actor}"):
        raise Conflict(f"This repair has ended already ({repair.state}).")
    log_activity(
        actor=actor,
        action="repair.cancel",
        target_kind="repair",
        target_id=repair.pk,
        cluster_id=repair.placement.tier.cluster_id,
    )
    return repair


@transaction.atomic
def end(repair: Repair, state: str, problem: str = "", code: str = "", **fields: Any) -> bool:
    """False when another worker was first."""
    done = transition(
        repair,
        old=UNFINISHED,
        new=state,
        reason=problem,
        problem=problem,
        problem_code=code,
        finished_at=timezone.now(),
        next_attempt_at=None,
        **fields,
    )
    if done:
        forget_cursor(repair.pk)
        for copy in (repair.placement, repair.source):
            if copy is not None:
                release(placement=copy, source_kind=OWNER_KIND, source_id=repair.pk)
        announce(f"repair:{repair.pk}")
    return done


def due() -> list[str]:
    """Repairs that nobody has looked at for a while."""
    rows = Repair.objects.filter(next_attempt_at__lte=timezone.now(), state__in=UNFINISHED)
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def advance(repair_id: str) -> None:
    """Wake a worker for it. Calling it twice is harmless: the lease lets one in."""
    enqueue(SLICE, repair_id=repair_id)
