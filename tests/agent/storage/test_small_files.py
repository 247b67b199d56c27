"""Manifests and verdicts on a file system: whole or not at all, and nothing of a killed process stays for good."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from agent.checkpoint_factory import write_checkpoint
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy import CopyJob
from muster_agent.jobs.copy_posix import PosixTarget
from muster_agent.protocol.copies import CopyCursor, CopyOrder
from muster_agent.storage.small_files import POSIX_FILES

HOUR_SECONDS = 3600


def half_written(folder: Path, *, age_seconds: float, name: str = ".muster-a1b2c3_d.tmp") -> Path:
    left = folder / name
    left.write_bytes(b'{"half')
    os.utime(left, (time.time() - age_seconds,) * 2)
    return left


def write(folder: Path) -> None:
    POSIX_FILES.replace(str(folder / ".muster-verify.json"), b"{}", mode_like=str(folder))


def test_what_a_killed_process_left_is_cleared_by_the_next_that_writes_there(tmp_path: Path) -> None:
    left = half_written(tmp_path, age_seconds=2 * HOUR_SECONDS)
    write(tmp_path)
    assert not left.exists() and (tmp_path / ".muster-verify.json").read_bytes() == b"{}"


def test_one_that_somebody_may_be_writing_now_stays(tmp_path: Path) -> None:
    left = half_written(tmp_path, age_seconds=60)
    write(tmp_path)
    assert left.exists()


@pytest.mark.parametrize(
    "name", [".muster-notes.tmp", "muster-a1b2c3_d.tmp", ".muster-A1B2C3_D.tmp", ".muster-a1b2c3_d.tmp.keep"]
)
def test_other_peoples_files_stay_whatever_their_age(tmp_path: Path, name: str) -> None:
    left = half_written(tmp_path, age_seconds=1000 * HOUR_SECONDS, name=name)
    write(tmp_path)
    assert left.exists()


def test_a_link_of_such_a_name_is_not_followed_and_stays(tmp_path: Path) -> None:
    target = half_written(tmp_path, age_seconds=2 * HOUR_SECONDS, name="precious")
    link = tmp_path / ".muster-a1b2c3_d.tmp"
    link.symlink_to(target)
    write(tmp_path)
    assert link.is_symlink() and target.exists()


def test_a_copy_leaves_none_in_its_place_however_young(tmp_path: Path) -> None:
    """A worker was killed while it wrote the manifest into the stage, which becomes the copy."""
    source = write_checkpoint(tmp_path / "hot", 100, world_size=2, rank_bytes=100_000)
    cold = tmp_path / "cold"
    cold.mkdir()
    order = CopyOrder(
        source=str(source),
        source_root=str(tmp_path / "hot"),
        target=str(cold / source.name),
        target_root=str(cold),
        tag="t",
    )
    job = CopyJob(order, CopyCursor(), PosixTarget(order))
    job.look()
    job.survey()
    job.copy(JobControl())
    job.prove(JobControl())
    (payload,) = (path.parent for path in cold.rglob("rank-00000*"))
    half_written(payload, age_seconds=0)
    job.switch()
    assert [path.name for path in cold.rglob(".muster-*")] == [".muster-manifest.json"]
