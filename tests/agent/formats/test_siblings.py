from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from muster_agent.formats.base import Role, ShardEntry, ShardMap, Status
from muster_agent.formats.sibling_parts import without_parts
from muster_agent.formats.siblings import compare, grace_seconds_by_folder, unique_bytes
from muster_agent.formats.verdict import AgeLimit
from muster_agent.formats.walk import inventory

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age

HOUR_NS = 3600 * 1_000_000_000
NOW_NS = 2_000_000 * 1_000_000_000


def shard(
    path: str, role: Role = Role.MODEL, size_bytes: int = 1000, hours_ago: float = 1.0, **changes: Any
) -> ShardEntry:
    return ShardEntry(
        path=path, role=role, size_bytes=size_bytes, mtime_ns=NOW_NS - int(hours_ago * HOUR_NS), **changes
    )


def made(step: int, *shards: ShardEntry, hours_ago: float = 1.0, name: str = "", **changes: Any) -> ShardMap:
    own = shards or (shard("model.pt", hours_ago=hours_ago), shard("optimizer.pt", Role.OPTIMIZER, 2000, hours_ago))
    fields: dict[str, Any] = {"status": Status.COMPLETE, "resumable": True, "format": "dcp", **changes}
    newest = max(one.mtime_ns or 0 for one in own)
    path = f"/run/{name or f'step-{step}'}"
    return ShardMap(path=path, run="run", step=step, shards=own, newest_mtime_ns=newest, **fields)


def codes(shard_maps: Sequence[ShardMap]) -> dict[str, list[str]]:
    return {os.path.basename(one.path): [found.code for found in one.findings] for one in compare(shard_maps)}


def detail(shard_maps: Sequence[ShardMap], name: str) -> str:
    return next(one.findings[0].detail for one in compare(shard_maps) if os.path.basename(one.path) == name)


def test_ordinary_steps_say_nothing_of_each_other() -> None:
    steps = [made(30, hours_ago=1), made(20, hours_ago=2), made(10, hours_ago=3)]
    assert compare(steps) == steps


# -- two of one step ---------------------------------------------------------------------------------------------------
def test_names_that_differ_in_padding_only_are_one_step_twice() -> None:
    twins = [made(100), made(100, name="step-0000100")]
    assert codes(twins) == {"step-100": ["duplicate_step"], "step-0000100": ["duplicate_step"]}
    assert "how the step is written" in detail(twins, "step-100")


def test_a_last_checkpoint_is_no_second_one_of_its_step() -> None:
    assert codes([made(6, name="epoch=0-step=6.ckpt"), made(6, name="last.ckpt")])["last.ckpt"] == []


def test_a_conversion_is_no_second_one_of_its_step() -> None:
    pair = [made(4, name="global_step4", format="deepspeed"), made(4, name="x", format="deepspeed_universal")]
    assert codes(pair) == {"global_step4": [], "x": []}


def test_hard_linked_copies_are_named_as_such_and_counted_once(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path / "run", 100, rank_bytes=300, world_size=2)
    shutil.copytree(first, tmp_path / "run" / "step-100", copy_function=os.link)
    age(tmp_path / "run")
    found = inventory(tmp_path / "run").checkpoints
    assert [[each.code for each in one.findings] for one in found] == [["duplicate_step"]] * 2
    assert "hard links" in found[0].findings[0].detail
    assert unique_bytes(found) == found[0].total_bytes == found[1].total_bytes


def test_files_with_one_name_are_all_counted() -> None:
    assert unique_bytes([made(10), made(20)]) == 6000


# -- two histories -----------------------------------------------------------------------------------------------------
def test_steps_that_go_back_while_time_goes_on_are_two_histories() -> None:
    run = [made(500, hours_ago=30), made(600, hours_ago=29), made(700, hours_ago=28)]
    run += [made(100, hours_ago=2), made(200, hours_ago=1)]
    told = ("step-500", "step-600", "step-700", "step-100")
    assert codes(run) == {"step-200": []} | {name: ["second_lineage"] for name in told}
    assert "step 100 was saved" in detail(run, "step-700") and "older one: 500, 600, 700" in detail(run, "step-100")


def test_one_lower_step_saved_later_is_a_doubt_and_no_history() -> None:
    run = [made(600, hours_ago=29), made(700, hours_ago=28), made(100, hours_ago=1)]
    assert codes(run) == {name: ["second_lineage"] for name in ("step-600", "step-700", "step-100")}
    assert "highest step counts" in detail(run, "step-700") and "--step" in detail(run, "step-700")


def test_a_checkpoint_of_unknown_step_is_in_no_history() -> None:
    unknown = msgspec.structs.replace(made(5, name="final", hours_ago=0), step=None)
    assert codes([made(10, hours_ago=5), unknown]) == {"step-10": [], "final": []}


# -- less than the steps around it -------------------------------------------------------------------------------------
def smaller(step: int, **changes: Any) -> ShardMap:
    return made(step, shard("model.pt"), shard("optimizer.pt", Role.OPTIMIZER, 1000), **changes)


def test_a_step_with_less_state_than_those_around_it_is_named() -> None:
    run = [made(10), smaller(20), made(30)]
    assert codes(run) == {"step-10": [], "step-20": ["state_shrank"], "step-30": []}
    assert "2,000 bytes, and that of step 10 has 3,000" in detail(run, "step-20")


def test_the_newest_step_is_held_against_the_one_before() -> None:
    assert codes([made(10), made(20), smaller(30)])["step-30"] == ["state_shrank"]


def test_what_stays_small_was_made_smaller_on_purpose() -> None:
    assert set(sum(codes([made(10), smaller(20), smaller(30), smaller(40)]).values(), [])) == set()


def test_growing_state_is_no_alarm() -> None:
    assert codes([smaller(10), made(20)]) == {"step-10": [], "step-20": []}


def test_another_number_of_ranks_with_the_same_state_is_no_alarm() -> None:
    four = made(20, *(shard(f"__{rank}_0.distcp", size_bytes=750) for rank in range(4)))
    assert codes([made(10), four, made(30)])["step-20"] == []


def test_a_sub_folder_that_the_steps_around_have_is_missed() -> None:
    def step(number: int, *parts: str) -> ShardMap:
        return made(number, *(shard(f"{part}/__0_0.distcp", size_bytes=10) for part in parts))

    run = [step(6, "trainer", "orchestrator"), step(7, "trainer", "orchestrator"), step(8, "trainer")]
    assert codes(run)["step-8"] == ["state_shrank"] and "orchestrator" in detail(run, "step-8")
    renamed = [made(10, shard("global_step10/a.pt")), made(20, shard("global_step20/a.pt"))]
    assert codes(renamed)["step-20"] == []


def test_loader_state_may_be_of_any_size() -> None:
    def step(number: int, loader_bytes: int) -> ShardMap:
        return made(number, shard("model.pt"), shard("loader.pt", Role.DATALOADER, loader_bytes))

    assert codes([step(10, 9000), step(20, 100), step(30, 9000)])["step-20"] == []


# -- files of an earlier save ------------------------------------------------------------------------------------------
def test_state_left_by_an_earlier_save_into_the_same_folder_is_named() -> None:
    old = shard("loader_rank1.pt", Role.DATALOADER, hours_ago=40)
    run = [
        made(
            10, shard("model.pt"), shard("optimizer.pt", Role.OPTIMIZER), shard("loader_rank0.pt", Role.DATALOADER), old
        )
    ]
    assert codes(run)["step-10"] == ["world_size_mismatch"] and "loader_rank1.pt" in detail(run, "step-10")


def test_a_long_save_and_a_repaired_file_are_no_generations() -> None:
    slow = made(10, *(shard(f"s{index}", hours_ago=4 - index / 2) for index in range(6)))
    repaired = made(20, *(shard(f"s{index}", hours_ago=50 if index else 1) for index in range(6)))
    assert codes([slow])["step-10"] == [] and codes([repaired])["step-20"] == []


def test_files_kept_from_step_to_step_are_no_leftovers() -> None:
    kept = shard("frozen.pt", hours_ago=40, shared_file="1:2")
    assert codes([made(10, kept, shard("a.pt"), shard("b.pt"))])["step-10"] == []


# -- how long a save takes ---------------------------------------------------------------------------------------------
def test_the_grace_period_follows_how_long_the_runs_saves_take() -> None:
    slow = [made(step, shard("a", hours_ago=1.5), shard("b", hours_ago=1.0)) for step in (10, 20)]
    assert grace_seconds_by_folder(slow) == {"/run": 3 * 1800.0}
    assert grace_seconds_by_folder([made(10)]) == {}


@pytest.mark.parametrize(("minutes_ago", "status"), [(20, Status.IN_PROGRESS), (200, Status.INCOMPLETE)])
def test_a_slow_run_is_given_more_time(tmp_path: Path, minutes_ago: int, status: Status) -> None:
    run = tmp_path / "run"
    for step in (10, 20):
        place = write_checkpoint(run, step, rank_bytes=300, world_size=2)
        age(place, 86_400)
        late = time.time() - 86_400 + 1800
        os.utime(place / "checkpoint.json", (late, late))
    place = write_checkpoint(run, 30, rank_bytes=300, world_size=2)
    (place / "checkpoint.json").unlink()
    (place / "rank-00001-of-00002.safetensors").unlink()
    age(place, minutes_ago * 60)
    assert inventory(run).checkpoints[0].status is status


# -- a step made of parts that lacks one -------------------------------------------------------------------------------
def in_parts(step: int, *parts: str, **changes: Any) -> ShardMap:
    return made(step, *(shard(f"{part}/__0_0.distcp") for part in parts), **changes)


def judged(*steps: ShardMap, age_seconds: float = 3600) -> dict[int | None, Status]:
    limit = AgeLimit(NOW_NS / 1e9 - 3600 + age_seconds, 600)
    return {one.step: one.status for one in without_parts(steps, limit)}


def test_a_step_without_a_part_that_all_others_have_is_incomplete_or_still_running() -> None:
    run = in_parts(8, "trainer"), in_parts(7, "trainer", "orchestrator"), in_parts(6, "trainer", "orchestrator")
    assert judged(*run) == {8: Status.INCOMPLETE, 7: Status.COMPLETE, 6: Status.COMPLETE}
    assert judged(*run, age_seconds=60)[8] is Status.IN_PROGRESS
    lacking = without_parts(run, AgeLimit(NOW_NS / 1e9, 600))[0]
    assert not lacking.resumable and "orchestrator" in lacking.not_resumable_reasons[0]
    assert [(one.code, one.path) for one in lacking.findings] == [("shard_missing", "orchestrator")]


def test_steps_are_ordered_by_their_names_where_the_state_inside_counts_otherwise() -> None:
    run = in_parts(5, "trainer", name="step-8"), in_parts(5, "trainer", "orchestrator", name="step-7")
    assert [one.status for one in without_parts(run, AgeLimit(NOW_NS / 1e9, 600))][0] is Status.INCOMPLETE


@pytest.mark.parametrize(
    "run",
    [
        [in_parts(8, "trainer"), in_parts(7, "trainer", "eval_results")],
        [in_parts(8, "trainer"), in_parts(7, "trainer", "Samples"), in_parts(6, "trainer", "Samples")],
        [in_parts(8, "trainer", "orchestrator"), in_parts(7, "trainer")],
        [in_parts(8, "actor", "rollout"), in_parts(7, "actor", "orchestrator")],
        [in_parts(9, "trainer"), in_parts(8, "trainer"), in_parts(7, "trainer", "orchestrator")],
        [in_parts(8, "trainer"), in_parts(7, "trainer", "orchestrator", format="other")],
        [in_parts(8, "trainer"), in_parts(7, "trainer", "orchestrator", status=Status.CORRUPT)],
        [in_parts(7, "mp_rank_00"), in_parts(6, "mp_rank_00", "mp_rank_01")],
    ],
)
def test_a_folder_that_only_some_steps_have_need_not_be_there(run: list[ShardMap]) -> None:
    assert without_parts(run, AgeLimit(NOW_NS / 1e9, 600)) == run


def test_what_all_older_steps_have_and_the_two_newest_have_not_is_named_on_both() -> None:
    older = [in_parts(step, "trainer", "orchestrator") for step in (5, 6, 7)]
    run = [*older, in_parts(8, "trainer"), in_parts(9, "trainer")]
    found = codes(run)
    assert {name for name, listed in found.items() if "state_shrank" in listed} == {"step-8", "step-9"}
    assert "all 3 older steps here have orchestrator, and the 2 newest have not" in detail(run, "step-9")
    rng = shard("rng_state_0.pth", Role.RNG, 10)
    files = [made(step, shard("model.pt"), *([rng] if step < 40 else [])) for step in (10, 20, 30, 40, 50)]
    assert codes(files)["step-50"] == ["state_shrank"] and codes(files)["step-30"] == []


@pytest.mark.parametrize(
    "run",
    [
        [in_parts(7, "trainer", "critic"), in_parts(8, "trainer"), in_parts(9, "trainer")],
        [in_parts(step, "trainer", *(["critic"] if step < 4 else [])) for step in range(1, 9)],
        [in_parts(step, "trainer", "old" if step < 5 else "new") for step in range(1, 7)],
        [in_parts(step, "trainer", *(["eval"] if step < 5 else [])) for step in range(1, 7)],
        [in_parts(step, "trainer", f"mp_rank_{step:02d}") for step in range(1, 7)],
    ],
)
def test_what_came_out_of_use_or_got_another_name_is_no_alarm(run: list[ShardMap]) -> None:
    assert not any("state_shrank" in listed for listed in codes(run).values())


def test_a_kind_of_file_that_every_other_step_has_is_missed() -> None:
    rng = [shard(f"rng_state_{rank}.pth", Role.RNG, 10) for rank in range(2)]
    run = [made(step, shard("model.pt"), *(rng if step != 20 else [])) for step in (10, 20, 30)]
    assert codes(run) == {"step-10": [], "step-20": ["state_shrank"], "step-30": []}
    assert "every other step here has rng_state_N.pth" in detail(run, "step-20")


def test_a_file_under_another_name_is_no_file_less() -> None:
    run = [made(10, shard("pytorch_model.bin")), made(20, shard("pytorch_model.bin")), made(30, shard("model.st"))]
    assert codes(run)["step-30"] == []


@pytest.mark.parametrize("other", ["checkpoint-best", "model_final.pth", "best.pt"])
def test_what_is_kept_as_the_best_or_the_final_one_is_no_second_one_of_its_step(other: str) -> None:
    assert codes([made(30), made(30, name=other)]) == {"step-30": [], other: []}


def test_a_conversion_of_a_step_is_not_held_to_what_the_steps_hold() -> None:
    rng = shard("train.pt", Role.RNG, 10)
    steps = [made(step, shard("model.pt"), rng) for step in (10, 20, 30)]
    converted = made(30, shard("model.pt"), name="step-30-unsharded")
    assert not any(codes([*steps, converted]).values())


@pytest.mark.parametrize("other", ["30.orbax-checkpoint-tmp", "30_universal", "30-unsharded", "30_hf", "30-last"])
def test_what_is_unfinished_or_converted_is_no_second_one_of_its_step(other: str) -> None:
    assert codes([made(30, name="30"), made(30, name=other)]) == {"30": [], other: []}


@pytest.mark.parametrize("lost", ["scheduler.bin", "sampler.bin", "random_states_1.pkl"])
def test_state_that_every_other_save_of_accelerate_has_is_missed(lost: str) -> None:
    names = {"scheduler.bin": Role.SCHEDULER, "sampler.bin": Role.DATALOADER}
    names |= {f"random_states_{rank}.pkl": Role.RNG for rank in range(2)}

    def save(number: int, without: str = "") -> ShardMap:
        state = [shard(name, role) for name, role in names.items() if name != without]
        own = (shard("model.safetensors"), shard("optimizer.bin", Role.OPTIMIZER, 2000), *state)
        return made(number, *own, name=f"checkpoint_{number}", format="accelerate")

    for run in ([save(0), save(1, lost)], [save(0), save(1), save(2, lost)], [save(0), save(1, lost), save(2)]):
        assert [name for name, found in codes(run).items() if found] == [
            next(os.path.basename(one.path) for one in run if lost not in {each.path for each in one.shards})
        ]
