"""Copies between mounted file systems: every byte proven, nothing half visible, resumable at any moment."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent.checkpoint_factory import write_checkpoint
from muster_agent.formats.base import Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.jobs import copy as copying
from muster_agent.jobs import copy_posix
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.copy import CopyJob, run_copy
from muster_agent.jobs.copy_posix import STAGE_PREFIX, PosixTarget
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.seal import seal
from muster_agent.jobs.verify import verify
from muster_agent.manifest.beside import read_beside
from muster_agent.manifest.model import CHUNK_BYTES, manifest_id
from muster_agent.protocol.copies import CopyCursor, CopyOrder
from muster_agent.protocol.wire import InventoryParams


class Place:
    """Two tiers with a checkpoint on the first."""

    def __init__(self, tmp_path: Path, **made: Any) -> None:
        self.hot, self.cold = tmp_path / "hot", tmp_path / "cold"
        self.hot.mkdir()
        self.cold.mkdir()
        self.source = write_checkpoint(self.hot / "llama", 100, **made)
        self.target = self.cold / "llama" / self.source.name

    def order(self, **changes: Any) -> CopyOrder:
        manifest = read_beside(str(self.source))
        fields: dict[str, Any] = {
            "source": str(self.source),
            "source_root": str(self.hot),
            "target": str(self.target),
            "target_root": str(self.cold),
            "tag": "trf_1",
            "manifest": manifest,
            **changes,
        }
        return CopyOrder(**fields)

    def copy(self, **changes: Any) -> CopyCursor:
        order = self.order(**changes)
        return run_copy(order, PosixTarget(order), JobControl())[0]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, world_size=2, rank_bytes=9_000_000)


def files_of(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".muster-")
    }


def leftovers(place: Place) -> list[Path]:
    return [path for path in place.cold.rglob("*") if path.name.startswith((STAGE_PREFIX, ".muster-retire-"))]


def trouble(call: Callable[[], Any]) -> CopyTrouble:
    with pytest.raises(CopyTrouble) as met:
        call()
    return met.value


def test_a_sealed_checkpoint_arrives_with_its_very_manifest(place: Place) -> None:
    sealed = seal(str(place.source)).manifest
    assert sealed is not None
    os.utime(place.source / "checkpoint.json", ns=(5 * 10**9, 5 * 10**9 + 7))
    cursor = place.copy(manifest=seal(str(place.source)).manifest)
    assert files_of(place.target) == files_of(place.source)
    there = read_beside(str(place.target))
    assert there is not None and there == read_beside(str(place.source))
    assert verify(str(place.target), there).verified is True
    assert cursor.proven_bytes == cursor.copied_bytes == sum(path.stat().st_size for path in place.source.glob("[!.]*"))
    assert not leftovers(place)


def test_what_was_not_sealed_is_sealed_on_its_way(place: Place) -> None:
    place.copy()
    made = read_beside(str(place.target))
    assert made is not None and made.origin == "storage"
    sealed = seal(str(place.source), write_beside=False).manifest
    assert sealed is not None
    same = {"sealed_at": "", "run": ""}
    assert msgspec.structs.replace(made, **same) == msgspec.structs.replace(sealed, **same)
    assert verify(str(place.target), made).verified is True


def test_files_that_no_format_knows_come_along(place: Place) -> None:
    (place.source / "notes").mkdir()
    (place.source / "empty").mkdir()
    (place.source / "notes" / "readme.md").write_text("why this run")
    (place.source / "nothing").write_bytes(b"")
    seal(str(place.source))
    (place.source / "notes" / "readme.md").chmod(0o640)
    place.copy()
    assert files_of(place.target) == files_of(place.source)
    assert (place.target / "empty").is_dir()


def test_a_single_file_has_its_manifest_beside_it(tmp_path: Path) -> None:
    place = Place(tmp_path)
    lone = place.hot / "lone" / "model-step-7.safetensors"
    lone.parent.mkdir()
    lone.write_bytes(next(place.source.glob("*.safetensors")).read_bytes())
    target = place.cold / "lone" / lone.name
    order = place.order(source=str(lone), target=str(target), manifest=seal(str(lone)).manifest)
    run_copy(order, PosixTarget(order), JobControl())
    assert target.read_bytes() == lone.read_bytes()
    assert sorted(path.name for path in target.parent.iterdir()) == [lone.name, lone.name + ".muster.json"]


def test_an_inventory_sees_nothing_before_the_switch(place: Place) -> None:
    order = place.order()
    job = CopyJob(order, CopyCursor(), PosixTarget(order))
    job.look()
    job.survey()
    job.copy(JobControl())
    job.prove(JobControl())
    assert run_inventory(InventoryParams(root=str(place.cold))).checkpoints == ()
    job.switch()
    (seen,) = run_inventory(InventoryParams(root=str(place.cold))).checkpoints
    assert (seen.path, seen.status, seen.step) == (str(place.target), Status.COMPLETE, 100)


class StopAfter(JobControl):
    """Stops at the n-th look."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left, self._guard = looks, threading.Lock()

    def check(self) -> None:
        with self._guard:
            self._left -= 1
            if self._left < 0:
                raise Cancelled("the slice is over")


@pytest.mark.parametrize("sealed", [True, False])
def test_a_copy_in_many_slices_is_the_same_copy(place: Place, sealed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slice is a new job with nothing but the encoded cursor, as in another process."""
    if sealed:
        seal(str(place.source))
    monkeypatch.setattr(copying, "UNIT_BYTES", 2 * CHUNK_BYTES)
    order, body, slices = place.order(threads=2), msgspec.json.encode(CopyCursor()), 0
    source = random.Random(3)
    while True:
        cursor = msgspec.json.decode(body, type=CopyCursor)
        job = CopyJob(order, cursor, PosixTarget(order))
        slices += 1
        assert slices < 300
        try:
            job.look()
            job.survey()
            job.copy(StopAfter(source.randrange(4, 9)))
            job.prove(StopAfter(source.randrange(4, 9)))
            job.switch()
            break
        except Cancelled:
            body = msgspec.json.encode(job.cursor)
    assert slices > 2
    assert files_of(place.target) == files_of(place.source)
    made = read_beside(str(place.target))
    assert made is not None and verify(str(place.target), made).verified is True
    assert made.root_xxh3_128 == seal(str(place.source), write_beside=False).manifest.root_xxh3_128  # type: ignore[union-attr]
    assert not leftovers(place)


def test_a_cursor_that_knows_too_much_is_found_out_by_the_proof(place: Place) -> None:
    """After a power loss the target may lack what the cursor says was written."""
    seal(str(place.source))
    order = place.order()
    job = CopyJob(order, CopyCursor(), PosixTarget(order))
    job.look()
    job.survey()
    job.copy(JobControl())
    staged = next(place.cold.rglob("rank-00001-of-00002.safetensors"))
    with open(staged, "r+b") as file:
        file.seek(CHUNK_BYTES + 5)
        file.write(b"\0" * 4096)
    os.truncate(next(place.cold.rglob("rank-00000-of-00002.safetensors")), 100)
    found = trouble(lambda: job.prove(JobControl()))
    assert found.code == "proof_failed" and f"rank-00001-of-00002.safetensors from byte {CHUNK_BYTES}" in str(found)
    again = CopyJob(order, msgspec.json.decode(msgspec.json.encode(job.cursor), type=CopyCursor), PosixTarget(order))
    again.copy(JobControl())
    again.prove(JobControl())
    again.switch()
    assert files_of(place.target) == files_of(place.source)


def test_damage_in_the_source_stops_the_copy_and_is_named(place: Place) -> None:
    seal(str(place.source))
    shard = place.source / "rank-00001-of-00002.safetensors"
    times = shard.stat().st_mtime_ns
    with open(shard, "r+b") as file:
        file.seek(CHUNK_BYTES + 77)
        byte = file.read(1)[0]
        file.seek(CHUNK_BYTES + 77)
        file.write(bytes([byte ^ 1]))
    os.utime(shard, ns=(times, times))
    found = trouble(place.copy)
    assert (found.code, found.may_pass) == ("source_damaged", False)
    assert (found.findings[0].code, found.findings[0].begin_byte) == ("digest_mismatch", CHUNK_BYTES)
    assert not place.target.exists()


def test_a_source_that_changes_meanwhile_is_not_taken_for_copied(place: Place) -> None:
    order = place.order()

    class Touching(PosixTarget):
        def write(self, file: Any, offset_bytes: int, data: memoryview) -> None:
            super().write(file, offset_bytes, data)
            os.utime(place.source / "checkpoint.json", ns=(1, 1))

    job = CopyJob(order, CopyCursor(), Touching(order))
    job.survey()
    assert trouble(lambda: job.copy(JobControl())).code == "source_changed"


def test_a_shard_that_goes_missing_or_shrinks_meanwhile(place: Place) -> None:
    seal(str(place.source))
    order = place.order()
    for change in (os.unlink, lambda path: os.truncate(path, 10)):
        job = CopyJob(order, CopyCursor(), PosixTarget(order))
        job.survey()
        shard = place.source / "rank-00001-of-00002.safetensors"
        data = shard.read_bytes()
        change(shard)
        assert trouble(lambda job=job: job.copy(JobControl())).code == "source_changed"
        shard.write_bytes(data)


def test_what_is_not_complete_or_grew_since_it_was_sealed_is_not_copied(place: Place) -> None:
    seal(str(place.source))
    order = place.order()
    shard = place.source / "rank-00001-of-00002.safetensors"
    data = shard.read_bytes()
    shard.unlink()
    found = trouble(lambda: run_copy(order, PosixTarget(order), JobControl()))
    assert found.code == "source_incomplete" and found.findings
    shard.write_bytes(data)
    (place.source / "checkpoint.json").write_text((place.source / "checkpoint.json").read_text() + " ")
    assert trouble(lambda: run_copy(order, PosixTarget(order), JobControl())).code == "source_changed"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "no_space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read_only"),
        (errno.ESTALE, "target_unreachable"),
        (errno.EIO, "io_error"),
    ],
)
def test_each_trouble_of_the_target_has_a_word_and_a_second_try_goes_on(
    place: Place, number: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = place.order(threads=1)
    monkeypatch.setattr(copying, "UNIT_BYTES", CHUNK_BYTES)
    real, calls = os.pwrite, []

    def full(fd: int, data: Any, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 3:
            raise OSError(number, os.strerror(number))
        return real(fd, data, offset)

    monkeypatch.setattr(copy_posix.os, "pwrite", full)
    job = CopyJob(order, CopyCursor(), PosixTarget(order))
    job.survey()
    found = trouble(lambda: job.copy(JobControl()))
    assert (found.code, found.may_pass) == (code, True)
    assert 0 < job.cursor.copied_bytes < job.cursor.total_bytes
    begun = len(calls)
    job.copy(JobControl())
    assert len(calls) - begun < 9  # nine would be all of it: what was written is not written again
    job.prove(JobControl())
    job.switch()
    assert files_of(place.target) == files_of(place.source)


def test_too_little_space_is_said_before_a_byte_is_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def small(path: Any) -> Any:
        seen = list(real(path))
        seen[4] = 1  # f_bavail
        return os.statvfs_result(seen)

    monkeypatch.setattr(copy_posix.os, "statvfs", small)
    found = trouble(place.copy)
    assert found.code == "no_space" and "are free there" in str(found)


def test_a_root_that_is_gone_or_another_one_is_no_place_to_write(place: Place) -> None:
    order = place.order()
    job = CopyJob(order, CopyCursor(), PosixTarget(order))
    job.look()
    job.survey()
    place.cold.rename(place.cold.with_name("away"))
    assert trouble(job.look).code == "target_unreachable"
    assert not place.cold.exists()
    place.cold.mkdir()  # as the empty mount point of a file system that is not mounted
    assert trouble(job.look).code == "mount_changed"
    place.hot.rename(place.hot.with_name("gone"))
    assert trouble(job.look).code == "source_unreachable"


def test_nothing_that_lies_at_the_target_is_ever_replaced(place: Place) -> None:
    place.target.mkdir(parents=True)
    (place.target / "precious").write_text("x")
    assert trouble(place.copy).code == "target_exists"
    assert (place.target / "precious").read_text() == "x"


def test_a_target_that_appears_meanwhile_is_kept(place: Place) -> None:
    order = place.order()
    job = CopyJob(order, CopyCursor(), PosixTarget(order))
    job.survey()
    job.copy(JobControl())
    job.prove(JobControl())
    place.target.mkdir()
    (place.target / "precious").write_text("x")
    assert trouble(job.switch).code == "target_exists"
    assert (place.target / "precious").read_text() == "x"
    job.discard()
    assert not leftovers(place)


def test_links_are_followed_inside_the_tier_only(place: Place, tmp_path: Path) -> None:
    shared = place.hot / "llama" / "shared.json"
    shared.write_text("{}")
    (place.source / "config.json").symlink_to(shared)
    place.copy()
    assert (place.target / "config.json").read_text() == "{}" and not (place.target / "config.json").is_symlink()
    outside = tmp_path / "outside"
    outside.write_text("secret")
    (place.source / "other.json").symlink_to(outside)
    order = place.order(target=str(place.cold / "again"))
    assert trouble(lambda: run_copy(order, PosixTarget(order), JobControl())).code == "links"
    (place.source / "other.json").unlink()
    os.mkfifo(place.source / "pipe")
    assert trouble(lambda: run_copy(order, PosixTarget(order), JobControl())).code == "special_file"


def test_optimizer_shards_can_stay_behind(tmp_path: Path) -> None:
    place = Place(tmp_path)
    folder = place.hot / "hf" / "checkpoint-5"
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.safetensors"):
        (folder / name).write_bytes(next(place.source.glob("*.safetensors")).read_bytes())
    (folder / "trainer_state.json").write_text('{"global_step": 5}')
    (folder / "config.json").write_text("{}")
    shard_map = read_checkpoint(folder)
    roles = {shard.path: shard.role.value for shard in shard_map.shards}
    manifest = seal(str(folder)).manifest
    assert manifest is not None
    order = place.order(
        source=str(folder), target=str(place.cold / "checkpoint-5"), manifest=manifest, leave_out_roles=("model",)
    )
    left = [name for name, role in roles.items() if role != "model"]
    job = CopyJob(order, CopyCursor(), PosixTarget(order))
    job.survey()
    job.copy(JobControl())
    assert job.cursor.manifest is not None
    assert sorted(shard.path for shard in job.cursor.manifest.shards) == sorted(left)
    assert manifest_id(job.cursor.manifest) != manifest_id(manifest)


def test_a_rate_too_low_for_a_block_in_a_slice_is_kept_and_the_copy_gets_on(place: Place) -> None:
    """Each slice ends in the middle of waiting for the rate."""

    class Short(JobControl):
        def __init__(self) -> None:
            super().__init__()
            self.ends_at = time.monotonic() + 0.1

        def check(self) -> None:
            if time.monotonic() > self.ends_at:
                raise Cancelled("the slice is over")

    order = place.order(max_bytes_per_second=8_000_000, threads=1)  # a block of 4 MiB takes half a second
    cursor, began, slices = CopyCursor(), time.monotonic(), 0
    while not cursor.is_closed:
        slices += 1
        job = CopyJob(order, cursor, PosixTarget(order))
        job.survey()
        with contextlib.suppress(Cancelled):
            job.copy(Short())
    assert 3 < slices < 60
    assert cursor.total_bytes / (time.monotonic() - began) < 2 * 8_000_000


def test_a_rate_is_kept(place: Place) -> None:
    began = time.monotonic()
    place.copy(max_bytes_per_second=36_000_000, threads=2)
    assert time.monotonic() - began > 0.7  # 18 MB out and 18 MB back cannot be quicker
