"""What looks unfinished is looked at twice; what takes long is read beside the rest."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from muster_agent.formats import limits, walk
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.scan_progress import ScanProgress
from muster_agent.formats.scan_reading import Reading
from muster_agent.formats.walk import inventory
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.probes.filesystem import FileSystem

from tests.agent.checkpoint_factory import write_checkpoint

DATA = Path(__file__).parents[2] / "data"
Meanwhile = Callable[[Callable[[], object]], list[float]]


@pytest.fixture
def step(tmp_path: Path) -> Path:
    """A whole checkpoint at rest for long."""
    folder = tmp_path / "run" / "step-10"
    shutil.copytree(DATA / "dcp" / "w2" / "step-10", folder)
    age(folder, 86_400)
    return folder


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Do something between the two looks instead of waiting; gives the moments until which it would have waited."""

    def prepare(act: Callable[[], object]) -> list[float]:
        waits: list[float] = []

        def wait(_self: Reading, until: float) -> None:
            waits.append(until)
            act()

        monkeypatch.setattr(Reading, "_wait", wait)
        return waits

    return prepare


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "read_file_system", lambda _path: FileSystem("nfs", True, True))


def age(folder: Path, seconds: float) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - seconds,) * 2)


def only(root: Path, settle_seconds: float = 2.0, grace_seconds: float = 600) -> ShardMap:
    (found,) = inventory(root, settle_seconds=settle_seconds, grace_seconds=grace_seconds).checkpoints
    return found


def hide_marker(step: Path) -> Callable[[], object]:
    """Take the commit marker away; what is given back puts it there again."""
    aside = step.parent.parent / "aside"
    (step / ".metadata").rename(aside)
    return lambda: aside.rename(step / ".metadata")


def test_a_marker_that_a_second_listing_shows_counts(step: Path, meanwhile: Meanwhile) -> None:
    show = hide_marker(step)
    age(step, 5)
    waits = meanwhile(show)
    assert only(step.parent).status is Status.COMPLETE
    assert len(waits) == 1


def test_storage_that_may_show_files_late_is_asked_twice_also_about_old_files(
    step: Path, meanwhile: Meanwhile, remote: None
) -> None:
    waits = meanwhile(hide_marker(step))
    assert only(step.parent).status is Status.COMPLETE
    assert len(waits) == 1


def test_an_old_unfinished_save_on_a_local_disk_is_not_waited_for(step: Path, meanwhile: Meanwhile) -> None:
    hide_marker(step)
    waits = meanwhile(lambda: None)
    assert (only(step.parent).status, waits) == (Status.INCOMPLETE, [])


def test_whole_checkpoints_are_not_waited_for_however_young(step: Path, meanwhile: Meanwhile, remote: None) -> None:
    age(step, 1)
    waits = meanwhile(lambda: None)
    assert (only(step.parent).status, waits) == (Status.COMPLETE, [])


def test_growth_between_two_looks_means_that_a_save_runs(step: Path, meanwhile: Meanwhile, remote: None) -> None:
    hide_marker(step)
    meanwhile(lambda: (step / "__9_0.distcp").write_bytes(b"PK"))
    assert only(step.parent, grace_seconds=0).status is Status.IN_PROGRESS


def test_without_growth_an_old_one_stays_incomplete_and_a_young_one_in_progress(
    step: Path, meanwhile: Meanwhile, remote: None
) -> None:
    hide_marker(step)
    meanwhile(lambda: None)
    assert only(step.parent).status is Status.INCOMPLETE
    age(step, 5)
    assert only(step.parent).status is Status.IN_PROGRESS


def test_one_that_is_removed_between_two_looks_is_not_listed(step: Path, meanwhile: Meanwhile, remote: None) -> None:
    hide_marker(step)
    meanwhile(lambda: shutil.rmtree(step))
    assert inventory(step.parent, settle_seconds=2).checkpoints == ()


def test_nothing_is_looked_at_twice_unless_asked(step: Path, meanwhile: Meanwhile, remote: None) -> None:
    waits = meanwhile(hide_marker(step))
    assert (only(step.parent, settle_seconds=0).status, waits) == (Status.INCOMPLETE, [])


def test_the_wait_is_counted_from_the_first_look_and_ends_when_told(step: Path) -> None:
    hide_marker(step)
    age(step, 1)
    began = time.monotonic()
    assert only(step.parent, settle_seconds=0.3).status is Status.IN_PROGRESS
    assert 0.3 <= time.monotonic() - began < 5
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        inventory(step.parent, settle_seconds=60, control=JobControl(cancel=stop))
    assert time.monotonic() - began < 1.5


def test_files_ahead_of_a_local_clock_are_young_not_old(step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "storage_clock", lambda _place: walk.Clock(time.time(), walk.LOCAL))
    hide_marker(step)
    age(step, -7200)
    assert only(step.parent, settle_seconds=0).status is Status.IN_PROGRESS


def test_large_metadata_is_read_beside_the_others(step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first in order is the large one; the small ones come before it."""
    write_checkpoint(step.parent, 5, rank_bytes=300, world_size=2)
    expected = [one.step for one in inventory(step.parent).checkpoints]
    monkeypatch.setattr(limits._Here, "pickle_bytes", 10)
    order: list[int] = []
    monkeypatch.setattr(ScanProgress, "done", lambda _self: order.append(len(order)))
    found = inventory(step.parent).checkpoints
    assert ([one.step for one in found], len(order)) == (expected, 2)
    assert found[0].status is Status.COMPLETE


def test_a_scan_that_waits_for_large_metadata_stops_when_told(step: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits._Here, "pickle_bytes", 10)
    monkeypatch.setattr("muster_agent.formats.checkpoint.Later.wait", lambda _self, seconds: time.sleep(seconds))
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    with pytest.raises(Cancelled):
        inventory(step.parent, control=JobControl(cancel=stop))
    assert time.monotonic() - began < 1.5
