from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.detect import read_checkpoint

from tests.agent.formats.damage import DATA, copy_sample, damage, files_under, swap

CONVERTED = ("deepspeed/zero1-bf16/global_step4_universal", "deepspeed/zero3-bf16/global_step4_universal")


def read(path: Path) -> ShardMap:
    return read_checkpoint(path, grace_seconds=0)


def alarms(found: ShardMap) -> list[tuple[str, str]]:
    return [(one.code, one.path) for one in found.findings if one.severity is not Severity.NOTE]


@pytest.mark.parametrize("name", CONVERTED)
def test_a_real_conversion_is_complete_and_loads_with_any_number_of_ranks(name: str) -> None:
    found = read(DATA / name)
    assert (found.format, found.status, found.resumable) == ("deepspeed_universal", Status.COMPLETE, True)
    assert (found.step, found.must_match) == (4, ())
    assert not alarms(found)
    weight = next(one for one in found.tensors if one.shard == "zero/0.weight/exp_avg.pt")
    assert (weight.role, weight.length_bytes) == (Role.OPTIMIZER, 16 * 8 * 4)


@pytest.mark.parametrize("kind", ["truncate", "empty", "delete", "extend"])
@pytest.mark.parametrize(("name", "file"), [(name, file) for name in CONVERTED for file in files_under(DATA / name)])
def test_damage_to_any_file_is_found_and_named(tmp_path: Path, name: str, file: str, kind: str) -> None:
    folder = copy_sample(name, tmp_path)
    damage(folder / file, kind, seed=2)
    found = read(folder)
    assert not found.resumable or kind == "delete"
    named = {path for _, path in alarms(found)}
    only_copy = file.endswith("model_states.pt") and len(list(folder.glob("*model_states.pt"))) == 0
    assert file in named or only_copy, named
    if kind != "delete":
        assert found.status is Status.CORRUPT


@pytest.mark.parametrize("other", ["zero/0.weight/exp_avg_sq.pt", "zero/2.bias/exp_avg.pt"])
def test_states_that_were_swapped_are_both_named(tmp_path: Path, other: str) -> None:
    folder = copy_sample(CONVERTED[0], tmp_path)
    swap(folder / "zero/0.weight/exp_avg.pt", folder / other)
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert {path for _, path in alarms(found)} == {"zero/0.weight/exp_avg.pt", other}


@pytest.mark.parametrize("other", ["zero/2.weight/exp_avg.pt", "zero/optimizer_state.pt"])
def test_files_of_two_folders_that_were_swapped_are_both_named(tmp_path: Path, other: str) -> None:
    folder = copy_sample(CONVERTED[0], tmp_path)
    swap(folder / "mp_rank_00_model_states.pt", folder / other)
    found = read(folder)
    assert found.status is Status.CORRUPT
    assert {path for _, path in alarms(found)} == {"mp_rank_00_model_states.pt", other}


def test_a_copy_of_one_rank_that_is_gone_is_missed_by_what_the_others_say(tmp_path: Path) -> None:
    folder = copy_sample(CONVERTED[1], tmp_path)
    (folder / "zero_pp_rank_0_mp_rank_00_model_states.pt").unlink()
    found = read(folder)
    assert (found.status, alarms(found)) == (
        Status.INCOMPLETE,
        [("shard_missing", "zero_pp_rank_0_mp_rank_00_model_states.pt")],
    )


def test_a_parameter_that_was_not_converted_is_named(tmp_path: Path) -> None:
    folder = copy_sample(CONVERTED[0], tmp_path)
    shutil.rmtree(folder / "zero" / "2.bias")
    found = read(folder)
    assert (found.status, alarms(found)) == (Status.INCOMPLETE, [("shard_missing", "zero/2.bias/fp32.pt")])


def test_a_working_folder_that_was_left_is_named_and_decides_nothing_by_itself(tmp_path: Path) -> None:
    folder = copy_sample(CONVERTED[0], tmp_path)
    (folder / "tmp").mkdir()
    found = read(folder)
    assert (found.status, alarms(found)) == (Status.COMPLETE, [("temporary_left", "tmp")])


def test_a_conversion_that_died_before_its_end_is_incomplete(tmp_path: Path) -> None:
    folder = copy_sample(CONVERTED[0], tmp_path)
    (folder / "tmp").mkdir()
    (folder / "zero" / "optimizer_state.pt").unlink()
    (folder / "mp_rank_00_model_states.pt").unlink()
    found = read(folder)
    assert (found.format, found.status, found.resumable) == ("deepspeed_universal", Status.INCOMPLETE, False)


def test_optimizers_may_keep_other_states_for_other_parameters(tmp_path: Path) -> None:
    folder = copy_sample(CONVERTED[0], tmp_path)
    for name in ("0.weight", "2.weight"):
        (folder / "zero" / name / "exp_avg_sq.pt").unlink()
    assert read(folder).status is Status.COMPLETE
