"""Megatron's zarr layout: a real save, and seeded damage to each of its files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint

from tests.agent.formats.damage import DATA, KINDS, copy_sample, damage, files_under, swap

SAMPLE = "megatron/zarr/iter_0000007"
FILES = files_under(DATA / SAMPLE)


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def damaged(shard_map: ShardMap) -> set[str]:
    return {found.path for found in shard_map.findings if found.severity is Severity.DAMAGE}


def test_a_real_save_is_complete(tmp_path: Path) -> None:
    found = read(copy_sample(SAMPLE, tmp_path))
    assert (found.format, found.status, found.step, found.world_size) == ("megatron_zarr", Status.COMPLETE, 7, 2)
    assert {one.path for one in found.shards} == set(FILES)
    assert {one.code for one in found.findings} == {"optimizer_missing"}
    assert {one.name for one in found.tensors} == {"decoder.layers.0.weight", "embedding.weight", "rng_state.0.x"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_damage_to_a_file_is_found_and_named(tmp_path: Path, name: str, kind: str, seed: int) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    before = (folder / name).read_bytes()
    done = damage(folder / name, kind, seed)
    if kind != "delete" and (folder / name).read_bytes() == before:
        return  # there were zeros before
    found = read(folder)
    is_chunk = Path(name).name in ("0.0", "1.0")
    if kind in ("zero", "flip_head") and (is_chunk or kind == "flip_head") and found.status is Status.COMPLETE:
        return  # bytes of a tensor, or a field that nothing depends on: only a seal proves those
    assert found.status is not Status.COMPLETE, done
    if name == "metadata.json" and kind == "delete":
        assert found.status is Status.UNCOMMITTED
        return
    assert damaged(found) == {name}, done


def test_a_lost_chunk_is_incomplete(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "decoder.layers.0.weight" / "1.0").unlink()
    found = read(folder)
    assert (found.status, damaged(found)) == (Status.INCOMPLETE, {"decoder.layers.0.weight/1.0"})


def test_a_lost_part_of_an_object_is_incomplete(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "rng_state" / "shard_0_2.pt").unlink()
    found = read(folder)
    assert (found.status, damaged(found)) == (Status.INCOMPLETE, {"rng_state/shard_0_2.pt"})


def test_swapped_arrays_of_other_sizes_are_both_named(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    swap(folder / "embedding.weight" / "0.0", folder / "decoder.layers.0.weight" / "0.0")
    assert damaged(read(folder)) == {"embedding.weight/0.0", "decoder.layers.0.weight/0.0"}


@pytest.mark.parametrize("other", ["common.pt", "rng_state/shard_0_2.pt"])
def test_swapped_objects_are_both_named(tmp_path: Path, other: str) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    swap(folder / "rng_state" / "shard_1_2.pt", folder / other)
    found = read(folder)
    assert (found.status, damaged(found)) == (Status.CORRUPT, {"rng_state/shard_1_2.pt", other})


def test_an_array_that_was_only_begun_is_incomplete(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    shutil.rmtree(folder / "embedding.weight")
    (folder / "embedding.weight").mkdir()
    found = read(folder)
    assert (found.status, damaged(found)) == (Status.INCOMPLETE, {"embedding.weight/.zarray"})


def test_a_save_that_was_killed_before_its_marker_is_told_by_its_arrays(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "metadata.json").unlink()
    assert (read(folder).format, read(folder).status) == ("megatron_zarr", Status.UNCOMMITTED)
    (folder / "decoder.layers.0.weight" / "1.0").unlink()
    assert read(folder).status is Status.INCOMPLETE
    (folder / "embedding.weight" / "0.0").touch()
    assert read(folder, grace_seconds=600).status is Status.IN_PROGRESS


def test_a_marker_without_any_tensor_is_incomplete(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    for name in ("embedding.weight", "decoder.layers.0.weight", "rng_state"):
        shutil.rmtree(folder / name)
    assert read(folder).status is Status.INCOMPLETE


def test_a_file_of_zarr_that_was_never_renamed_is_a_leftover(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path)
    (folder / "embedding.weight" / "0.0.1f2e3d4c5b.partial").write_bytes(b"x")
    found = read(folder)
    assert found.status is Status.COMPLETE
    assert ("temporary_left", "embedding.weight/0.0.1f2e3d4c5b.partial") in {(f.code, f.path) for f in found.findings}


def test_a_folder_that_lies_outside_the_root_could_not_be_looked_at_and_is_not_missing(tmp_path: Path) -> None:
    folder = copy_sample(SAMPLE, tmp_path / "root")
    shutil.move(folder / "embedding.weight", tmp_path / "embedding.weight")
    (folder / "embedding.weight").symlink_to(tmp_path / "embedding.weight")
    found = read(folder)
    assert (found.status, [one.code for one in found.findings]) == (Status.UNREADABLE, ["link_escapes_root"])
