from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.dcp_records import spread
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.draft import wrappers_of

from tests.agent.dcp_factory import Piece, write_dcp
from tests.agent.formats.damage import age, copy_sample, damage, files_under, swap
from tests.agent.torch_factory import Call, Global

Sample = Callable[[str], Path]


def read(path: Path, grace_seconds: float = 0) -> ShardMap:
    return read_checkpoint(path, grace_seconds=grace_seconds)


def codes(shard_map: ShardMap) -> set[str]:
    return {found.code for found in shard_map.findings}


@pytest.mark.parametrize(
    ("name", "step", "world_size", "resumable"),
    [
        ("single/step-5", 5, 1, False),
        ("w2/step-10", 10, 2, True),
        ("w4-file-per-tensor/step-30", 30, 4, False),
        ("w2-nocoll/step-60", 60, 2, False),
        ("w4-nocoll/step-60", 60, 4, False),
        ("w2-threads2/step-20", 20, 2, True),
        ("w2-async/step-50", 50, 2, True),
        ("w2-replicated/step-40", 40, 2, False),
        ("torchtitan/step-15", 15, 2, True),
        ("wrapped-state/step-20", 20, 2, True),
    ],
)
def test_real_saves_are_complete(sample: Sample, name: str, step: int, world_size: int, resumable: bool) -> None:
    found = read(sample(f"dcp/{name}"))
    expected = "torchtitan" if name.startswith("torchtitan") else "dcp"
    assert (found.format, found.status, found.step) == (expected, Status.COMPLETE, step)
    assert (found.world_size, found.resumable) == (world_size, resumable)


def test_what_lies_in_one_object_keeps_its_roles_whatever_that_is_called(sample: Sample) -> None:
    folder = sample("dcp/wrapped-state/step-20")
    assert "optimizer_missing" not in codes(read(folder))
    roles = {one.name.rsplit(".", 1)[0]: one.role for one in read(folder).tensors}
    assert (roles["training.model.0"], roles["training.optimizer.state.0.weight"]) == (Role.MODEL, Role.OPTIMIZER)


@pytest.mark.parametrize(
    ("names", "wrappers"),
    [
        (["run.model.w", "run.optimizer.state.w", "step"], {"run"}),
        (["model.optimizer.w", "model.layer.w"], set()),
        (["optimizer.model.w", "optimizer.optim.w"], set()),
        (["encoder.model.w", "encoder.head.w"], set()),
    ],
)
def test_only_what_holds_a_model_and_its_optimizer_wraps_them(names: list[str], wrappers: set[str]) -> None:
    assert wrappers_of(names) == wrappers


def test_an_empty_file_of_a_rank_without_data_is_legitimate(sample: Sample) -> None:
    found = read(sample("dcp/w4-replicated/step-40"))
    assert found.status is Status.COMPLETE
    assert [shard.path for shard in found.shards if shard.size_bytes == 0] == ["__3_0.distcp"]
    assert codes(found) == {"optimizer_missing"}
    assert found.world_size == 4


def test_a_save_over_more_ranks_leaves_orphans_and_is_complete(sample: Sample) -> None:
    found = read(sample("dcp/mixed-world/step-10"))
    orphans = {one.path for one in found.findings if one.code == "shard_orphaned"}
    assert (found.status, found.world_size) == (Status.COMPLETE, 2)
    assert orphans == {"__2_0.distcp", "__3_0.distcp"}
    assert not orphans & {shard.path for shard in found.shards}


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("a-rank1-enospc", Status.INCOMPLETE, {"metadata_missing"}),
        ("b-overwrite-killed", Status.CORRUPT, {"shard_oversized", "shard_truncated"}),
        ("c-kill-before-rename", Status.UNCOMMITTED, {"temporary_left", "uncommitted", "optimizer_missing"}),
        ("d-async-inflight", Status.INCOMPLETE, {"metadata_missing"}),
    ],
)
def test_what_real_crashes_left_is_judged(sample: Sample, name: str, status: Status, expected: set[str]) -> None:
    found = read(sample(f"dcp/crash/{name}/step-10"))
    assert (found.status, codes(found), found.resumable) == (status, expected, False)


def test_a_save_that_is_still_running_is_in_progress(sample: Sample) -> None:
    folder = sample("dcp/crash/d-async-inflight/step-10")
    os.utime(folder / "__0_0.distcp")
    found = read(folder, grace_seconds=600)
    assert found.status is Status.IN_PROGRESS
    assert {one.severity for one in found.findings} == {Severity.NOTE}
    (missing,) = [one for one in found.findings if one.code == "metadata_missing"]
    assert "Wait for the save to end" in missing.cure and "remove" not in missing.cure.lower()


def test_files_newer_than_the_metadata_point_to_a_save_over_an_old_checkpoint(sample: Sample) -> None:
    folder = sample("dcp/crash/b-overwrite-killed/step-10")
    os.utime(folder / ".metadata", (1, 1))
    assert all("over an old checkpoint" in one.detail for one in read(folder).findings)


def test_a_file_that_the_metadata_needs_and_that_is_gone_makes_it_incomplete(sample: Sample) -> None:
    folder = sample("dcp/w2/step-10")
    (folder / "__1_0.distcp").unlink()
    found = read(folder)
    assert (found.status, codes(found)) == (Status.INCOMPLETE, {"shard_missing"})


def test_a_cut_file_and_an_emptied_one_are_corrupt(sample: Sample) -> None:
    folder = sample("dcp/w2/step-10")
    os.truncate(folder / "__1_0.distcp", 100)
    os.truncate(folder / "__0_0.distcp", 0)
    found = read(folder)
    assert (found.status, codes(found)) == (Status.CORRUPT, {"shard_truncated", "shard_empty"})


def test_a_file_of_the_right_size_with_foreign_bytes_shows_at_its_record_heads(sample: Sample) -> None:
    folder = sample("dcp/w2/step-10")
    path = folder / "__1_0.distcp"
    path.write_bytes(bytes(path.stat().st_size))
    found = read(folder)
    assert (found.status, codes(found)) == (Status.CORRUPT, {"metadata_unreadable"})


def test_a_rank_without_its_own_metadata_leaves_a_hole(sample: Sample) -> None:
    folder = sample("dcp/w4-nocoll/step-60")
    (folder / "__2.metadata").unlink()
    found = read(folder)
    assert "metadata_missing" in codes(found)
    assert found.status is not Status.COMPLETE
    assert not found.resumable


def test_the_last_ranks_loss_of_everything_shows_as_a_hole_in_the_tensors(sample: Sample) -> None:
    folder = sample("dcp/w4-nocoll/step-60")
    (folder / "__3.metadata").unlink()
    (folder / "__3_0.distcp").unlink()
    assert read(folder).status in (Status.CORRUPT, Status.INCOMPLETE)
    assert "ranges_gap" in codes(read(folder))


def test_tensor_ranges_are_the_tensors_own_bytes(sample: Sample) -> None:
    folder = sample("dcp/torchtitan/step-15")
    by_name = {one.name: one for one in read(folder).tensors}
    step = by_name["train_state.step"]
    with open(folder / step.shard, "rb") as stream:
        stream.seek(step.offset_bytes)
        assert struct.unpack("<i", stream.read(step.length_bytes)) == (15,)
    assert by_name["optimizer.state.0.weight.exp_avg"].role is Role.OPTIMIZER
    sizes = {one.length_bytes for one in by_name.values() if one.dtype == "float32" and one.shape == ()}
    assert sizes == {4}


def test_the_step_comes_from_the_state_where_the_name_gives_none(sample: Sample) -> None:
    folder = sample("dcp/torchtitan/step-15")
    renamed = folder.rename(folder.parent / "step-15.backup")
    assert read(renamed).step == 15


def test_a_renamed_folder_is_a_step_mismatch(sample: Sample) -> None:
    folder = sample("dcp/torchtitan/step-15")
    found = read(folder.rename(folder.parent / "step-100"))
    assert found.step == 15
    assert "step_mismatch" in codes(found)


def test_the_loader_state_tells_the_data_parallel_ranks(sample: Sample) -> None:
    assert read(sample("dcp/torchtitan/step-15")).dp == 2


def test_metadata_that_asks_for_the_shell_is_unsafe_and_nothing_runs(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> object:
            return os.system, (f"touch {tmp_path}/made",)

    folder = tmp_path / "step-10"
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(Attack(), 4))
    (folder / "__0_0.distcp").write_bytes(b"x")
    found = read(folder)
    assert (found.status, codes(found)) == (Status.UNREADABLE, {"metadata_unsafe"})
    assert not (tmp_path / "made").exists()


def test_a_path_in_the_metadata_that_leads_away_is_never_opened(sample: Sample) -> None:
    folder = sample("dcp/w2/step-10")
    data = (folder / ".metadata").read_bytes()
    assert data.count(b"__1_0.distcp") == 1
    (folder / ".metadata").write_bytes(data.replace(b"__1_0.distcp", b"../../passwd"))
    found = read(folder)
    assert (found.status, codes(found)) == (Status.UNREADABLE, {"path_unsafe"})


def test_metadata_that_breaks_off_is_corrupt(sample: Sample) -> None:
    folder = sample("dcp/w2/step-10")
    os.truncate(folder / ".metadata", 500)
    assert (read(folder).status, codes(read(folder))) == (Status.CORRUPT, {"metadata_unreadable"})
    os.truncate(folder / ".metadata", 0)
    assert codes(read(folder)) == {"metadata_unreadable"}


def test_a_leftover_beside_a_committed_save_is_only_a_warning(sample: Sample) -> None:
    folder = sample("dcp/w2/step-10")
    (folder / ".metadata.tmp").write_bytes(b"half")
    found = read(folder)
    assert (found.status, found.resumable) == (Status.COMPLETE, True)
    assert "temporary_left" in codes(found)


def test_the_only_copy_of_the_metadata_is_not_to_be_removed(sample: Sample) -> None:
    found = read(sample("dcp/crash/c-kill-before-rename/step-10"))
    assert [one.cure for one in found.findings if one.code == "temporary_left"][0].startswith("Keep")


SAVES = [
    "single/step-5",
    "w2/step-10",
    "w2-threads2/step-20",
    "w2-async/step-50",
    "w2-replicated/step-40",
    "w4-replicated/step-40",
    "w4-file-per-tensor/step-30",
    "w2-nocoll/step-60",
    "torchtitan/step-15",
]


@pytest.mark.parametrize("kind", ["truncate", "empty", "delete", "extend"])
@pytest.mark.parametrize("name", SAVES)
def test_damage_to_any_file_of_a_save_is_named(name: str, kind: str, tmp_path: Path) -> None:
    whole = copy_sample(f"dcp/{name}", tmp_path / "whole")
    for number, file in enumerate(files_under(whole)):
        if (whole / file).stat().st_size == 0 and kind != "extend" or kind == "extend" and file.endswith(".metadata"):
            continue  # a rank without data leaves an empty file; what follows the metadata's end is never read
        place = copy_sample(f"dcp/{name}", tmp_path / str(number))
        done = damage(place / file, kind)
        found = read(place)
        named = {one.path for one in found.findings} | {os.path.basename(one.path) for one in found.findings}
        lost_marker = kind == "delete" and file == ".metadata"
        assert file in named or lost_marker and "metadata_missing" in codes(found), done
        assert found.status is not Status.COMPLETE or codes(found) >= {"shard_orphaned"}, done


@pytest.mark.parametrize("name", ["w2/step-10", "w2-threads2/step-20", "torchtitan/step-15"])
def test_two_ranks_files_in_each_others_place_are_found(name: str, tmp_path: Path) -> None:
    place = copy_sample(f"dcp/{name}", tmp_path)
    swap(place / "__0_0.distcp", place / "__1_0.distcp")
    assert read(place).status is Status.CORRUPT


def test_metadata_on_a_node_that_holds_other_ranks_files_points_to_disks_of_their_own(tmp_path: Path) -> None:
    place = copy_sample("dcp/w4-file-per-tensor/step-30", tmp_path)
    for path in [*place.glob("__0_*.distcp"), *place.glob("__1_*.distcp")]:
        path.unlink()
    found = read(place)
    missing = [one for one in found.findings if one.code == "shard_missing"]
    assert found.status is Status.INCOMPLETE and len(missing) == 7
    assert all("node" in one.cure for one in missing)


def test_a_quick_look_opens_a_spread_of_many_files_and_a_full_one_all(tmp_path: Path) -> None:
    names = [f"__{rank}_0.distcp" for rank in range(100)]
    assert spread(names, 16)[0] == names[0] and spread(names, 16)[-1] == names[-1] and len(spread(names, 16)) == 16
    assert spread(names[:5], 16) == names[:5]


# -- members of enumerations, as Python 3.11.0 to 3.11.3 pickled them --------------------------------------------------
METADATA = "torch.distributed.checkpoint.metadata"


def of_memory_format(target: Global, member: str) -> tuple[object, ...]:
    """What a tensor's properties hold, with the memory format asked for by its name."""
    encoding = Call(Global("builtins", "getattr"), (target, member))
    return (
        Global("torch", "bfloat16"),
        Call(Global("torch.serialization", "_get_layout"), ("strided",)),
        False,
        encoding,
    )


def with_properties(place: Path, properties: object) -> ShardMap:
    piece = Piece("model.w", (0,), (8,), (8,), properties=properties)
    write_dcp(place / "step-10", {"__0_0.distcp": [piece]})
    age(place)
    return read_checkpoint(place / "step-10")


def test_metadata_may_ask_for_a_member_of_its_own_enumeration_by_name(tmp_path: Path) -> None:
    own = Global(METADATA, "_MEM_FORMAT_ENCODING")
    shard_map = with_properties(tmp_path, of_memory_format(own, "TORCH_CONTIGUOUS_FORMAT"))
    assert shard_map.status is Status.COMPLETE
    assert [(tensor.name, tensor.dtype) for tensor in shard_map.tensors] == [("model.w", "bfloat16")]


@pytest.mark.parametrize(
    ("target", "member"),
    [
        (Global(METADATA, "Metadata"), "__init__"),
        (Global(METADATA, "_MEM_FORMAT_ENCODING"), "__class__"),
        (Global("collections", "OrderedDict"), "fromkeys"),
    ],
)
def test_metadata_that_looks_up_anything_else_is_unsafe(tmp_path: Path, target: Global, member: str) -> None:
    shard_map = with_properties(tmp_path, of_memory_format(target, member))
    assert [found.code for found in shard_map.findings if found.severity is Severity.DAMAGE] == ["metadata_unsafe"]


@pytest.mark.parametrize("around", ["", "app.", "state."])
@pytest.mark.parametrize("optimizer", ["optim", "optimizers"])
def test_state_inside_one_object_keeps_its_roles(tmp_path: Path, around: str, optimizer: str) -> None:
    """PyTorch's own example puts all state into an object `app`, Composer into `state`."""
    names = (f"{around}model.w", f"{around}{optimizer}.state.w.exp_avg")
    write_dcp(tmp_path / "ep0-ba10", {"__0_0.distcp": [Piece(name, (0,), (4,), (4,)) for name in names]})
    age(tmp_path)
    shard_map = read(tmp_path / "ep0-ba10")
    assert (shard_map.step, shard_map.status, shard_map.resumable) == (10, Status.COMPLETE, True)


def test_exchanged_descriptions_of_ranks_are_named(tmp_path: Path) -> None:
    """Their union is what it was, but each rank would load another one's part."""
    place = copy_sample("dcp/w2-nocoll/step-60", tmp_path)
    assert read(place).status is Status.COMPLETE
    swap(place / "__0.metadata", place / "__1.metadata")
    age(place)
    damaged = {found.path for found in read(place).findings if found.severity is Severity.DAMAGE}
    assert damaged == {"__0.metadata", "__1.metadata"} and read(place).status is Status.CORRUPT


def test_bytes_behind_the_metadata_are_told_though_loading_ignores_them(tmp_path: Path) -> None:
    place = copy_sample("dcp/w2/step-10", tmp_path)
    with (place / ".metadata").open("ab") as file:
        file.write(b"\x07" * 16)
    age(place)
    assert read(place).status is Status.COMPLETE and "shard_oversized" in codes(read(place))
