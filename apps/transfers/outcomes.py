"""What follows when a step of a transfer has ended, or has met trouble: the row's side of it, wherever the bytes were
moved."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from muster_agent.formats.base import ShardMap
from muster_agent.jobs.control import Cancelled
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.protocol.copies import CopyCursor

from apps.checkpoints.arrivals import record_arrival, record_departure
from apps.checkpoints.evidence import add_evidence, mark_damage
from apps.checkpoints.models import Placement
from apps.checkpoints.placements import end_leaving
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.transfers import slices
from apps.transfers.facts import FINISHED
from apps.transfers.models import Transfer
from apps.transfers.services import OWNER_KIND
from apps.transfers.slices import LONGEST_WAIT

log = logging.getLogger(__name__)
State = Transfer.State
UNDER_WAY = (State.PLANNED, State.COPYING, State.PROVING, State.SWITCHING, State.RETIRING)
MAX_ATTEMPTS = 30
"""About a day of trying again, ever more rarely."""
MAX_PROOFS, MAX_LOSSES = 3, 5
_RESTORE_LOOK, _LONGEST_RESTORE = timedelta(minutes=5), timedelta(days=4)
"""Archives take hours: that is no trouble, so it is no attempt."""


def ended(transfer: Transfer, cursor: CopyCursor, shard_map: ShardMap | None = None) -> None:
    """The step of the transfer's state is done: record what it did, and go on to the next state. `shard_map`: how the
    copy reads in its place, after the switch. Raises Cancelled where somebody else changed the state meanwhile,
    ApplicationError where what was made cannot be recorded."""
    if transfer.state == State.PLANNED:
        _to(transfer, State.COPYING, started_at=transfer.started_at or timezone.now(), is_clean=False)
    elif transfer.state == State.COPYING:
        _to(transfer, State.PROVING)
    elif transfer.state == State.PROVING:
        _to(transfer, State.SWITCHING, proof_detail=_proof(cursor))
    elif transfer.state == State.SWITCHING:
        _record_arrival(transfer, cursor, shard_map)
    else:
        record_departure(placement=transfer.source, source_id=transfer.pk)
        failpoint("retire.recorded")
        _to(transfer, State.DONE)


def only_removes(transfer: Transfer) -> None:
    """Nothing is copied by it: it goes on to the removal at once."""
    _to(transfer, State.RETIRING, started_at=timezone.now())


def _proof(cursor: CopyCursor) -> dict[str, Any]:
    by = cursor.proved_by
    detail = {"by": by if by == "read_back" else "checksum", "checksum": by, "bytes": cursor.total_bytes}
    note = {"note": cursor.proof_note} if cursor.proof_note else {}
    return detail | note | {"at": timezone.now().isoformat()}


@transaction.atomic
def _record_arrival(transfer: Transfer, cursor: CopyCursor, shard_map: ShardMap | None) -> None:
    assert transfer.target_tier is not None and cursor.manifest is not None and shard_map is not None
    placement = record_arrival(
        checkpoint=transfer.checkpoint,
        tier=transfer.target_tier,
        shard_map=shard_map,
        manifest=cursor.manifest,
        source_kind=OWNER_KIND,
        source_id=transfer.pk,
        detail=transfer.proof_detail,
        sums={one.path: one.sent_sum for one in cursor.files if one.sent_sum},
    )
    _seal_source(transfer, placement)
    following = State.RETIRING if transfer.kind == Transfer.Kind.MOVE else State.DONE
    _to(transfer, following, target=placement, manifest=placement.manifest, is_clean=True)
    failpoint("switch.recorded")


def _seal_source(transfer: Transfer, made: Placement) -> None:
    """The source was read from end to end: where it was not sealed it is now, by the same digests."""
    source = transfer.source
    if source.manifest_id is None and made.manifest is not None and made.fingerprint == source.fingerprint:
        Placement.objects.filter(pk=source.pk, manifest=None).update(manifest=made.manifest)
        add_evidence(
            placement=source,
            rung="sealed",
            source_kind=OWNER_KIND,
            source_id=transfer.pk,
            fingerprint=made.fingerprint,
            detail={"manifest_id": made.manifest_id},
        )


def stays(transfer: Transfer, why: str) -> None:
    """A rule speaks against the removal: the copy that was made stays, and so does the source."""
    state = State.DONE if transfer.kind == Transfer.Kind.MOVE else State.CANCELLED
    _to(transfer, state, problem=f"the source stays: {why}", problem_code="source_stays")


def _to(transfer: Transfer, state: str, **fields: Any) -> None:
    """The next state. Raises Cancelled when somebody else changed it meanwhile."""
    final: dict[str, Any] = {"finished_at": timezone.now(), "next_attempt_at": None} if state in FINISHED else {}
    fields = {"problem": "", "problem_code": "", "attempts": 0, **final, **fields}
    with transaction.atomic():
        if not transition(transfer, old=transfer.state, new=state, reason=fields["problem"], **fields):
            raise Cancelled("the transfer was paused, cancelled or taken over")
        if state in FINISHED:
            slices.forget_cursor(transfer)
            end_leaving(placement=transfer.source, source_id=transfer.pk)
    announce(f"transfer:{transfer.pk}")


# -- trouble -----------------------------------------------------------------------------------------------------------
def met(transfer: Transfer, cursor: CopyCursor, trouble: CopyTrouble) -> bool:
    """Wait until it may have passed, copy again what was not right, or give up. Whether another slice is needed now."""
    slices.save_cursor(transfer, cursor)
    if trouble.code == "proof_failed" and transfer.proof_attempts + 1 < MAX_PROOFS:
        return _copy_again(transfer, trouble)
    if trouble.code == "file_lost" and transfer.proof_attempts + 1 < MAX_LOSSES:
        return _copy_again(transfer, trouble)
    if trouble.code == "copy_lost" and transfer.proof_attempts + 1 < MAX_LOSSES:
        slices.forget_cursor(transfer)
        return _copy_again(transfer, trouble)
    if trouble.code == "source_damaged":
        _mark_damage(transfer, trouble)
    if trouble.code == "restoring" and timezone.now() - transfer.created_at < _LONGEST_RESTORE:
        return _wait(transfer, trouble, _RESTORE_LOOK, transfer.attempts)
    if trouble.may_pass and transfer.attempts + 1 < MAX_ATTEMPTS:
        wait = min(timedelta(seconds=settings.TRANSFER_RETRY_SECONDS) * 2 ** min(transfer.attempts, 10), LONGEST_WAIT)
        return _wait(transfer, trouble, wait, transfer.attempts + 1)
    return fail(transfer, trouble.code, str(trouble))


def _copy_again(transfer: Transfer, trouble: CopyTrouble) -> bool:
    back = State.PLANNED if not slices.load_cursor(transfer).is_surveyed else State.COPYING
    return transition(
        transfer,
        old=(State.PROVING, State.SWITCHING, State.COPYING),
        new=back,
        reason=str(trouble),
        problem=str(trouble),
        problem_code=trouble.code,
        proof_attempts=transfer.proof_attempts + 1,
    )


def _wait(transfer: Transfer, trouble: CopyTrouble, wait: timedelta, attempts: int) -> bool:
    """Pause until it may have passed; what was copied stays."""
    transition(
        transfer,
        old=UNDER_WAY,
        new=State.PAUSED,
        reason=str(trouble),
        resume_to=transfer.state,
        problem=str(trouble),
        problem_code=trouble.code,
        attempts=attempts,
        next_attempt_at=timezone.now() + wait,
    )
    announce(f"transfer:{transfer.pk}")
    return False


@transaction.atomic
def fail(transfer: Transfer, code: str, why: str) -> bool:
    """End it. What it had copied is removed by a further slice, which needs the cursor until then."""
    log.warning("transfer %s failed: %s", transfer.pk, why)
    transition(
        transfer,
        old=UNDER_WAY,
        new=State.FAILED,
        reason=why,
        problem=why,
        problem_code=code,
        finished_at=timezone.now(),
        next_attempt_at=None if transfer.is_clean else timezone.now(),
    )
    end_leaving(placement=transfer.source, source_id=transfer.pk)
    if transfer.is_clean:
        slices.forget_cursor(transfer)
    announce(f"transfer:{transfer.pk}")
    return not transfer.is_clean


def _mark_damage(transfer: Transfer, trouble: CopyTrouble) -> None:
    mark_damage(
        placement=transfer.source,
        findings=trouble.findings,
        source_kind=OWNER_KIND,
        source_id=transfer.pk,
        fingerprint=transfer.source.fingerprint,
    )


# -- the leftovers of one that ended without a copy --------------------------------------------------------------------
@transaction.atomic
def cleaned(transfer: Transfer) -> None:
    """Nothing of it is left at the target."""
    Transfer.objects.filter(pk=transfer.pk).update(next_attempt_at=None, is_clean=True)
    slices.forget_cursor(transfer)


def not_cleaned(transfer: Transfer, why: str) -> None:
    """Tried until it works."""
    log.warning("what transfer %s left at %s is still there: %s", transfer.pk, transfer.target_path, why)
    Transfer.objects.filter(pk=transfer.pk).update(next_attempt_at=timezone.now() + LONGEST_WAIT)
