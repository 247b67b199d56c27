"""Carrying a transfer on: at most half a minute at a time, by whatever worker; each step is idempotent.

planned -> copying -> proving -> switching -> retiring -> done. The row says how far it is; what really lies on the
tiers is looked at again wherever something is to be removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from muster_agent.formats.base import Role
from muster_agent.formats.places import is_bucket
from muster_agent.jobs.control import Cancelled
from muster_agent.jobs.copy import CopyJob
from muster_agent.jobs.copy_model import CopyCursor, CopyOrder, CopyTrouble
from muster_agent.jobs.copy_posix import PosixTarget
from muster_agent.jobs.copy_s3 import S3Target
from muster_agent.jobs.copy_source import require_whole
from muster_agent.jobs.copy_target import CopyTarget
from muster_agent.jobs.failpoints import failpoint

from apps.checkpoints.arrivals import record_arrival
from apps.checkpoints.evidence import add_evidence, mark_damage
from apps.checkpoints.manifests import load_manifest
from apps.checkpoints.models import Placement
from apps.checkpoints.placements import end_leaving
from apps.core.dispatch import enqueue
from apps.core.errors import ApplicationError
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.transfers import slices
from apps.transfers.facts import FINISHED
from apps.transfers.limits import allowed_rate
from apps.transfers.models import Transfer
from apps.transfers.reach import why_led_out
from apps.transfers.retiring import Stays, remove_source
from apps.transfers.services import COPYING_KINDS, OWNER_KIND, SLICE, go_on
from apps.transfers.slices import SliceControl
from apps.transfers.stores import store_for

log = logging.getLogger(__name__)
State = Transfer.State
_FIRST_WAIT = timedelta(seconds=30)
_LONGEST_WAIT = timedelta(hours=1)
MAX_ATTEMPTS = 30
"""About a day of trying again, ever more rarely."""
MAX_PROOFS = 3
_RELATED = ("source__tier", "target_tier__cluster", "target__tier", "checkpoint__run", "manifest", "cluster")


class Move:
    """One slice of one transfer."""

    def __init__(self, transfer: Transfer) -> None:
        self.transfer = transfer
        self.cursor = slices.load_cursor(transfer)
        self.control = SliceControl(transfer, self.cursor)

    # -- steps ---------------------------------------------------------------------------------------------------------
    def begin(self) -> None:
        if self.transfer.kind not in COPYING_KINDS:
            self._to(State.RETIRING, started_at=timezone.now())
            return
        self._require_reach()
        job = self._job()
        job.look()
        job.survey()
        failpoint("copy.surveyed")
        self._to(State.COPYING, started_at=self.transfer.started_at or timezone.now(), is_clean=False)

    def copy(self) -> None:
        self._require_reach()
        job = self._job()
        job.look()
        self._timed("copy_seconds", lambda: job.copy(self.control))
        self._to(State.PROVING)

    def prove(self) -> None:
        job = self._job()
        job.look()
        self._timed("prove_seconds", lambda: job.prove(self.control))
        by = self.cursor.proved_by
        detail = {"by": by if by == "read_back" else "checksum", "checksum": by, "bytes": self.cursor.total_bytes}
        detail |= {"at": timezone.now().isoformat()}
        self._to(State.SWITCHING, proof_detail=detail)

    def switch(self) -> None:
        job = self._job()
        job.look()
        if not job.is_proven:
            raise CopyTrouble("proof_failed", "the copy is not proven any more")
        manifest = job.switch()
        path = self.transfer.target_path
        self._record_arrival(require_whole(path, store_for(path)), manifest)

    @transaction.atomic
    def _record_arrival(self, shard_map: Any, manifest: Any) -> None:
        transfer = self.transfer
        assert transfer.target_tier is not None
        placement = record_arrival(
            checkpoint=transfer.checkpoint,
            tier=transfer.target_tier,
            shard_map=shard_map,
            manifest=manifest,
            source_kind=OWNER_KIND,
            source_id=transfer.pk,
            detail=transfer.proof_detail,
        )
        self._seal_source(placement)
        following = State.RETIRING if transfer.kind == Transfer.Kind.MOVE else State.DONE
        self._to(following, target=placement, manifest=placement.manifest, is_clean=True)
        failpoint("switch.recorded")

    def _seal_source(self, made: Placement) -> None:
        """The source was read from end to end: where it was not sealed it is now, by the same digests."""
        source = self.transfer.source
        if source.manifest_id is None and made.manifest is not None and made.fingerprint == source.fingerprint:
            Placement.objects.filter(pk=source.pk, manifest=None).update(manifest=made.manifest)
            add_evidence(
                placement=source,
                rung="sealed",
                source_kind=OWNER_KIND,
                source_id=self.transfer.pk,
                fingerprint=made.fingerprint,
                detail={"manifest_id": made.manifest_id},
            )

    def retire(self) -> None:
        try:
            remove_source(self.transfer, self.cursor, self.control.check)
        except Stays as why:
            self._keep(str(why))
            return
        failpoint("retire.recorded")
        self._to(State.DONE)

    def _keep(self, why: str) -> None:
        """A rule speaks against the removal: the copy that was made stays, and so does the source."""
        told = f"the source stays: {why}"
        if self.transfer.kind == Transfer.Kind.MOVE:
            self._to(State.DONE, problem=told, problem_code="source_stays")
        else:
            self._to(State.CANCELLED, problem=told, problem_code="source_stays")

    # -- parts ---------------------------------------------------------------------------------------------------------
    def _to(self, state: str, **fields: Any) -> None:
        """The next state. Raises Cancelled when somebody else changed it meanwhile."""
        ended: dict[str, Any] = {"finished_at": timezone.now(), "next_attempt_at": None} if state in FINISHED else {}
        fields = {"problem": "", "problem_code": "", "attempts": 0, **ended, **fields}
        with transaction.atomic():
            if not transition(self.transfer, old=self.transfer.state, new=state, reason=fields["problem"], **fields):
                raise Cancelled("the transfer was paused, cancelled or taken over")
            if state in FINISHED:
                slices.forget_cursor(self.transfer)
                end_leaving(placement=self.transfer.source, source_id=self.transfer.pk)
        announce(f"transfer:{self.transfer.pk}")

    def _job(self) -> CopyJob:
        return job_of(self.transfer, self.cursor, self._save)

    def _save(self) -> None:
        slices.save_cursor(self.transfer, self.cursor)
        self.control.note()

    def _timed(self, column: str, work: Callable[[], None]) -> None:
        before = self.control.elapsed_seconds
        try:
            work()
        finally:
            spent = getattr(self.transfer, column) + self.control.elapsed_seconds - before
            setattr(self.transfer, column, spent)
            Transfer.objects.filter(pk=self.transfer.pk).update(**{column: spent})
            slices.save_cursor(self.transfer, self.cursor)

    def _require_reach(self) -> None:
        for path in (self.transfer.source.path, self.transfer.target_path):
            if told := why_led_out(path):
                raise CopyTrouble("out_of_reach", told)


STEPS: dict[str, Callable[[Move], None]] = {
    State.PLANNED: Move.begin,
    State.COPYING: Move.copy,
    State.PROVING: Move.prove,
    State.SWITCHING: Move.switch,
    State.RETIRING: Move.retire,
}


def order_of(transfer: Transfer) -> CopyOrder:
    """What the data plane is asked for."""
    assert transfer.target_tier is not None
    source = transfer.source
    return CopyOrder(
        source=source.path,
        source_root=source.tier.uri,
        target=transfer.target_path,
        target_root=transfer.target_tier.uri,
        tag=transfer.pk,
        manifest=None if source.manifest is None else load_manifest(source.manifest),
        leave_out_roles=(Role.OPTIMIZER.value,) if transfer.without_optimizer else (),
        max_bytes_per_second=allowed_rate(transfer),
        proof=transfer.proof,
    )


def job_of(transfer: Transfer, cursor: CopyCursor, save: Callable[[], None] = lambda: None) -> CopyJob:
    """The copy at work, into a folder or a bucket, from a folder or a bucket."""
    order = order_of(transfer)
    store = store_for(order.source, order.target)
    in_bucket = store is not None and is_bucket(order.target)
    target: CopyTarget = S3Target(order, store) if store and in_bucket else PosixTarget(order)
    return CopyJob(order, cursor, target, save, store=store)


def due() -> list[str]:
    """Transfers that nobody has looked at for a while, paused ones whose trouble may have passed among them."""
    rows = Transfer.objects.filter(next_attempt_at__lte=timezone.now())
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def advance(transfer_id: str) -> None:
    """Wake a worker for it. Calling it twice is harmless: the lease lets one in."""
    enqueue(SLICE, transfer_id=transfer_id)


def work(transfer_id: str) -> None:
    """One slice. Calling it twice, or from two workers, moves once."""
    transfer = Transfer.objects.select_related(*_RELATED).filter(pk=transfer_id).first()
    if transfer is None or not _is_due(transfer):
        return
    if transfer.state == State.PAUSED and not go_on(transfer, "tried again"):
        return
    if not slices.take_lease(transfer):
        return
    if transfer.state in FINISHED:
        _clean(transfer)
        return
    again = False
    try:
        again = _slice(transfer)
    finally:
        slices.give_lease_back(transfer, again=again)
    if again:
        enqueue(SLICE, transfer_id=transfer.pk)


def _is_due(transfer: Transfer) -> bool:
    """One at work may be taken whenever nobody holds it; one that waits, or has ended, only when its time has come."""
    now = timezone.now()
    if transfer.state in STEPS:
        return transfer.lease_expires_at is None or transfer.lease_expires_at <= now
    return transfer.next_attempt_at is not None and transfer.next_attempt_at <= now


def _slice(transfer: Transfer) -> bool:
    """Step after step until the time is over; whether another slice is needed."""
    move = Move(transfer)
    while transfer.state in STEPS:
        try:
            STEPS[transfer.state](move)
        except slices.SliceEnded:
            return True
        except Cancelled:
            return False
        except CopyTrouble as trouble:
            return _meet(move, trouble)
        except ApplicationError as error:
            return _fail(transfer, "conflict", error.detail)
    return False


# -- trouble -----------------------------------------------------------------------------------------------------------
def _meet(move: Move, trouble: CopyTrouble) -> bool:
    transfer = move.transfer
    slices.save_cursor(transfer, move.cursor)
    if trouble.code == "proof_failed" and transfer.proof_attempts + 1 < MAX_PROOFS:
        return _copy_again(transfer, str(trouble))
    if trouble.code == "copy_lost":
        slices.forget_cursor(transfer)
        return _copy_again(transfer, str(trouble))
    if trouble.code == "source_damaged":
        _mark_damage(transfer, trouble)
    if trouble.may_pass and transfer.attempts + 1 < MAX_ATTEMPTS:
        return _wait(transfer, trouble)
    return _fail(transfer, trouble.code, str(trouble))


def _copy_again(transfer: Transfer, why: str) -> bool:
    back = State.PLANNED if not slices.load_cursor(transfer).is_surveyed else State.COPYING
    return transition(
        transfer,
        old=(State.PROVING, State.SWITCHING, State.COPYING),
        new=back,
        reason=why,
        problem=why,
        problem_code="proof_failed",
        proof_attempts=transfer.proof_attempts + 1,
    )


def _wait(transfer: Transfer, trouble: CopyTrouble) -> bool:
    """Pause until it may have passed; what was copied stays."""
    wait = min(_FIRST_WAIT * 2 ** min(transfer.attempts, 10), _LONGEST_WAIT)
    transition(
        transfer,
        old=tuple(STEPS),
        new=State.PAUSED,
        reason=str(trouble),
        resume_to=transfer.state,
        problem=str(trouble),
        problem_code=trouble.code,
        attempts=transfer.attempts + 1,
        next_attempt_at=timezone.now() + wait,
    )
    announce(f"transfer:{transfer.pk}")
    return False


@transaction.atomic
def _fail(transfer: Transfer, code: str, why: str) -> bool:
    """End it. What it had copied is removed by a further slice, which needs the cursor until then."""
    log.warning("transfer %s failed: %s", transfer.pk, why)
    transition(
        transfer,
        old=tuple(STEPS),
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


def _clean(transfer: Transfer) -> None:
    """Remove the partial copy of one that failed or was cancelled; tried until it works."""
    job = job_of(transfer, slices.load_cursor(transfer))
    wait = timezone.now() + _LONGEST_WAIT
    fields: dict[str, Any] = {"lease_expires_at": None, "lease_token": ""}
    try:
        job.discard()
    except CopyTrouble as trouble:
        log.warning("what transfer %s left at %s is still there: %s", transfer.pk, transfer.target_path, trouble)
        Transfer.objects.filter(pk=transfer.pk).update(next_attempt_at=wait, **fields)
        return
    with transaction.atomic():
        Transfer.objects.filter(pk=transfer.pk).update(next_attempt_at=None, is_clean=True, **fields)
        slices.forget_cursor(transfer)
