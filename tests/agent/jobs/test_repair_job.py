"""Rewriting bad chunks in files: every kind of damage, and nothing where the good copy is not good."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from muster_agent.jobs.checkpoint_place import place_at
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.repair import GoodCopy, RepairCursor, RepairJob
from muster_agent.jobs.repair_posix import PosixRepair
from muster_agent.jobs.repair_s3 import parts_of
from muster_agent.jobs.verify import verify
from muster_agent.manifest.model import CHUNK_BYTES, Manifest

from tests.agent.jobs.test_verify_job import delete, empty, extra_bytes, flip, overwrite, sealed, truncate, zero_block

SHARD = "rank-00001-of-00004.safetensors"


def two_copies(tmp_path: Path) -> tuple[Path, Path, Manifest]:
    folder, manifest = sealed(tmp_path)
    other = tmp_path / "other" / folder.name
    shutil.copytree(folder, other)
    return folder, other, manifest


def repaired(bad: Path, good: Path, manifest: Manifest) -> RepairCursor:
    cursor, place = RepairCursor(), place_at(str(bad))
    job = RepairJob(place, manifest, GoodCopy(place_at(str(good)), manifest, None), PosixRepair(), cursor, lambda: None)
    job.survey(JobControl())
    job.write(JobControl())
    assert job.prove(JobControl()).verified is True
    return cursor


def keep_time(shard: Path, damage: Callable[..., object]) -> None:
    before = shard.stat()
    damage(shard, random.Random(3))
    if shard.exists():
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("damage", [flip, zero_block, truncate, empty, extra_bytes, delete])
def test_every_kind_of_damage_is_undone_by_rewriting_only_what_is_bad(
    tmp_path: Path, damage: Callable[..., object]
) -> None:
    bad, good, manifest = two_copies(tmp_path)
    keep_time(bad / SHARD, damage)
    inode = (bad / SHARD).stat().st_ino if damage is not delete else None
    cursor = repaired(bad, good, manifest)
    assert (bad / SHARD).read_bytes() == (good / SHARD).read_bytes()
    sealed_shard = next(one for one in manifest.shards if one.path == SHARD)
    assert (bad / SHARD).stat().st_mtime_ns == sealed_shard.mtime_ns, "so that the seal speaks for it again"
    assert inode in (None, (bad / SHARD).stat().st_ino)
    assert verify(str(bad), manifest).verified is True
    if damage is flip:
        assert cursor.written_bytes <= CHUNK_BYTES
    if damage is extra_bytes:
        assert cursor.written_bytes == 0


def test_nothing_is_written_where_the_good_copy_is_not_what_was_sealed(tmp_path: Path) -> None:
    bad, good, manifest = two_copies(tmp_path)
    overwrite(bad / SHARD, 5000, b"\x01\x02")
    overwrite(good / SHARD, 6000, b"\x03\x04")
    before = (bad / SHARD).read_bytes()
    with pytest.raises(CopyTrouble, match="not what was sealed either") as refused:
        repaired(bad, good, manifest)
    assert refused.value.code == "source_damaged" and (bad / SHARD).read_bytes() == before


def test_a_step_saved_again_is_not_overwritten(tmp_path: Path) -> None:
    bad, good, manifest = two_copies(tmp_path)
    flip(bad / SHARD, random.Random(1))
    os.utime(bad / SHARD)
    before = (bad / SHARD).read_bytes()
    with pytest.raises(CopyTrouble, match="scan its tier") as refused:
        repaired(bad, good, manifest)
    assert refused.value.code == "target_changed" and (bad / SHARD).read_bytes() == before


def test_a_file_that_changed_after_the_survey_is_left_alone(tmp_path: Path) -> None:
    bad, good, manifest = two_copies(tmp_path)
    flip(bad / SHARD, random.Random(1))
    cursor, place = RepairCursor(), place_at(str(bad))
    source = GoodCopy(place_at(str(good)), manifest, None)
    job = RepairJob(place, manifest, source, PosixRepair(), cursor, lambda: None)
    job.survey(JobControl())
    (bad / SHARD).write_bytes(b"a new save")
    with pytest.raises(CopyTrouble, match="changed since its damage was found"):
        job.write(JobControl())
    assert (bad / SHARD).read_bytes() == b"a new save"


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    bad, good, manifest = two_copies(tmp_path)
    flip(bad / SHARD, random.Random(1))
    elsewhere = tmp_path / "elsewhere.safetensors"
    shutil.move(bad / SHARD, elsewhere)
    (bad / SHARD).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    with pytest.raises(CopyTrouble, match="is a link"):
        repaired(bad, good, manifest)
    assert elsewhere.read_bytes() == before


@pytest.mark.parametrize("seed", range(200))
def test_the_parts_of_an_object_are_such_as_a_store_takes(seed: int) -> None:
    """Every chunk once and in order, every bad one sent, and no part below 5 MiB but the last."""
    source = random.Random(seed)
    count = source.choice((1, 2, 3, 7, 40, 4000))
    bad = sorted(source.sample(range(count), source.randint(1, min(count, 30))))
    chunk_bytes = source.choice((4096, CHUNK_BYTES, 8 * CHUNK_BYTES))
    parts = list(parts_of(count, bad, chunk_bytes))
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])] and parts[-1].end == count
    assert not any(part.is_good and part.begin <= index < part.end for part in parts for index in bad)
    assert all((part.end - part.begin) * chunk_bytes >= 5 * 1024 * 1024 for part in parts[:-1])
    assert all(part.end > part.begin for part in parts) and len(parts) <= 10_000
