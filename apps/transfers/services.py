"""Asking for transfers, and telling them to wait, to go on or to stop."""

from __future__ import annotations

import posixpath
from typing import Any, TypedDict, Unpack

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.folders import folder_of
from apps.checkpoints.models import Placement, RunFolder
from apps.core.dispatch import enqueue
from apps.core.errors import Conflict, InvalidInput
from apps.core.transitions import record, transition
from apps.core.wakeups import announce
from apps.fleet import tasks
from apps.fleet.models import Agent
from apps.storage.models import StorageTier
from apps.storage.paths import contains
from apps.transfers.facts import FINISHED
from apps.transfers.models import Migration, RetentionPolicy, Transfer, TransferCursor
from apps.transfers.reach import agent_for, workers_reach

OWNER_KIND = "transfer"
SLICE = "muster.move.slice"
COPYING_KINDS = (Transfer.Kind.MOVE, Transfer.Kind.COPY, Transfer.Kind.STAGE)
MOVING = (Transfer.State.PLANNED, Transfer.State.COPYING, Transfer.State.PROVING)
"""States in which it may still be paused or cancelled: nothing has been switched or removed yet."""
_BROUGHT_BACK = (Transfer.Kind.COPY, Transfer.Kind.STAGE)
"""Kinds that have a copy brought back from an archive first."""


class Wishes(TypedDict, total=False):
    """How a transfer is to be made. `proof`: by the store's checksum or by reading back; `where`: who moves the bytes
    (`RetentionPolicy.Where`); None: no limit of its own."""

    proof: str
    where: str
    without_optimizer: bool
    max_bytes_per_second: int | None


@transaction.atomic
def request_transfer(
    *,
    placement: Placement,
    kind: str,
    target_tier: StorageTier | None = None,
    reasons: tuple[str, ...] = (),
    migration: Migration | None = None,
    actor: str,
    **wishes: Unpack[Wishes],
) -> Transfer:
    """Have a copy made on `target_tier` and, for a move, the placement removed once that is proven.

    Raises InvalidInput for what makes no sense, Conflict where it cannot be done now: another transfer is at work on
    the placement or the place, or neither the workers nor an agent reach both.
    """
    _check_wishes(wishes)
    where = wishes.pop("where", RetentionPolicy.Where.AS_REACHED)
    target_path = _check(placement, kind, target_tier)
    transfer = Transfer(
        cluster=placement.tier.cluster,
        checkpoint=placement.checkpoint,
        migration=migration,
        kind=kind,
        source=placement,
        target_tier=target_tier,
        target_path=target_path,
        **wishes,
        reasons=list(reasons) or [f"asked for by {actor}"],
        total_bytes=placement.total_bytes,
        manifest=placement.manifest,
        requested_by=actor,
        created_at=timezone.now(),
        next_attempt_at=timezone.now(),
    )
    transfer.agent = _mover(transfer, where)
    _insert(transfer)
    record("transfer", transfer.pk, old="", new=transfer.state, actor=actor)
    log_activity(
        actor=actor,
        action=f"transfer.{kind}",
        target_kind="transfer",
        target_id=transfer.pk,
        cluster_id=transfer.cluster_id,
        detail={"from": placement.path, "to": target_path},
    )
    enqueue(SLICE, transfer_id=transfer.pk)
    return transfer


def _insert(transfer: Transfer) -> None:
    try:
        with transaction.atomic():
            transfer.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(
            "A transfer is at work on this copy or this place already; wait for it, or cancel it."
        ) from error


def _check_wishes(wishes: Wishes) -> None:
    if wishes.get("proof", RetentionPolicy.Proof.READ_BACK) not in RetentionPolicy.Proof.values:
        raise InvalidInput(f"Use one of {', '.join(RetentionPolicy.Proof.values)}.", pointer="/proof")
    if wishes.get("where", RetentionPolicy.Where.AS_REACHED) not in RetentionPolicy.Where.values:
        raise InvalidInput(f"Use one of {', '.join(RetentionPolicy.Where.values)}.", pointer="/where")
    rate = wishes.get("max_bytes_per_second")
    if rate is not None and rate < 1:
        raise InvalidInput("Use a whole number of at least 1, or null.", pointer="/max_bytes_per_second")


def _check(placement: Placement, kind: str, target_tier: StorageTier | None) -> str:
    if kind not in Transfer.Kind.values:
        raise InvalidInput(f"Use one of {', '.join(Transfer.Kind.values)}.", pointer="/kind")
    if placement.status == Placement.Status.MISSING:
        raise Conflict(f"This copy is {placement.status}; there is nothing to read.")
    from_archive = placement.status == Placement.Status.ARCHIVED and kind in _BROUGHT_BACK
    if kind not in COPYING_KINDS:
        if target_tier is not None:
            raise InvalidInput("Nothing is copied by this kind; leave the tier out.", pointer="/tier")
        return ""
    if target_tier is None:
        raise InvalidInput("Name the tier that it is to be copied to.", pointer="/tier")
    if placement.status != Placement.Status.COMPLETE and not from_archive:
        raise Conflict(f"This copy is {placement.status}; only what is complete is copied.")
    return _target_path(placement, kind, target_tier)


def _target_path(placement: Placement, kind: str, target_tier: StorageTier) -> str:
    _check_direction(placement, kind, target_tier)
    path = target_path_of(placement, target_tier)
    there = (
        Placement.objects.filter(tier=target_tier, path=path).exclude(listed_status=Placement.Status.MISSING).first()
    )
    if there is not None:
        raise Conflict(f"{target_tier.name} has {path} already ({there.status}); verify that one, or remove it.")
    return path


def _check_direction(placement: Placement, kind: str, target_tier: StorageTier) -> None:
    source = placement.tier
    if target_tier.cluster_id != source.cluster_id or target_tier.pk == source.pk:
        raise InvalidInput("Name another tier of the same cluster.", pointer="/tier")
    if kind == Transfer.Kind.MOVE and target_tier.speed_order <= source.speed_order:
        raise InvalidInput(f"A move goes to a slower tier than {source.name}; use copy or stage.", pointer="/tier")
    if kind == Transfer.Kind.STAGE and target_tier.speed_order >= source.speed_order:
        raise InvalidInput(f"Staging goes to a faster tier than {source.name}.", pointer="/tier")


def target_path_of(placement: Placement, tier: StorageTier) -> str:
    """Where the copy lies: in the run's folder on that tier, else at the same place below its root as here."""
    name = posixpath.basename(placement.path)
    folder = RunFolder.objects.filter(tier=tier, run=placement.checkpoint.run_id).first()
    if folder is not None:
        return posixpath.join(folder.path, name)
    inside = folder_of(placement.path).removeprefix(placement.tier.uri.rstrip("/")).strip("/")
    if not contains(placement.tier.uri, placement.path):
        inside = placement.checkpoint.run.name
    return posixpath.join(tier.uri, inside, name)


_NOBODY = {
    RetentionPolicy.Where.AS_REACHED: "Nobody reaches",
    RetentionPolicy.Where.WORKERS: "The workers, who were asked for, do not reach",
    RetentionPolicy.Where.AGENTS: "No agent that is online, as was asked for, reaches",
}
_WORKERS_CURE = "put them below MUSTER_WORKER_ROOTS"
_AGENT_CURE = "have an agent online that may copy there (`muster agent join --copy-root`)"
_CURES = {
    RetentionPolicy.Where.AS_REACHED: f"{_WORKERS_CURE}, or {_AGENT_CURE}",
    RetentionPolicy.Where.WORKERS: f"{_WORKERS_CURE}, or ask for agents",
    RetentionPolicy.Where.AGENTS: f"{_AGENT_CURE}, or ask for the workers",
}


def _mover(transfer: Transfer, where: str) -> Agent | None:
    """None: the workers do it. Raises Conflict where nobody can who may."""
    asked = RetentionPolicy.Where(where)
    paths = [path for path in (transfer.source.path, transfer.target_path) if path]
    if asked != asked.AGENTS and workers_reach(*paths):
        return None
    agent = None if asked == asked.WORKERS else agent_for(transfer)
    if agent is None:
        raise Conflict(f"{_NOBODY[asked]} {' and '.join(paths)}: {_CURES[asked]}.", code="out_of_reach")
    return agent


# -- waiting and stopping ----------------------------------------------------------------------------------------------
@transaction.atomic
def pause(*, transfer: Transfer, actor: str) -> Transfer:
    """Let it wait until somebody resumes it; what was copied stays. Raises Conflict where it cannot wait any more."""
    transfer.refresh_from_db()
    if transfer.state not in MOVING and not (transfer.state == Transfer.State.PAUSED and transfer.next_attempt_at):
        raise Conflict(f"This transfer is {transfer.state}; only what is being copied or proven can be paused.")
    resume_to = transfer.resume_to if transfer.state == Transfer.State.PAUSED else transfer.state
    reason = f"paused by {actor}"
    transition(
        transfer,
        old=(*MOVING, Transfer.State.PAUSED),
        new=Transfer.State.PAUSED,
        reason=reason,
        actor=actor,
        resume_to=resume_to,
        problem=reason,
        problem_code="",
        next_attempt_at=None,
    )
    tasks.cancel_owner(owner_kind=OWNER_KIND, owner_id=transfer.pk, reason=reason)
    return _told(transfer, "pause", actor)


@transaction.atomic
def resume(*, transfer: Transfer, actor: str) -> Transfer:
    """Go on where it was paused. Raises Conflict where it is not."""
    transfer.refresh_from_db()
    if transfer.state != Transfer.State.PAUSED:
        raise Conflict(f"This transfer is {transfer.state}; there is nothing to resume.")
    go_on(transfer, f"resumed by {actor}", actor=actor, attempts=0)
    return _told(transfer, "resume", actor)


def go_on(transfer: Transfer, reason: str, *, actor: str = "", **fields: Any) -> bool:
    """From paused to where it was. False when somebody was first."""
    changed = transition(
        transfer,
        old=Transfer.State.PAUSED,
        new=transfer.resume_to or Transfer.State.PLANNED,
        reason=reason,
        actor=actor,
        resume_to="",
        next_attempt_at=timezone.now(),
        **fields,
    )
    if changed:
        enqueue(SLICE, transfer_id=transfer.pk)
    return changed


@transaction.atomic
def cancel(*, transfer: Transfer, actor: str) -> Transfer:
    """Stop it and remove the part that was copied; the source stays. Raises Conflict once the copy is in its place."""
    transfer.refresh_from_db()
    if transfer.state not in (*MOVING, Transfer.State.PAUSED):
        told = "has ended" if transfer.state in FINISHED else f"is {transfer.state}, which takes a moment"
        raise Conflict(f"This transfer {told}; there is nothing to cancel.")
    transition(
        transfer,
        old=(*MOVING, Transfer.State.PAUSED),
        new=Transfer.State.CANCELLED,
        reason=f"cancelled by {actor}",
        actor=actor,
        problem=f"cancelled by {actor}",
        finished_at=timezone.now(),
        next_attempt_at=None if transfer.is_clean else timezone.now(),
    )
    if transfer.is_clean:
        TransferCursor.objects.filter(transfer=transfer).delete()
    else:
        enqueue(SLICE, transfer_id=transfer.pk)
    tasks.cancel_owner(owner_kind=OWNER_KIND, owner_id=transfer.pk, reason=f"cancelled by {actor}")
    return _told(transfer, "cancel", actor)


def _told(transfer: Transfer, verb: str, actor: str) -> Transfer:
    log_activity(
        actor=actor,
        action=f"transfer.{verb}",
        target_kind="transfer",
        target_id=transfer.pk,
        cluster_id=transfer.cluster_id,
    )
    announce(f"transfer:{transfer.pk}")
    transfer.refresh_from_db()
    return transfer
