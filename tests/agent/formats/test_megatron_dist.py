"""Megatron's distributed checkpoints: real ones, what interrupted saves leave, and layouts built after them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.walk import inventory
from muster_agent.jobs.seal import seal

from tests.agent.dcp_factory import Piece, write_dcp
from tests.agent.formats.damage import DATA, KINDS, age, copy_sample, damage, files_under, swap
from tests.agent.formats.fuzz import examples
from tests.agent.torch_factory import Call, Global, New, Tensor, torch_zip

MARKER = json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1})
BOUND_MS = 5_000


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def codes(shard_map: ShardMap, *severities: Severity) -> set[str]:
    wanted = severities or tuple(Severity)
    return {found.code for found in shard_map.findings if found.severity in wanted}


def arguments(**values: object) -> New:
    return New(Global("argparse", "Namespace"), dict(values))


def common(**values: object) -> bytes:
    return torch_zip({"iteration": 10, "opt_param_scheduler": {}, **values})


def rank_pieces(rank: int, world_size: int) -> list[Piece]:
    shape = (2 * world_size, 4)
    return [
        Piece("decoder.weight", (2 * rank, 0), (2, 4), shape),
        Piece("optimizer.state.exp_avg.decoder.weight", (2 * rank, 0), (2, 4), shape),
        Piece(f"rng_state/shard_{rank}_{world_size}", value={"seed": rank}),
    ]


def build(
    folder: Path, world_size: int = 4, *, marker: bool = True, extra: dict[str, list[Piece]] | None = None
) -> Path:
    """A whole torch_dist iteration of step 10 in `folder`."""
    files = {f"__{rank}_0.distcp": rank_pieces(rank, world_size) for rank in range(world_size)}
    write_dcp(folder, files | (extra or {}), plans=world_size)
    (folder / "common.pt").write_bytes(common(args=arguments(world_size=world_size, tensor_model_parallel_size=2)))
    if marker:
        (folder / "metadata.json").write_text(MARKER)
    age(folder)
    return folder


# -- real saves --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "step", "shards"), [("iter_0000100", 100, 7), ("iter_0000200", 200, 11)])
def test_a_real_save_is_complete_and_tells_its_layout(tmp_path: Path, name: str, step: int, shards: int) -> None:
    found = read(copy_sample("megatron/torch_dist", tmp_path) / name)
    assert (found.format, found.status, found.step, found.resumable) == ("megatron_dist", Status.COMPLETE, step, True)
    assert (found.world_size, found.tp, found.pp, found.dp) == (4, 2, 2, 1)
    assert (len(found.shards), found.findings, found.must_match) == (shards, (), ())
    assert {one.role for one in found.tensors} == {Role.MODEL, Role.OPTIMIZER, Role.RNG}


def test_a_save_without_its_marker_is_uncommitted(tmp_path: Path) -> None:
    run = copy_sample("megatron/crash", tmp_path)
    found = read(run / "iter_0000300")
    assert (found.status, codes(found), found.resumable) == (Status.UNCOMMITTED, {"uncommitted"}, False)
    assert read(run / "iter_0000100").status is Status.COMPLETE


def test_an_iteration_folder_that_a_save_has_only_made_is_no_checkpoint(tmp_path: Path) -> None:
    run = copy_sample("megatron/crash", tmp_path)
    (run / "iter_0000400").mkdir()
    assert read(run / "iter_0000400").status is Status.INCOMPLETE
    assert read(run / "iter_0000400", grace_seconds=600).status is Status.IN_PROGRESS
    statuses = {one.step: one.status for one in inventory(run, grace_seconds=0).checkpoints}
    assert statuses == {400: Status.INCOMPLETE, 300: Status.UNCOMMITTED, 100: Status.COMPLETE}


# -- damage ------------------------------------------------------------------------------------------------------------
_DATA_FILES = [f"__{rank}_0.distcp" for rank in range(4)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*_DATA_FILES, ".metadata", "common.pt", "metadata.json"])
def test_damage_to_a_file_is_found_and_named(tmp_path: Path, name: str, kind: str, seed: int) -> None:
    folder = copy_sample("megatron/torch_dist", tmp_path) / "iter_0000100"
    before = (folder / name).read_bytes()
    done = damage(folder / name, kind, seed)
    if kind != "delete" and (folder / name).read_bytes() == before:
        return  # there were zeros before
    found = read(folder)
    hidden = (kind == "zero" and name in _DATA_FILES) or (kind == "flip_head" and name != "metadata.json")
    harmless = (kind, name) == ("extend", ".metadata")
    if (hidden or harmless) and found.status is Status.COMPLETE:
        return  # bytes inside a tensor or a scalar, which only a seal proves, or behind the end of a pickle
    assert found.status is not Status.COMPLETE, done
    assert not found.resumable
    if kind == "delete" and name == "metadata.json":
        assert found.status is Status.UNCOMMITTED
        return
    where = {one.path for one in found.findings if one.severity is Severity.DAMAGE}
    assert any(name in path for path in where) or (name == ".metadata" and kind == "delete"), (done, where)


def test_swapped_data_files_are_found_and_both_named(tmp_path: Path) -> None:
    folder = copy_sample("megatron/torch_dist", tmp_path) / "iter_0000100"
    swap(folder / "__0_0.distcp", folder / "__2_0.distcp")
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert {one.path for one in found.findings} == {"__0_0.distcp", "__2_0.distcp"}


def test_the_common_state_of_another_step_is_a_step_mismatch(tmp_path: Path) -> None:
    run = copy_sample("megatron/torch_dist", tmp_path)
    swap(run / "iter_0000100" / "common.pt", run / "iter_0000200" / "common.pt")
    for name in ("iter_0000100", "iter_0000200"):
        assert "step_mismatch" in codes(read(run / name))


def test_a_commit_marker_over_cut_files_proves_nothing(tmp_path: Path) -> None:
    folder = copy_sample("megatron/torch_dist", tmp_path) / "iter_0000100"
    os.truncate(folder / "__3_0.distcp", 4000)
    found = read(folder)
    assert (found.status, codes(found)) == (Status.CORRUPT, {"shard_truncated"})


def test_a_marker_that_was_cut_while_it_was_written_is_in_progress_while_young(tmp_path: Path) -> None:
    folder = copy_sample("megatron/torch_dist", tmp_path) / "iter_0000100"
    (folder / "metadata.json").write_text('{"sharded_ba')
    assert read(folder).status is Status.CORRUPT
    assert read(folder, grace_seconds=600).status is Status.IN_PROGRESS


# -- what interrupted saves leave --------------------------------------------------------------------------------------
def test_the_common_state_alone_is_incomplete(tmp_path: Path) -> None:
    folder = tmp_path / "iter_0000010"
    folder.mkdir()
    (folder / "common.pt").write_bytes(common())
    age(folder)
    found = read(folder)
    assert (found.format, found.status, found.step) == ("megatron_dist", Status.INCOMPLETE, 10)
    assert "metadata_missing" in codes(found)


def test_half_the_data_files_of_a_full_disk_are_incomplete(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010", marker=False)
    for name in (".metadata", "__2_0.distcp", "__3_0.distcp"):
        (folder / name).unlink()
    found = read(folder)
    assert (found.status, found.resumable) == (Status.INCOMPLETE, False)
    assert not any("node" in one.detail for one in found.findings)


def test_an_entry_that_points_beyond_its_file_is_corrupt(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    data = (folder / "__1_0.distcp").read_bytes()
    write_dcp(folder, {f"__{rank}_0.distcp": rank_pieces(rank, 4) for rank in range(4)}, plans=4)
    (folder / "__1_0.distcp").write_bytes(data[: len(data) - 700])
    assert (read(folder).status, codes(read(folder))) == (Status.CORRUPT, {"shard_truncated"})


# -- node-local disks --------------------------------------------------------------------------------------------------
def test_the_other_nodes_part_without_any_metadata_is_incomplete_and_says_where_it_may_lie(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010", 16)
    for name in [".metadata", "metadata.json", "common.pt", *(f"__{rank}_0.distcp" for rank in range(8))]:
        (folder / name).unlink()
    found = read(folder)
    (missing,) = [one for one in found.findings if one.code == "metadata_missing"]
    assert found.status is Status.INCOMPLETE
    assert "ranks 8 to 15" in missing.detail and "each node" in missing.cure


def test_metadata_copied_to_the_other_node_lists_what_lies_elsewhere(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010", 16)
    for rank in range(8):
        (folder / f"__{rank}_0.distcp").unlink()
    found = read(folder)
    missing = [one for one in found.findings if one.code == "shard_missing"]
    assert found.status is Status.INCOMPLETE
    assert [one.path for one in missing] == [f"__{rank}_0.distcp" for rank in range(8)]
    assert all("node" in one.detail and "each node" in one.cure for one in missing)


def test_one_lost_file_of_many_is_not_blamed_on_nodes(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010", 16)
    (folder / "__5_0.distcp").unlink()
    assert not any("node" in one.detail for one in read(folder).findings)


# -- objects in parts --------------------------------------------------------------------------------------------------
def test_an_object_of_which_only_one_ranks_part_was_planned_is_incomplete(tmp_path: Path) -> None:
    extra = {"__4_0.distcp": [Piece("rerun_state_machine_state/shard_0_4", value={"a": 1})]}
    found = read(build(tmp_path / "iter_0000010", extra=extra))
    (missing,) = [one for one in found.findings if one.severity is Severity.DAMAGE]
    assert (found.status, missing.code, missing.tensor) == (
        Status.INCOMPLETE,
        "shard_missing",
        "rerun_state_machine_state",
    )
    assert "1 of 4" in missing.detail and "shard_1_4, shard_2_4, shard_3_4" in missing.detail


def test_each_object_with_missing_parts_is_named(tmp_path: Path) -> None:
    folder = copy_sample("megatron/torch_dist", tmp_path) / "iter_0000100"
    data = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(data.replace(b"rng_state/shard_1.1_2.2", b"rng_statX/shard_1.1_2.2"))
    found = read(folder)
    assert found.status is Status.INCOMPLETE
    assert {one.tensor for one in found.findings if one.code == "shard_missing"} == {"rng_state", "rng_statX"}


def test_a_part_of_an_absurdly_large_object_takes_no_time(tmp_path: Path) -> None:
    extra = {"__4_0.distcp": [Piece("x/shard_0.0.0_999999999.999999999.999999999", value=1)]}
    begun = time.monotonic()
    found = read(build(tmp_path / "iter_0000010", extra=extra))
    assert (found.status, time.monotonic() - begun < 5) == (Status.INCOMPLETE, True)


# -- what is legitimate ------------------------------------------------------------------------------------------------
def test_skipped_ranks_several_files_per_rank_and_empty_files_are_no_finding(tmp_path: Path) -> None:
    folder = tmp_path / "iter_0000010"
    files = {
        "__0_0.distcp": rank_pieces(0, 2)[:1],
        "__0_1.distcp": rank_pieces(0, 2)[1:],
        "__6_0.distcp": rank_pieces(1, 2),
    }
    write_dcp(folder, files, plans=8)
    (folder / "__3_0.distcp").touch()
    (folder / "common.pt").write_bytes(common())
    (folder / "metadata.json").write_text(MARKER)
    age(folder)
    found = read(folder)
    assert (found.status, found.findings, found.world_size) == (Status.COMPLETE, (), 8)


def test_a_release_folder_is_a_checkpoint_of_step_0(tmp_path: Path) -> None:
    folder = build(tmp_path / "run" / "release")
    found = read(folder)
    assert (found.status, found.step, found.findings) == (Status.COMPLETE, 0, ())
    assert [one.path for one in inventory(tmp_path / "run", grace_seconds=0).checkpoints] == [str(folder)]


def test_a_composed_optimizer_counts_as_optimizer_state(tmp_path: Path) -> None:
    folder = tmp_path / "iter_0000010"
    pieces = [
        Piece("decoder.weight", (0,), (4,), (4,)),
        Piece("chained_0.optimizer.state.exp_avg.w", (0,), (4,), (4,)),
        Piece("rng_state/shard_0_1", value=1),
    ]
    write_dcp(folder, {"__0_0.distcp": pieces}, plans=1)
    (folder / "common.pt").write_bytes(common())
    (folder / "metadata.json").write_text(MARKER)
    age(folder)
    assert (read(folder).resumable, read(folder).findings) == (True, ())


def test_plain_dcp_in_an_iteration_folder_needs_no_marker_of_megatron(tmp_path: Path) -> None:
    folder = tmp_path / "iter_0000010"
    pieces = [
        Piece("model.weight", (0,), (4,), (4,)),
        Piece("optimizer.exp_avg", (0,), (4,), (4,)),
        Piece("rng_state", value={"seed": 1}),
        Piece("iteration", value=10),
        Piece("args", value=arguments(world_size=1, tensor_model_parallel_size=1, pipeline_model_parallel_size=1)),
    ]
    write_dcp(folder, {"__0_0.distcp": pieces})
    age(folder)
    found = read(folder)
    assert (found.format, found.status, found.resumable) == ("megatron_dist", Status.COMPLETE, True)
    assert (found.step, found.tp, found.findings) == (10, 1, ())


def test_a_file_of_the_markers_name_beside_plain_dcp_may_be_anybodys(tmp_path: Path) -> None:
    folder = tmp_path / "iter_0000010"
    pieces = [Piece("model.weight", (0,), (4,), (4,)), Piece("optimizer.exp_avg", (0,), (4,), (4,))]
    write_dcp(folder, {"__0_0.distcp": pieces})
    (folder / "metadata.json").write_text('{"dataset": "ours"}')
    age(folder)
    found = read(folder)
    assert (found.status, codes(found, Severity.DAMAGE)) == (Status.COMPLETE, set())


def test_a_checkpoint_may_lie_in_a_folder_beside_its_configuration(tmp_path: Path) -> None:
    build(tmp_path / "actor" / "dist_ckpt")
    (tmp_path / "actor" / "huggingface").mkdir()
    (tmp_path / "actor" / "huggingface" / "config.json").write_text("{}")
    age(tmp_path / "actor")
    found = read(tmp_path / "actor")
    assert (found.format, found.status, found.step, found.tp) == ("megatron_dist", Status.COMPLETE, 10, 2)
    assert {"dist_ckpt/__0_0.distcp", "huggingface/config.json"} <= {one.path for one in found.shards}
    (tmp_path / "actor" / "dist_ckpt" / "metadata.json").unlink()
    assert read(tmp_path / "actor").status is Status.UNCOMMITTED


def test_the_common_state_may_be_an_object_among_the_others(tmp_path: Path) -> None:
    value = {
        "iteration": 10,
        "args": arguments(world_size=4, tensor_model_parallel_size=4, expert_model_parallel_size=2),
    }
    folder = build(tmp_path / "iter_0000010", extra={"__4_0.distcp": [Piece("common_state/shard_0_1", value=value)]})
    (folder / "common.pt").unlink()
    found = read(folder)
    assert (found.status, found.step, found.tp, found.ep, found.findings) == (Status.COMPLETE, 10, 4, 2, ())
    (folder / "metadata.json").unlink()
    assert read(folder).status is Status.UNCOMMITTED


def test_a_common_state_among_the_others_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    pieces = [Piece("common_state/shard_0_1", value={"iteration": 10}), Piece("w", (0,), (4,), (4,))]
    folder = build(tmp_path / "iter_0000010", extra={"__4_0.distcp": pieces})
    (folder / "common.pt").unlink()
    data = (folder / "__4_0.distcp").read_bytes()
    half = len(pieces[0].data) // 2
    (folder / "__4_0.distcp").write_bytes(data[:half] + bytes(half) + data[2 * half :])
    found = read(folder)
    assert (found.status, codes(found, Severity.DAMAGE)) == (Status.CORRUPT, {"metadata_unreadable"})
    assert {one.path for one in found.findings} == {"__4_0.distcp"}


def test_a_common_state_among_the_others_that_asks_for_the_shell_is_unsafe(tmp_path: Path) -> None:
    attack = {"iteration": 10, "x": Call(Global("posix", "system"), (f"touch {tmp_path}/made",))}
    pieces = [Piece("common_state/shard_0_1", value=attack)]
    folder = build(tmp_path / "iter_0000010", extra={"__4_0.distcp": pieces})
    (folder / "common.pt").unlink()
    found = read(folder)
    assert (found.status, codes(found), found.resumable) == (Status.COMPLETE, {"metadata_unsafe"}, False)
    assert not (tmp_path / "made").exists()


def test_without_any_common_state_it_is_incomplete(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    (folder / "common.pt").unlink()
    found = read(folder)
    assert (found.status, {one.path for one in found.findings}) == (Status.INCOMPLETE, {"common.pt"})


def test_state_of_a_model_optimizer_lies_in_a_folder_of_its_own_and_counts(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    build(folder / "modelopt_state")
    found = read(folder)
    assert (found.status, found.findings) == (Status.COMPLETE, ())
    assert "modelopt_state/__0_0.distcp" in {one.path for one in found.shards}
    (folder / "modelopt_state" / "__2_0.distcp").unlink()
    assert {one.path for one in read(folder).findings} == {"modelopt_state/__2_0.distcp"}


# -- the step ----------------------------------------------------------------------------------------------------------
def train_state(step: int) -> bytes:
    value = {"step": Tensor("0", (), "int64"), "consumed_train_samples": Tensor("1", (), "int64")}
    data = bytearray(torch_zip(value))
    begin = data.index(b"data/0") + 6
    payload = next(at for at in range(begin, len(data)) if at % 64 == 0)
    data[payload : payload + 8] = step.to_bytes(8, "little")
    return bytes(data)


def test_a_train_state_of_another_step_than_the_folder_is_a_step_mismatch(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    (folder / "train_state.pt").write_bytes(train_state(28))
    age(folder)
    found = read(folder)
    details = [one.detail for one in found.findings if one.code == "step_mismatch"]
    assert (found.status, len(details)) == (Status.COMPLETE, 2)
    assert any("28" in detail and "10" in detail for detail in details)


def test_a_train_state_that_agrees_is_no_finding(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    (folder / "train_state.pt").write_bytes(train_state(10))
    (folder / "run_config.yaml").write_text(
        "model:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 4\n"
    )
    (folder / "common.pt").write_bytes(common())
    age(folder)
    found = read(folder)
    assert (found.findings, found.step, found.tp, found.pp) == ((), 10, 2, 4)


# -- data loaders ------------------------------------------------------------------------------------------------------
def loaders(folder: Path, steps: dict[int, int | None]) -> None:
    folder.mkdir(exist_ok=True)
    for rank, step in steps.items():
        value = {"dataloader_state_dict": {}, **({} if step is None else {"iteration": step})}
        (folder / f"train_dataloader_dprank{rank:03d}.pt").write_bytes(torch_zip(value))


@pytest.mark.parametrize("inside", ["", "mp_rank_00", "mp_rank_00_000"])
def test_loader_state_of_every_rank_must_be_asked_for_by_as_many(tmp_path: Path, inside: str) -> None:
    folder = build(tmp_path / "iter_0000010")
    loaders(folder / inside, {0: 10, 1: 10})
    age(folder)
    found = read(folder)
    assert (found.status, found.dp, found.must_match, found.findings) == (Status.COMPLETE, 2, ("dp",), ())
    assert len([one for one in found.shards if one.role is Role.DATALOADER]) == 2


def test_loader_state_of_another_iteration_is_a_mixed_generation(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    loaders(folder, {0: 10, 1: 7})
    age(folder)
    found = read(folder)
    (mixed,) = found.findings
    assert (found.status, mixed.severity, mixed.path) == (
        Status.COMPLETE,
        Severity.WARNING,
        "train_dataloader_dprank001.pt",
    )
    assert "7" in mixed.detail


def test_loader_state_of_more_ranks_than_saved_is_a_mixed_generation(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    (folder / "common.pt").write_bytes(common(args=arguments(world_size=4, data_parallel_size=1)))
    loaders(folder, {0: None, 1: None})
    age(folder)
    found = read(folder)
    assert [(one.code, one.path) for one in found.findings] == [
        ("world_size_mismatch", "train_dataloader_dprank001.pt")
    ]
    assert found.status is Status.COMPLETE


def test_loader_state_older_than_all_else_is_a_mixed_generation(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    loaders(folder, {0: None, 1: None})
    age(folder)
    path = folder / "train_dataloader_dprank001.pt"
    os.utime(path, (path.stat().st_mtime - 7200,) * 2)
    assert [one.code for one in read(folder).findings] == ["world_size_mismatch"]


def test_a_rank_without_loader_state_is_a_warning(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    loaders(folder, {0: 10, 1: 10, 3: 10})
    age(folder)
    found = read(folder)
    assert [(one.code, one.severity) for one in found.findings] == [("dataloader_missing", Severity.WARNING)]


# -- recorded sums -----------------------------------------------------------------------------------------------------
def integrity(folder: Path, **changes: str) -> None:
    names = [name for name in files_under(folder) if name != "integrity.json"]
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": files | changes}))
    age(folder)


def test_a_list_of_sums_that_agrees_with_the_folder_is_no_finding(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    integrity(folder)
    assert (read(folder).status, read(folder).findings) == (Status.COMPLETE, ())


def test_a_file_that_only_the_list_of_sums_names_is_missing(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    integrity(folder, **{"tokenizer.model": "0" * 64})
    found = read(folder)
    assert (found.status, [one.path for one in found.findings]) == (Status.INCOMPLETE, ["tokenizer.model"])


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a\0b"])
def test_a_name_in_the_list_of_sums_that_leads_away_is_never_opened(tmp_path: Path, name: str) -> None:
    folder = build(tmp_path / "iter_0000010")
    integrity(folder, **{name: "0" * 64})
    assert (read(folder).status, codes(read(folder))) == (Status.UNREADABLE, {"path_unsafe"})


def test_bytes_that_differ_from_the_recorded_sums_are_not_sealed(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    (folder / "tokenizer.model").write_bytes(b"vocabulary")
    integrity(folder)
    assert seal(str(folder), write_beside=False).manifest is not None
    (folder / "tokenizer.model").write_bytes(b"vocabularY")
    age(folder)
    body = seal(str(folder), write_beside=False)
    assert body.manifest is None
    assert [(one.code, one.path) for one in body.findings] == [("digest_mismatch", "tokenizer.model")]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"algorithm":"sha256","files":{"a":"xyz"}}', b"[" * 10_000])
def test_a_list_of_sums_that_cannot_be_read_is_damage(tmp_path: Path, data: bytes) -> None:
    folder = build(tmp_path / "iter_0000010")
    (folder / "integrity.json").write_bytes(data)
    assert (read(folder).status, codes(read(folder))) == (Status.CORRUPT, {"metadata_unreadable"})


# -- could not look ----------------------------------------------------------------------------------------------------
def test_a_marker_that_may_not_be_read_is_unreadable_not_missing(tmp_path: Path) -> None:
    folder = build(tmp_path / "run" / "iter_0000010")
    (folder / "metadata.json").unlink()
    (folder / "metadata.json").symlink_to("/etc/hostname")
    assert read(folder).status is Status.UNREADABLE


# -- hostile and foreign classes ---------------------------------------------------------------------------------------
def test_a_common_state_that_asks_for_the_shell_is_unsafe_and_the_rest_still_judged(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    attack = Call(Global("posix", "system"), (f"touch {tmp_path}/made",))
    (folder / "common.pt").write_bytes(common(args=arguments(world_size=4), extra=attack))
    found = read(folder)
    assert (found.status, found.step, found.world_size, found.resumable) == (Status.COMPLETE, 10, 4, False)
    assert codes(found) == {"metadata_unsafe"}
    assert not (tmp_path / "made").exists()


def test_a_class_of_the_training_code_among_the_arguments_is_a_note(tmp_path: Path) -> None:
    folder = build(tmp_path / "iter_0000010")
    backend = New(Global("our_project.arguments", "Backend"), {"value": 1})
    (folder / "common.pt").write_bytes(common(args=arguments(world_size=4, attention_backend=backend)))
    found = read(folder)
    assert (found.status, found.resumable, {one.severity for one in found.findings}) == (
        Status.COMPLETE,
        True,
        {Severity.NOTE},
    )


# -- any bytes ---------------------------------------------------------------------------------------------------------
def assert_judged(shard_map: ShardMap) -> None:
    assert shard_map.status in (Status.COMPLETE, Status.UNKNOWN) or shard_map.findings
    assert not any("reader failed" in found.detail for found in shard_map.findings)


def judged(**files: bytes) -> ShardMap:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "iter_0000001"
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return read(folder)


REAL = {path.name: path.read_bytes() for path in (DATA / "megatron/torch_dist/iter_0000100").iterdir()}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.binary(max_size=120))
def test_any_bytes_as_the_marker(data: bytes) -> None:
    assert_judged(judged(**REAL | {"metadata.json": data}))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(JSON, JSON)
def test_any_document_as_the_marker_or_the_list_of_sums(marker: object, sums: object) -> None:
    files = {"metadata.json": json.dumps({"sharded_backend": marker}).encode()}
    files["integrity.json"] = json.dumps({"algorithm": "sha256", "files": sums}).encode()
    assert_judged(judged(**REAL | files))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.lists(st.tuples(st.integers(0, len(REAL["common.pt"]) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_real_common_state_with_flipped_bytes(changes: list[tuple[int, int]]) -> None:
    data = bytearray(REAL["common.pt"])
    for place, byte in changes:
        data[place] = byte
    assert_judged(judged(**REAL | {"common.pt": bytes(data)}))


@settings(max_examples=examples(300), deadline=BOUND_MS)
@given(st.binary(max_size=300))
def test_any_bytes_as_the_common_state(data: bytes) -> None:
    assert_judged(judged(**{"common.pt": data}))
