"""Carrying a transfer on: at most half a minute at a time, by whatever worker; each step is idempotent.

planned -> copying -> proving -> switching -> retiring -> done. The row says how far it is; what really lies on the
tiers is looked at again wherever something is to be removed.
"""

from __future__ import annotations

from collections.abc import Callable

from django.utils import timezone
from muster_agent.formats.base import ShardMap
from muster_agent.jobs.control import Cancelled
from muster_agent.jobs.copy_removal import Stays, remove
from muster_agent.jobs.copy_steps import STEPS, copy_at, job_of
from muster_agent.jobs.copy_trouble import CopyTrouble

from apps.core.dispatch import enqueue
from apps.core.errors import ApplicationError
from apps.core.slices import give_lease_back
from apps.transfers import at_agents, outcomes, slices
from apps.transfers.facts import FINISHED
from apps.transfers.models import Transfer
from apps.transfers.orders import order_of, removal_of
from apps.transfers.outcomes import UNDER_WAY
from apps.transfers.reach import why_led_out
from apps.transfers.services import COPYING_KINDS, SLICE, go_on
from apps.transfers.slices import SliceControl
from apps.transfers.stores import store_for

State = Transfer.State
_TIMED = {State.COPYING: "copy_seconds", State.PROVING: "prove_seconds"}
_RELATED = ("source__tier", "target_tier__cluster", "target__tier", "checkpoint__run", "manifest", "cluster", "agent")


def due() -> list[str]:
    """Transfers that nobody has looked at for a while, paused ones whose trouble may have passed among them."""
    rows = Transfer.objects.filter(slices.is_time(timezone.now()))
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
    again = False
    try:
        again = at_agents.work(transfer) if transfer.agent_id is not None else _work_here(transfer)
    finally:
        give_lease_back(transfer, again=again)
    if again:
        enqueue(SLICE, transfer_id=transfer.pk)


def _is_due(transfer: Transfer) -> bool:
    """One at work may be taken whenever nobody holds it; one that waits, or has ended, only when its time has come."""
    mine, now = Transfer.objects.filter(pk=transfer.pk), timezone.now()
    if transfer.state in UNDER_WAY or (transfer.state in FINISHED and transfer.task):
        return mine.filter(slices.is_free(now)).exists()
    return mine.filter(slices.is_time(now)).exists()


def _work_here(transfer: Transfer) -> bool:
    """Step after step until the time is over; whether another slice is needed."""
    if transfer.state in FINISHED:
        _clean(transfer)
        return False
    move = Move(transfer)
    while transfer.state in UNDER_WAY:
        try:
            move.step()
        except slices.SliceEnded:
            return True
        except Cancelled:
            return False
        except Stays as why:
            outcomes.stays(transfer, str(why))
        except CopyTrouble as trouble:
            return outcomes.met(transfer, move.cursor, trouble)
        except ApplicationError as error:
            return outcomes.fail(transfer, "conflict", error.detail)
    return False


def _clean(transfer: Transfer) -> None:
    """Remove the partial copy of one that failed or was cancelled."""
    try:
        job_of(order_of(transfer), slices.load_cursor(transfer), store_for).discard()
    except CopyTrouble as trouble:
        outcomes.not_cleaned(transfer, str(trouble))
    else:
        outcomes.cleaned(transfer)


class Move:
    """One slice of one transfer, by this worker."""

    def __init__(self, transfer: Transfer) -> None:
        self.transfer = transfer
        self.cursor = slices.load_cursor(transfer)
        self.control = SliceControl(transfer, self.cursor)

    def step(self) -> None:
        """What the transfer's state asks for, then the next state. Raises what the steps do."""
        transfer = self.transfer
        if transfer.state == State.PLANNED and transfer.kind not in COPYING_KINDS:
            outcomes.only_removes(transfer)
        elif transfer.state == State.RETIRING:
            self._require_reach(transfer.source.path)
            remove(removal_of(transfer, self.cursor), store_for, self.control.check)
            outcomes.ended(transfer, self.cursor)
        else:
            outcomes.ended(transfer, self.cursor, self._move())

    def _move(self) -> ShardMap | None:
        transfer = self.transfer
        self._require_reach(transfer.source.path, transfer.target_path)
        order = order_of(transfer)
        job = job_of(order, self.cursor, store_for, self._save)
        self._timed(lambda: STEPS[transfer.state](job, self.control))
        return copy_at(order, store_for) if transfer.state == State.SWITCHING else None

    def _save(self) -> None:
        slices.save_cursor(self.transfer, self.cursor)
        self.control.note()

    def _timed(self, work: Callable[[], None]) -> None:
        column, before = _TIMED.get(State(self.transfer.state)), self.control.elapsed_seconds
        try:
            work()
        finally:
            if column is not None:
                slices.add_seconds(self.transfer, column, self.control.elapsed_seconds - before)
                slices.save_cursor(self.transfer, self.cursor)

    def _require_reach(self, *paths: str) -> None:
        for path in paths:
            if told := why_led_out(path):
                raise CopyTrouble("out_of_reach", told)
