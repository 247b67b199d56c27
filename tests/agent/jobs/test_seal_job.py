"""Sealing real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import xxhash
from muster_agent.jobs import seal as seal_module
from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.export import checksum_list
from muster_agent.manifest.model import CHUNK_BYTES, manifest_id
from muster_agent.manifest.stale import StaleVerdict, compare_steps

from tests.agent.checkpoint_factory import rank_tensors, safetensors_bytes, write_checkpoint

RANK_BYTES = 9_500_000  # three chunks, the last one short


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "run", 10, rank_bytes=RANK_BYTES, world_size=2)


def test_the_manifest_holds_the_digests_of_the_whole_files_and_of_every_chunk(checkpoint: Path) -> None:
    manifest = seal(str(checkpoint)).manifest
    assert manifest is not None and why_invalid(manifest) is None
    assert (manifest.step, manifest.world_size, manifest.origin) == (10, 2, "storage")
    assert {shard.path for shard in manifest.shards} == {
        path.name for path in checkpoint.iterdir() if path.name[0] != "."
    }
    for shard in manifest.shards:
        data = (checkpoint / shard.path).read_bytes()
        assert shard.size_bytes == len(data)
        assert shard.mtime_ns == (checkpoint / shard.path).stat().st_mtime_ns
        assert shard.xxh3_128 == xxhash.xxh3_128_hexdigest(data)
        pieces = [data[begin : begin + CHUNK_BYTES] for begin in range(0, len(data), CHUNK_BYTES)]
        assert shard.chunks_xxh3_64 == "".join(xxhash.xxh3_64_hexdigest(piece) for piece in pieces)
    ranked = [shard for shard in manifest.shards if shard.path.startswith("rank-")]
    assert [shard.rank for shard in ranked] == [0, 1]
    assert len(checksum_list(manifest).splitlines()) == len(manifest.shards)


def test_trained_tensors_have_digests_of_their_own(checkpoint: Path) -> None:
    manifest = seal(str(checkpoint)).manifest
    assert manifest is not None
    expected = {
        name: xxhash.xxh3_64_hexdigest(data)
        for rank in (0, 1)
        for name, data in rank_tensors(rank, RANK_BYTES, 10).items()
        if name.startswith(("model.", "optimizer."))
    }
    assert {tensor.name: tensor.xxh3_64 for tensor in manifest.tensors} == expected


def test_one_big_file_is_sealed_with_many_readers_as_with_one(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(safetensors_bytes({"model.w": os.urandom(40_000_000)}))
    many = seal(str(tmp_path / "a.safetensors"), threads=8, write_beside=False).manifest
    one = seal(str(tmp_path / "a.safetensors"), threads=1, write_beside=False).manifest
    assert many is not None and one is not None
    assert (many.shards, many.tensors) == (one.shards, one.tensors)


def test_the_manifest_is_written_beside_the_data_only_when_asked(checkpoint: Path) -> None:
    assert seal(str(checkpoint), write_beside=False).manifest_path is None
    assert read_beside(str(checkpoint)) is None
    body = seal(str(checkpoint))
    assert body.manifest_path == str(checkpoint / ".muster-manifest.json")
    assert read_beside(str(checkpoint)) == body.manifest


def test_sealing_unchanged_files_again_gives_the_same_manifest(checkpoint: Path) -> None:
    first, second = seal(str(checkpoint)).manifest, seal(str(checkpoint)).manifest
    assert first is not None and second is not None
    assert manifest_id(first) == manifest_id(second)


def test_a_damaged_shard_is_refused_with_its_findings(checkpoint: Path) -> None:
    (checkpoint / "rank-00001-of-00002.safetensors").unlink()
    body = seal(str(checkpoint))
    assert body.manifest is None and read_beside(str(checkpoint)) is None
    assert "shard_missing" in {found.code for found in body.findings}


def test_what_is_no_checkpoint_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    body = seal(str(tmp_path))
    assert body.manifest is None and body.findings


def test_nothing_at_the_path_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound):
        seal(str(tmp_path / "gone"))


def test_bytes_that_rotted_under_an_unchanged_time_are_not_blessed(checkpoint: Path) -> None:
    seal(str(checkpoint))
    shard = checkpoint / "rank-00000-of-00002.safetensors"
    before = shard.stat()
    with open(shard, "r+b") as file:
        file.seek(5_000_000)
        byte = file.read(1)
        file.seek(5_000_000)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    body = seal(str(checkpoint))
    assert body.manifest is None
    assert [(f.code, f.path, f.begin_byte) for f in body.findings] == [("digest_mismatch", shard.name, CHUNK_BYTES)]


def test_a_step_that_was_saved_again_may_be_sealed_again(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, seed=1)
    first = seal(str(folder)).manifest
    for file in folder.glob("*.safetensors"):
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    second = seal(str(folder)).manifest
    assert first is not None and second is not None and manifest_id(first) != manifest_id(second)
    assert read_beside(str(folder)) == second


@pytest.mark.parametrize("change", ["grow", "shrink", "touch", "replace", "remove"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    shard = checkpoint / "rank-00001-of-00002.safetensors"
    real = seal_module.read_shards

    def read_and_change(*arguments: object, **options: object) -> object:
        if change == "shrink":
            os.truncate(shard, 5_000_000)
        totals = real(*arguments, **options)  # type: ignore[arg-type]
        if change == "grow":
            os.truncate(shard, shard.stat().st_size + 1)
        elif change == "touch":
            os.utime(shard)
        elif change == "replace":
            (checkpoint / "new").write_bytes(shard.read_bytes())
            os.replace(checkpoint / "new", shard)
        elif change == "remove":
            shard.unlink()
        return totals

    monkeypatch.setattr(seal_module, "read_shards", read_and_change)
    body = seal(str(checkpoint))
    assert body.manifest is None and read_beside(str(checkpoint)) is None
    assert [found.path for found in body.findings] == [shard.name]


def test_a_reader_that_fails_does_not_leave_the_others_waiting_for_its_turn(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from muster_agent.storage.posix import PosixShard

    real = PosixShard.read_into

    def fail_first_block(self: PosixShard, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        if offset_bytes == 0 and "rank-00000" in self.path:
            raise OSError(5, "Input/output error")
        return real(self, buffer, offset_bytes, length_bytes)

    monkeypatch.setattr(PosixShard, "read_into", fail_first_block)
    body = seal(str(checkpoint))
    assert body.manifest is None
    assert [found.code for found in body.findings] == ["listing_failed"]


def test_sealing_stops_when_told(checkpoint: Path) -> None:
    control = JobControl()
    control.progress = lambda *_report: control.cancel()
    with pytest.raises(Cancelled):
        seal(str(checkpoint), control=control, threads=1)
    assert sorted(path.name for path in checkpoint.iterdir() if path.name.startswith(".")) == []


def test_a_save_that_wrote_old_values_is_stale_by_its_tensors(tmp_path: Path) -> None:
    older = seal(str(write_checkpoint(tmp_path / "run", 90, seed=10))).manifest
    newer = seal(str(write_checkpoint(tmp_path / "run", 100, seed=0))).manifest
    third = seal(str(write_checkpoint(tmp_path / "run", 110, seed=0))).manifest
    assert older is not None and newer is not None and third is not None
    assert compare_steps(older, newer).verdict == StaleVerdict.STALE
    assert compare_steps(newer, third).verdict == StaleVerdict.CHANGED


def test_a_seal_tells_the_type_and_shape_of_every_tensor(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=1, rank_bytes=600)
    manifest = seal(str(folder)).manifest
    assert manifest is not None and manifest.tensors
    assert {(tensor.dtype, len(tensor.shape or ())) for tensor in manifest.tensors} == {("F32", 1)}
