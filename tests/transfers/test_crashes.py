"""`kill -9` of the worker at every step boundary and at random moments: a second worker ends with exactly one verified
copy, nothing half made is left, and at no moment was a byte only in one unproven place."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone
from muster_agent.jobs.failpoints import POINTS, VARIABLE
from muster_agent.jobs.verify import verify
from muster_agent.manifest.beside import read_beside

from apps.checkpoints.models import Placement
from apps.transfers import moving
from apps.transfers.models import Transfer, TransferCursor
from apps.transfers.services import request_transfer
from tests.transfers.conftest import Tiers, drive

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
Files = dict[str, bytes]


def in_a_worker(work: Callable[[], None], *, failpoint: str = "", kill_after_seconds: float | None = None) -> int:
    """Run `work` in a process of its own with its own connections, and kill that where told; gives the signal that
    ended it, 0 where it ended by itself."""
    _drop_connections()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.environ[VARIABLE] = failpoint
            work()
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(status)
    if kill_after_seconds is not None:
        time.sleep(kill_after_seconds)
        os.kill(pid, signal.SIGKILL)
    _, ended = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(ended) <= 0, "the worker failed by itself"
    return -os.waitstatus_to_exitcode(ended)


def _drop_connections() -> None:
    """A child must not share the parent's connection to the database."""
    connection.close()
    if hasattr(connection, "close_pool"):
        connection.close_pool()


def bytes_of(folder: Path) -> Files:
    if not folder.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".muster")}


def leftovers(tiers: Tiers) -> list[str]:
    roots = (Path(tiers.hot.uri), Path(tiers.cold.uri))
    return [path.name for root in roots for path in root.rglob(".muster-*") if path.name != ".muster-manifest.json"]


def let_the_lease_end() -> None:
    Transfer.objects.update(lease_expires_at=timezone.now())


def require_nothing_lost(tiers: Tiers, before: Files) -> None:
    """Either the source is whole under its name, or a proven copy is in its place."""
    if bytes_of(tiers.path(10)) == before:
        return
    assert bytes_of(tiers.cold_path(10)) == before
    manifest = read_beside(str(tiers.cold_path(10)))
    assert manifest is not None and verify(str(tiers.cold_path(10)), manifest).verified is True


def require_one_copy(tiers: Tiers, before: Files) -> None:
    assert bytes_of(tiers.cold_path(10)) == before and not tiers.path(10).exists()
    assert leftovers(tiers) == []
    there = Placement.objects.filter(checkpoint__step=10).exclude(status="missing")
    assert [(row.tier_id, row.trust) for row in there] == [(tiers.cold.pk, "verified")]
    assert not TransferCursor.objects.exists()


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_a_boundary_loses_nothing(tiers: Tiers, point: str, sealed: bool) -> None:
    tiers.save(10, sealed=sealed)
    tiers.save(20)
    before = bytes_of(tiers.path(10))
    transfer = request_transfer(placement=tiers.placement(10), kind="move", target_tier=tiers.cold, actor="olga")
    assert in_a_worker(lambda: moving.work(transfer.pk), failpoint=point) == signal.SIGKILL
    require_nothing_lost(tiers, before)
    transfer.refresh_from_db()
    assert transfer.state not in ("done", "failed")
    moving.work(transfer.pk)  # its lease still holds: nobody comes in
    require_nothing_lost(tiers, before)
    let_the_lease_end()
    assert transfer.pk in moving.due() or transfer.next_attempt_at is not None
    assert drive(transfer).state == "done", transfer.problem
    require_one_copy(tiers, before)


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("retire.")])
def test_so_does_one_that_only_removes(tiers: Tiers, point: str) -> None:
    tiers.save(10, 20)
    before = bytes_of(tiers.path(10))
    source = tiers.placement(10)
    drive(request_transfer(placement=source, kind="copy", target_tier=tiers.cold, actor="olga"))
    transfer = request_transfer(placement=source, kind="retire", actor="olga")
    assert in_a_worker(lambda: moving.work(transfer.pk), failpoint=point) == signal.SIGKILL
    require_nothing_lost(tiers, before)
    let_the_lease_end()
    assert drive(transfer).state == "done"
    require_one_copy(tiers, before)


@pytest.mark.parametrize("seed", range(int(os.environ.get("MUSTER_CHAOS_KILLS", "10"))))
def test_a_worker_killed_at_random_moments_loses_nothing(tiers: Tiers, seed: int) -> None:
    """Up to five kills of one transfer; then it is left alone."""
    tiers.save(10, rank_bytes=6_000_000)
    tiers.save(20)
    before, source = bytes_of(tiers.path(10)), random.Random(seed)
    transfer = request_transfer(placement=tiers.placement(10), kind="move", target_tier=tiers.cold, actor="olga")
    for _ in range(5):
        in_a_worker(lambda: moving.work(transfer.pk), kill_after_seconds=source.uniform(0.0, 0.25))
        require_nothing_lost(tiers, before)
        let_the_lease_end()
        transfer.refresh_from_db()
        if transfer.state == "done":
            break
    assert drive(transfer).state == "done", transfer.problem
    require_one_copy(tiers, before)
