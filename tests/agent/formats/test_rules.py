from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.rules import Rule, RulesInvalid, parse_rules, rule_for
from muster_agent.formats.walk import Inventory, inventory

from tests.agent.formats.damage import age, copy_sample

RULES = {"rules": [{"match": "step_*", "requires": ["trainer", "orchestrator"]}]}


def run_of_two_parts(to: Path) -> Path:
    """Steps 10 and 15 of a run whose trainer and orchestrator save apart; 15 lacks the orchestrator's part."""
    run = to / "run"
    for step, sample in ((10, "dcp/w2/step-10"), (15, "dcp/torchtitan/step-15")):
        trainer = copy_sample(sample, to)
        (run / f"step_{step}").mkdir(parents=True)
        shutil.move(trainer, run / f"step_{step}" / "trainer")
    (run / "step_10" / "orchestrator").mkdir()
    (run / "step_10" / "orchestrator" / "progress.json").write_text("{}")
    age(run)
    return run


def by_step(found: Inventory) -> dict[int | None, ShardMap]:
    return {one.step: one for one in found.checkpoints}


def state_of(shard_map: ShardMap) -> tuple[Status, bool]:
    return shard_map.status, shard_map.resumable


def test_a_step_is_read_through_the_parts_that_it_is_made_of(tmp_path: Path) -> None:
    whole = inventory(run_of_two_parts(tmp_path) / "step_10").checkpoints[0]
    assert (whole.format, whole.status, whole.world_size, whole.resumable) == ("dcp", Status.COMPLETE, 2, True)
    paths = {shard.path for shard in whole.shards}
    assert {"trainer/__0_0.distcp", "trainer/.metadata", "orchestrator/progress.json"} <= paths


def test_damage_to_a_part_is_damage_to_the_step(tmp_path: Path) -> None:
    run = run_of_two_parts(tmp_path)
    (run / "step_10" / "trainer" / "__1_0.distcp").unlink()
    broken = inventory(run / "step_10").checkpoints[0]
    assert broken.status is Status.INCOMPLETE
    assert "trainer/__1_0.distcp" in {found.path for found in broken.findings}


@pytest.mark.parametrize("at_root", [True, False])
def test_a_step_without_a_required_part_is_incomplete(tmp_path: Path, at_root: bool) -> None:
    run = run_of_two_parts(tmp_path)
    if at_root:
        (run / ".muster-rules.json").write_text(json.dumps(RULES))
    rules = () if at_root else parse_rules(json.dumps(RULES).encode())
    steps = by_step(inventory(run, rules=rules))
    assert state_of(steps[10]) == (Status.COMPLETE, True)
    assert state_of(steps[15]) == (Status.INCOMPLETE, False)
    assert [found.path for found in steps[15].findings if found.code == "shard_missing"] == ["orchestrator"]


def test_a_step_that_lacks_a_part_and_is_young_may_still_be_written(tmp_path: Path) -> None:
    run = run_of_two_parts(tmp_path)
    age(run, 0)
    steps = by_step(inventory(run, rules=parse_rules(json.dumps(RULES).encode())))
    assert steps[15].status is Status.IN_PROGRESS


def test_a_rule_holds_where_only_the_newest_good_step_is_wanted(tmp_path: Path) -> None:
    run = run_of_two_parts(tmp_path)
    (run / ".muster-rules.json").write_text(json.dumps(RULES))
    found = inventory(run, enough=lambda one, _pointers: one.resumable)
    assert {one.step: one.resumable for one in found.checkpoints}[10] is True


@pytest.mark.parametrize(("marker", "status"), [("_SUCCESS", Status.COMPLETE), ("other", Status.UNCOMMITTED)])
def test_a_marker_of_the_site_s_own_says_whether_a_save_ended(tmp_path: Path, marker: str, status: Status) -> None:
    step = copy_sample("dcp/w2/step-10", tmp_path / "run")
    (step / marker).touch()
    rules = (Rule(match="step-*", markers=("_SUCCESS", ".complete")),)
    age(step)
    assert inventory(step.parent, rules=rules).checkpoints[0].status is status


def test_each_rank_must_leave_its_marker(tmp_path: Path) -> None:
    step = copy_sample("dcp/w2/step-10", tmp_path / "run")
    (step / ".rank_0_complete").touch()
    age(step)
    rules = (Rule(match="run/step-*", rank_marker=".rank_{rank}_complete"),)
    found = inventory(step.parent, rules=rules).checkpoints[0]
    assert found.status is Status.UNCOMMITTED and not found.resumable
    assert ".rank_1_complete" in {one.path for one in found.findings}
    (step / ".rank_1_complete").touch()
    age(step)
    assert inventory(step.parent, rules=rules).checkpoints[0].status is Status.COMPLETE


def test_the_last_parts_of_a_path_are_matched() -> None:
    rule = Rule(match="llama/step_*")
    assert rule_for([rule], "/ckpt/llama/step_8") is rule
    assert rule_for([rule], "/ckpt/llama/old/step_8") is None
    assert rule_for([rule], "/ckpt/llama/step_8/trainer") is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"rules": [{}]}',
        b'{"rules": [{"match": ""}]}',
        b'{"rules": [{"match": "a", "unknown": 1}]}',
        b'{"rules": [{"match": "a", "requires": ["../b"]}]}',
        b'{"rules": [{"match": "a", "requires": ["b/c"]}]}',
        b'{"rules": [{"match": "a", "rank_marker": "done"}]}',
        b'{"rules": [{"match": "a", "step": "(a+)+(\\\\d+)"}]}',
        b"[" * 100_000,
    ],
)
def test_a_file_of_rules_that_cannot_be_used_is_refused(text: bytes) -> None:
    with pytest.raises(RulesInvalid):
        parse_rules(text)


def test_an_unusable_file_at_the_root_is_told_and_hides_nothing(tmp_path: Path) -> None:
    run = run_of_two_parts(tmp_path)
    (run / ".muster-rules.json").write_text("{")
    found = inventory(run)
    assert len(found.checkpoints) == 2
    assert [one.code for one in found.findings] == ["metadata_unreadable"]
