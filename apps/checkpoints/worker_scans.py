"""Scans by the workers themselves, of folders that are mounted on their hosts and of buckets: in slices, under a lease.

The listing is the very job that agents run. A slice ends after half a minute; what it has read is kept, so that the
next one, in whatever worker, goes on from there. The keys of a bucket are listed anew in each slice.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DataError
from django.utils import timezone
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import is_bucket
from muster_agent.formats.walk import RootUnreadable
from muster_agent.jobs.control import Cancelled
from muster_agent.jobs.inventory import run_inventory
from muster_agent.protocol.wire import InventoryBody, InventoryParams
from muster_agent.storage.s3_client import S3Unavailable, connect_at

from apps.checkpoints import scans
from apps.checkpoints.models import InventoryScan
from apps.checkpoints.scan_memory import remembered
from apps.checkpoints.scan_progress import COUNTS, counted
from apps.checkpoints.scan_results import take_in
from apps.checkpoints.standing import ROOT_UNREADABLE
from apps.core import slices
from apps.core.dispatch import enqueue
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.storage.paths import contains

log = logging.getLogger(__name__)
NOTE_SECONDS = 1.0
"""How often the row is told how far it is, and asked whether it was cancelled."""
RECORD_SECONDS = 15.0
"""A slice that took longer leaves recording to the next one, which has little left to read."""
MAX_IDLE_SLICES = 4
NOT_OPEN = "worker_roots"
TOO_SLOW = "slice_too_short"
_TOO_SLOW = (
    f"{MAX_IDLE_SLICES} slices of {settings.SCAN_SLICE_SECONDS:.0f} s brought nothing new: the folder, or one "
    "checkpoint in it, takes longer than a worker may work at a time. Have agents scan this tier."
)


class SliceControl(slices.StepControl):
    """Ends the work when the slice is over, or the scan was cancelled or taken over, and notes its progress in the row.
    A listing may read in forks of this process, which must not touch the database's connection: they note nothing."""

    def __init__(self, scan: InventoryScan, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(settings.SCAN_SLICE_SECONDS, monotonic, progress=self._moved, tell=self._told)
        self._scan_id, self._lease_token = scan.pk, scan.lease_token
        self._process_id = os.getpid()
        self._noted_at = self._began_at
        self._latest = dict(scan.progress)

    def check(self) -> None:
        now = self._monotonic()
        if now - self._noted_at >= NOTE_SECONDS and os.getpid() == self._process_id:
            self._noted_at = now
            self._note_progress()
        super().check()

    def note(self, text: str) -> None:
        self._latest["note"] = text[:500]

    def _moved(self, _phase: str, done: int, total: int) -> None:
        self._latest |= counted(done, total, time.time())

    def _told(self, counts: Mapping[str, int]) -> None:
        self._latest |= {name: counts[name] for name in COUNTS if name in counts}

    def _note_progress(self) -> None:
        mine = InventoryScan.objects.filter(pk=self._scan_id, lease_token=self._lease_token)
        if not mine.filter(state=InventoryScan.State.RUNNING).update(progress=self._latest):
            self.cancel()
        announce(f"scan:{self._scan_id}")


def work(scan_id: str) -> None:
    """One slice. Calling it twice, or from two workers, lists once."""
    scan = InventoryScan.objects.select_related("tier__cluster").filter(pk=scan_id, agent=None).first()
    if scan is None or scan.state not in scans.UNFINISHED or not scans.lease(scan):
        return
    if transition(scan, old=InventoryScan.State.QUEUED, new=InventoryScan.State.RUNNING, started_at=timezone.now()):
        announce(f"scan:{scan.pk}")
    scan.refresh_from_db()
    refusal = _refusal(scan.root)
    if refusal:
        scans.end(scan, InventoryScan.State.FAILED, refusal, error_code=NOT_OPEN)
    elif not _count_slice(scan):
        scans.end(scan, InventoryScan.State.FAILED, _TOO_SLOW, error_code=TOO_SLOW)
    else:
        _list(scan, scan.started_at or scan.created_at)


def _refusal(root: str) -> str:
    """Why the workers may not list the root; its links are followed first."""
    if is_bucket(root):
        refused = not any(contains(allowed, root) for allowed in settings.WORKER_ROOTS)
        return f"workers may list only below MUSTER_WORKER_ROOTS, and {root} is in none of them" * refused
    real = os.path.realpath(root)
    if any(contains(os.path.realpath(allowed), real) for allowed in settings.WORKER_ROOTS):
        return ""
    led = "" if real == root else f" (it leads to {real})"
    return f"workers may list only below MUSTER_WORKER_ROOTS, and {root}{led} is in none of them"


def _count_slice(scan: InventoryScan) -> bool:
    """Whether this slice may begin: a worker that died in one, or was too slow, has brought nothing new."""
    idle = int(scan.progress.get("idle_slices", 0)) + 1
    scan.progress = {**scan.progress, "idle_slices": idle}
    InventoryScan.objects.filter(pk=scan.pk).update(progress=scan.progress)
    return idle <= MAX_IDLE_SLICES


def _list(scan: InventoryScan, listed_at: datetime) -> None:
    control = SliceControl(scan)
    try:
        with remembered(scan.tier) as memory:
            params, store = InventoryParams(root=scan.root), _store(scan)
            body = run_inventory(params, control, cache_file=memory.file, store=store, note=control.note)
    except slices.StepEnded:
        _go_on(scan, has_grown=memory.has_grown)
    except Cancelled:
        log.info("scan %s was cancelled", scan.pk)
    except RootUnreadable as error:
        scans.end(scan, InventoryScan.State.FAILED, f"{error}; {error.hint}", error_code=ROOT_UNREADABLE)
    else:
        if memory.has_grown and control.elapsed_seconds > RECORD_SECONDS:
            _go_on(scan, has_grown=True)
        else:
            _record(scan, body, listed_at)


def _store(scan: InventoryScan) -> ObjectStore | None:
    """For a bucket, at the tier's endpoint, with the credentials of the worker's environment. Raises RootUnreadable."""
    if not is_bucket(scan.root):
        return None
    try:
        return connect_at(scan.tier.store)
    except S3Unavailable as error:
        raise RootUnreadable(scan.root, str(error), error.hint) from error


def _go_on(scan: InventoryScan, *, has_grown: bool) -> None:
    """Let any worker take the next slice."""
    fresh = InventoryScan.objects.filter(pk=scan.pk, state=InventoryScan.State.RUNNING)
    told: dict[str, Any] = fresh.values_list("progress", flat=True).first() or {}
    if has_grown:
        told["idle_slices"] = 0
    fresh.update(progress=told)
    slices.give_lease_back(scan, again=True)
    enqueue(scans.SLICE, scan_id=scan.pk)


def _record(scan: InventoryScan, body: InventoryBody, listed_at: datetime) -> None:
    try:
        fields = take_in(scan, body, listed_at)
    except DataError as error:
        log.exception("scan %s could not be recorded", scan.pk)
        scans.end(scan, InventoryScan.State.FAILED, f"the listing could not be recorded: {error}")
        return
    scans.end(scan, InventoryScan.State.FINISHED, "", **fields)
