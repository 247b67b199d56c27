"""Carrying a repair on: at most half a minute at a time, by whatever worker; each step is idempotent.

surveying -> writing -> proving -> done. What is bad is found by reading, written from a copy of which each chunk is
compared first, and the whole is read again before anybody is told that it is good.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from muster_agent.formats.base import ShardMap
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import BucketPlace, CheckpointNotFound, CheckpointPlace, place_at
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.copy_source import require_whole
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.jobs.repair import GoodCopy, RepairCursor, RepairJob, RepairTarget
from muster_agent.jobs.repair_posix import PosixRepair
from muster_agent.jobs.repair_s3 import S3Repair
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import VerifyBody

from apps.audits.models import Repair
from apps.audits.repairs import OWNER_KIND, SLICE, UNFINISHED, end
from apps.checkpoints.arrivals import record_arrival
from apps.checkpoints.evidence import clear_damage, mark_damage
from apps.checkpoints.manifests import load_manifest
from apps.checkpoints.models import Placement
from apps.core import slices
from apps.core.dispatch import enqueue
from apps.core.errors import ApplicationError
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.transfers.reach import why_led_out
from apps.transfers.stores import store_for

log = logging.getLogger(__name__)
State = Repair.State
MAX_ATTEMPTS = 20
_WAIT = timedelta(seconds=30)
_RELATED = ("placement__tier__cluster", "placement__checkpoint__run", "source__tier", "manifest")


def work(repair_id: str) -> None:
    """One slice. Calling it twice, or from two workers, repairs once."""
    repair = Repair.objects.select_related(*_RELATED).filter(pk=repair_id).first()
    if repair is None or not slices.take_lease(repair, state__in=UNFINISHED):
        return
    again = False
    try:
        again = _slice(repair)
    finally:
        slices.give_lease_back(repair, again=again)
    if again:
        enqueue(SLICE, repair_id=repair.pk)


def _slice(repair: Repair) -> bool:
    """Step after step until the time is over; whether another slice is needed at once."""
    ends_at = time.monotonic() + slices.SLICE_SECONDS
    try:
        work = Work(repair)
        while repair.state in UNFINISHED:
            try:
                work.step(slices.StepControl())
            except slices.StepEnded:
                work.save()
                if time.monotonic() > ends_at:
                    return True
    except Cancelled:
        return False
    except CopyTrouble as trouble:
        return _meet(repair, trouble)
    except (CheckpointNotFound, RootUnreadable) as error:
        return _meet(repair, CopyTrouble("target_unreachable", str(error)))
    except ApplicationError as error:
        end(repair, State.FAILED, error.detail, "conflict")
    return False


class Work:
    """One slice of one repair. Raises CopyTrouble, and Cancelled where nobody wants it any more."""

    def __init__(self, repair: Repair) -> None:
        placement, source = repair.placement, repair.source
        if source is None or repair.manifest is None:
            raise CopyTrouble("source_changed", "the copy to repair from, or the seal, is not known any more")
        for copy in (placement, source):
            if told := why_led_out(copy.path):
                raise CopyTrouble("out_of_reach", told)
        self.repair = repair
        self.cursor = slices.load_cursor(repair.pk, RepairCursor)
        manifest, store = load_manifest(repair.manifest), store_for(placement.path, placement.tier.store)
        place = _place(placement)
        good = GoodCopy(_place(source), manifest, None)
        in_bucket = store is not None and isinstance(place, BucketPlace)
        target: RepairTarget = S3Repair(place, store) if in_bucket else PosixRepair()  # type: ignore[arg-type]
        self._job = RepairJob(place, manifest, good, target, self.cursor, self.save)

    def save(self) -> None:
        """Keep how far it is. Raises Cancelled where it was cancelled or taken over: nothing may be written then."""
        repair = self.repair
        if not slices.is_mine(repair, state=repair.state):
            raise Cancelled("the repair was cancelled or taken over")
        slices.save_cursor(repair.pk, self.cursor)
        read = max(self.cursor.survey.read_bytes, self.cursor.proof.read_bytes)
        Repair.objects.filter(pk=repair.pk).update(read_bytes=read, written_bytes=self.cursor.written_bytes)
        announce(f"repair:{repair.pk}")

    def step(self, control: JobControl) -> None:
        """What the state asks for, then the next state."""
        _STEPS[self.repair.state](self, control)

    def survey(self, control: JobControl) -> None:
        self._require_proven_source()
        self._job.survey(control)
        files, chunks = len(self.cursor.files), self.cursor.bad_chunks
        self._to(State.WRITING, file_count=files, chunk_count=chunks, started_at=self.repair.created_at)

    def _require_proven_source(self) -> None:
        source = self.repair.source
        assert source is not None
        source.refresh_from_db(fields=["status", "damaged_at"])
        if source.status != Placement.Status.COMPLETE or source.damaged_at is not None:
            raise CopyTrouble("source_damaged", f"the copy to repair from, {source.path}, is {source.status} now")

    def write(self, control: JobControl) -> None:
        self._job.write(control)
        self._to(State.PROVING)

    def prove(self, control: JobControl) -> None:
        began_at = timezone.now()
        body = self._job.prove(control)
        placement = self.repair.placement
        shard_map = require_whole(placement.path, store_for(placement.path, placement.tier.store))
        self._record(body, shard_map, self.cursor.manifest, began_at)
        failpoint("repair.recorded")

    @transaction.atomic
    def _record(self, body: VerifyBody, shard_map: ShardMap, manifest: Manifest | None, began_at: object) -> None:
        repair, placement = self.repair, self.repair.placement
        if not slices.is_mine(repair, state=State.PROVING):
            raise Cancelled("the repair was cancelled or taken over")
        assert repair.manifest is not None
        made = record_arrival(
            checkpoint=placement.checkpoint,
            tier=placement.tier,
            shard_map=shard_map,
            manifest=manifest or load_manifest(repair.manifest),
            source_kind=OWNER_KIND,
            source_id=repair.pk,
            detail={"from": repair.source_id, "written_bytes": self.cursor.written_bytes, "read": body.read_xxh3_128},
        )
        clear_damage(placement=made, found_before=timezone.now(), actor=f"repair:{repair.pk}")
        read, written = body.checked_bytes, self.cursor.written_bytes
        end(repair, State.DONE, read_bytes=read, written_bytes=written)

    def _to(self, state: str, **fields: object) -> None:
        slices.save_cursor(self.repair.pk, self.cursor)
        if not transition(self.repair, old=self.repair.state, new=state, **fields):  # type: ignore[arg-type]
            raise Cancelled("the repair was cancelled or taken over")
        announce(f"repair:{self.repair.pk}")


_STEPS: dict[str, Callable[[Work, JobControl], None]] = {
    State.SURVEYING: Work.survey,
    State.WRITING: Work.write,
    State.PROVING: Work.prove,
}


def _place(copy: Placement) -> CheckpointPlace:
    place = place_at(copy.path, store_for(copy.path, copy.tier.store))
    place.require()
    return place


def _meet(repair: Repair, trouble: CopyTrouble) -> bool:
    """Wait for trouble that may pass; end it for any other. What was written stays: it is as it was sealed."""
    if trouble.code == "source_damaged" and repair.source is not None and trouble.findings:
        mark_damage(
            placement=repair.source,
            findings=trouble.findings,
            source_kind=OWNER_KIND,
            source_id=repair.pk,
            fingerprint=repair.source.fingerprint,
        )
    if trouble.may_pass and repair.attempts + 1 < MAX_ATTEMPTS:
        wait = timezone.now() + _WAIT
        Repair.objects.filter(pk=repair.pk, state__in=UNFINISHED).update(
            attempts=repair.attempts + 1, problem=str(trouble), problem_code=trouble.code, next_attempt_at=wait
        )
        return False
    log.warning("repair %s failed: %s", repair.pk, trouble)
    end(repair, State.FAILED, str(trouble), trouble.code)
    return False
