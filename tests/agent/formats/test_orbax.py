from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Finding, Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory

from tests.agent.formats.damage import age, copy_sample, damage, files_under, swap
from tests.agent.formats.ocdbt_bytes import manifest_naming
from tests.agent.nobody import let_others_in, muster_as_nobody

STEPS = [
    ("manager-ocdbt/200", 200),
    ("manager-ocdbt/300", 300),
    ("manager-padded/ckpt_00000007", 7),
    ("manager-zarr/5", 5),
]
TREES = ["two-processes", "inner-nodes", "zarr3"]
TEXTS = ("commit_success.txt", "_METADATA", "_sharding", "process_0", ".zarray", "/metadata")


def root(name: str, to: Path) -> Path:
    """The root of a sample, with the step of this name inside."""
    return copy_sample(f"orbax/{name.split('/')[0]}", to) / name.split("/")[1]


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def told(shard_map: ShardMap) -> list[Finding]:
    missed = {"rng_missing", "dataloader_missing", "optimizer_missing"}
    return [found for found in shard_map.findings if found.code not in missed]


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_real_saves_are_complete(name: str, step: int, tmp_path: Path) -> None:
    found = read(root(name, tmp_path))
    assert (found.format, found.status, found.step, found.world_size) == ("orbax", Status.COMPLETE, step, 1)
    assert found.resumable and not told(found)
    held = {tensor.name for tensor in found.tensors}
    assert held == {"opt_state.mu", "opt_state.nu", "params.dense.bias", "params.dense.kernel", "step"}


def test_a_checkpoint_saved_by_itself_takes_its_step_from_its_state(tmp_path: Path) -> None:
    found = read(copy_sample("orbax/standalone", tmp_path) / "final")
    assert (found.status, found.step) == (Status.COMPLETE, 1)


@pytest.mark.parametrize("name", TREES)
def test_the_parts_of_two_processes_are_found_through_the_merged_tree(name: str, tmp_path: Path) -> None:
    found = read(copy_sample(f"ocdbt/{name}", tmp_path))
    assert (found.status, found.world_size, found.step) == (Status.COMPLETE, 2, 40)
    by_rank = {shard.rank for shard in found.shards if shard.role is Role.OPTIMIZER}
    assert by_rank == {0, 1}
    kernels = [tensor for tensor in found.tensors if tensor.name == "params.dense.kernel"]
    assert len(kernels) == 4
    assert {(tensor.dtype, tensor.shape) for tensor in kernels} == {("float32", (8, 64))}


def test_inventory_lists_each_step_with_its_items(tmp_path: Path) -> None:
    place = copy_sample("orbax/manager-ocdbt", tmp_path)
    listed = inventory(place, grace_seconds=0).checkpoints
    assert [(one.step, one.status, one.format) for one in listed] == [
        (300, Status.COMPLETE, "orbax"),
        (200, Status.COMPLETE, "orbax"),
    ]


# -- saves that did not end --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["400.orbax-checkpoint-tmp", "400.orbax-checkpoint-tmp-1703334121930256"])
def test_a_step_under_its_temporary_name_is_listed_and_never_resumed(name: str, tmp_path: Path) -> None:
    place = copy_sample("orbax/manager-ocdbt", tmp_path)
    shutil.copytree(place / "300", place / name)
    age(place, 0)
    running = {one.path: one for one in inventory(place).checkpoints}[str(place / name)]
    assert (running.step, running.status, running.resumable) == (400, Status.IN_PROGRESS, False)
    age(place)
    left = {one.path: one for one in inventory(place).checkpoints}[str(place / name)]
    assert (left.step, left.status, left.resumable) == (400, Status.INCOMPLETE, False)
    assert "temporary_left" in {found.code for found in left.findings}


def test_a_commit_marker_inside_a_temporary_folder_is_no_commit(tmp_path: Path) -> None:
    place = copy_sample("orbax/manager-padded", tmp_path)
    (place / "ckpt_00000007").rename(place / "ckpt_00000009.orbax-checkpoint-tmp")
    assert (place / "ckpt_00000009.orbax-checkpoint-tmp" / "commit_success.txt").exists()
    found = read(place / "ckpt_00000009.orbax-checkpoint-tmp")
    assert (found.step, found.status) == (9, Status.INCOMPLETE)


def test_a_save_without_a_time_of_commit_was_never_finalized(tmp_path: Path) -> None:
    place = root("manager-ocdbt/300", tmp_path)
    record = json.loads((place / "_CHECKPOINT_METADATA").read_text())
    (place / "_CHECKPOINT_METADATA").write_text(json.dumps({**record, "commit_timestamp_nsecs": None}))
    (place / "commit_success.txt").unlink()
    age(place, 0)
    assert read(place, grace_seconds=600).status is Status.IN_PROGRESS
    age(place)
    found = read(place)
    assert (found.step, found.status, found.resumable) == (300, Status.INCOMPLETE, False)


def test_a_step_without_the_marker_that_its_siblings_have_is_not_committed(tmp_path: Path) -> None:
    place = root("manager-ocdbt/300", tmp_path)
    for marker in place.rglob("commit_success.txt"):
        marker.unlink()
    assert read(place).status is Status.UNCOMMITTED


def test_steps_of_versions_that_write_no_marker_on_local_disks_are_complete(tmp_path: Path) -> None:
    place = copy_sample("orbax/manager-ocdbt", tmp_path)
    for marker in [*place.rglob("commit_success.txt"), *place.rglob("_CHECKPOINT_METADATA")]:
        marker.unlink()
    for descriptions in list(place.rglob("array_metadatas")):
        shutil.rmtree(descriptions)
    for step in ("200", "300"):
        assert read(place / step).status is Status.COMPLETE


def test_an_item_under_its_temporary_name_was_not_committed(tmp_path: Path) -> None:
    place = root("manager-zarr/5", tmp_path)
    (place / "default").rename(place / "default.orbax-checkpoint-tmp-1703334121930256")
    assert read(place).status is Status.INCOMPLETE


def test_an_item_that_the_record_names_and_that_is_not_there_is_missed(tmp_path: Path) -> None:
    place = root("manager-ocdbt/200", tmp_path)
    shutil.rmtree(place / "meta")
    found = read(place)
    assert found.status is Status.INCOMPLETE
    assert any("'meta'" in one.detail for one in found.findings)


def test_a_step_without_any_item_is_not_whole(tmp_path: Path) -> None:
    place = tmp_path / "7"
    place.mkdir()
    (place / "_CHECKPOINT_METADATA").write_text("{}")
    assert read(place).status is Status.INCOMPLETE


# -- damage ------------------------------------------------------------------------------------------------------------
def assert_named(place: Path, file: str, done: str) -> None:
    found = told(read(place))
    assert any(one.path == file or os.path.basename(file) in one.detail for one in found), done


@pytest.mark.parametrize("kind", ["truncate", "zero", "empty", "delete", "extend", "flip_head"])
@pytest.mark.parametrize("name", [name for name, _ in STEPS])
def test_damage_to_any_file_of_a_step_is_named(name: str, kind: str, tmp_path: Path) -> None:
    whole = root(name, tmp_path / "whole")
    for number, file in enumerate(files_under(whole)):
        is_chunk = name.startswith("manager-zarr") and os.path.basename(file).replace(".", "").isdecimal()
        if file.endswith(TEXTS) and kind not in ("empty", "delete") or is_chunk and kind in ("zero", "flip_head"):
            continue  # only a seal knows of a changed value or text
        if kind == "extend" and "/d/" in file or kind == "delete" and file == "default/commit_success.txt":
            continue  # older versions of a tree may use those bytes; no other item says that there should be one
        place = root(name, tmp_path / str(number))
        assert_named(place, file, damage(place / file, kind))


@pytest.mark.parametrize("kind", ["truncate", "empty", "delete"])
@pytest.mark.parametrize("name", TREES)
def test_damage_to_a_file_that_the_merged_tree_needs_breaks_the_checkpoint(
    name: str, kind: str, tmp_path: Path
) -> None:
    whole = read(copy_sample(f"ocdbt/{name}", tmp_path / "whole"))
    needed = [shard.path for shard in whole.shards if shard.role in (Role.MODEL, Role.OPTIMIZER)]
    assert len(needed) >= 4
    for number, file in enumerate(needed):
        place = copy_sample(f"ocdbt/{name}", tmp_path / str(number))
        done = damage(place / file, kind)
        found = read(place)
        if kind != "truncate":  # what lies at the end of it may be needed by the process's own tree only
            assert found.status in (Status.CORRUPT, Status.INCOMPLETE), done
        assert file in {one.path for one in told(found)}, done


@pytest.mark.parametrize("name", ["two-processes", "inner-nodes"])
def test_swapped_data_files_are_found(name: str, tmp_path: Path) -> None:
    whole = read(copy_sample(f"ocdbt/{name}", tmp_path / "whole"))
    model = sorted(shard.path for shard in whole.shards if shard.role is Role.MODEL)
    optimizer = sorted(shard.path for shard in whole.shards if shard.role is Role.OPTIMIZER)
    place = copy_sample(f"ocdbt/{name}", tmp_path / "swapped")
    swap(place / model[0], place / optimizer[-1])
    assert read(place).status is Status.CORRUPT


def test_damage_to_a_process_s_own_tree_is_a_warning(tmp_path: Path) -> None:
    place = root("manager-ocdbt/200", tmp_path)
    tree = next((place / "state" / "ocdbt.process_0" / "d").iterdir())
    damage(tree, "empty")
    found = read(place)
    assert found.status is Status.COMPLETE
    assert [one.severity for one in told(found)] == [Severity.WARNING]


def test_a_manifest_of_another_step_names_files_that_are_not_here(tmp_path: Path) -> None:
    place = root("manager-ocdbt/200", tmp_path)
    shutil.copy(place.parent / "300" / "state" / "manifest.ocdbt", place / "state" / "manifest.ocdbt")
    found = read(place)
    assert found.status is Status.INCOMPLETE
    assert "shard_missing" in {one.code for one in found.findings}


def test_a_missing_chunk_file_is_named(tmp_path: Path) -> None:
    place = root("manager-zarr/5", tmp_path)
    (place / "default" / "opt_state.mu" / "2.0").unlink()
    found = read(place)
    assert found.status is Status.INCOMPLETE
    assert [(one.path, one.tensor) for one in told(found)] == [("default/opt_state.mu/2.0", "opt_state.mu")]


def test_chunks_that_hold_only_the_fill_value_may_be_left_out_where_the_writer_says_so(tmp_path: Path) -> None:
    place = root("manager-zarr/5", tmp_path)
    (place / "default" / "opt_state.mu" / "2.0").unlink()
    tree = place / "default" / "_METADATA"
    tree.write_text(tree.read_text().replace('equal_to_fill_value": true', 'equal_to_fill_value": false'))
    assert read(place).status is Status.COMPLETE


def test_a_folder_that_may_not_be_listed_is_unreadable_and_not_missing(tmp_path: Path) -> None:
    place = root("manager-ocdbt/200", tmp_path)
    let_others_in(place.resolve())
    (place / "state" / "d").chmod(0)
    done = muster_as_nobody("inventory", place, "--json")
    (place / "state" / "d").chmod(0o755)
    (found,) = json.loads(done.stdout)
    assert found["status"] == "unreadable"
    assert "shard_missing" not in {one["code"] for one in found["findings"]}


def test_a_tree_that_names_files_outside_is_refused(tmp_path: Path) -> None:
    place = copy_sample("ocdbt/two-processes", tmp_path)
    manifest = place / "manifest.ocdbt"
    manifest.write_bytes(manifest_naming("../../etc/passwd"))
    found = read(place)
    assert "path_unsafe" in {one.code for one in found.findings}
    assert found.status is Status.UNREADABLE


# -- layouts on top of Orbax -------------------------------------------------------------------------------------------
def test_input_pipeline_state_of_each_process_is_expected(tmp_path: Path) -> None:
    place = root("manager-padded/ckpt_00000007", tmp_path)
    (place / "default").rename(place / "items")
    (place / "iter").mkdir()
    for process in (0, 1, 3):
        (place / "iter" / f"process_{process}-of-4.json").write_text('{"last_seen": 12}')
    (place / "_CHECKPOINT_METADATA").unlink()
    found = read(place)
    assert found.status is Status.INCOMPLETE
    assert "iter/process_2-of-4.json" in {one.path for one in found.findings if one.code == "shard_missing"}
    (place / "iter" / "process_2-of-4.json").write_text('{"last_seen": 12}')
    found = read(place)
    assert found.status is Status.COMPLETE
    assert "dataloader_missing" not in {one.code for one in found.findings}
