from __future__ import annotations

from typing import Any

import pytest
from muster_agent.decide.lineage import SavePoint, lineages
from muster_agent.decide.model import Candidate, ResumeDecision, ResumeRequest
from muster_agent.decide.resume import decide
from muster_agent.protocol.trust import Trust

HOUR = 3600.0


def saved(step: int, hours_ago: float, **changes: Any) -> Candidate:
    fields: dict[str, Any] = {
        "path": f"/run/checkpoint-{step}",
        "format": "hf_trainer",
        "status": "complete",
        "resumable": True,
        "trust": Trust.COMPLETE,
        "age_seconds": hours_ago * HOUR,
        **changes,
    }
    return Candidate(step=step, **fields)


def ask(*candidates: Candidate, **request: Any) -> ResumeDecision:
    return decide(candidates, ResumeRequest(**request))


def steps(points: list[SavePoint]) -> list[list[int]]:
    return [[one.step for one in history] for history in lineages(points).certain]


def point(step: int, seconds: float, total_bytes: int = 0) -> SavePoint:
    return SavePoint(f"/run/{step}", step, seconds, total_bytes)


OLD = (saved(500, 30), saved(600, 29), saved(700, 28))


def test_a_second_run_in_the_same_folder_is_another_history() -> None:
    found = ask(*OLD, saved(100, 3), saved(200, 2), saved(300, 1))
    assert (found.outcome, found.step) == ("found", 300)
    assert {one.step for one in found.skipped} == {500, 600, 700}
    assert "older history of training" in found.skipped[0].reasons[0] and "--step 700" in found.skipped[0].reasons[0]


def test_a_named_step_of_the_older_history_is_given() -> None:
    assert ask(*OLD, saved(100, 3), saved(200, 2), step=700).step == 700


def test_the_older_history_is_never_taken_silently_where_the_newer_has_nothing() -> None:
    bad: dict[str, Any] = {"status": "corrupt", "resumable": False}
    found = ask(*OLD, saved(100, 3, **bad), saved(200, 2, **bad))
    assert found.outcome == "nothing_resumable"
    assert {one.step for one in found.skipped} == {500, 600, 700, 100, 200}


def test_steps_before_the_branch_belong_to_both() -> None:
    found = ask(saved(500, 30), saved(600, 5), saved(700, 28), saved(550, 6))
    assert found.step == 600
    assert [one.step for one in found.skipped] == [700]
    bad = [saved(step, hours, status="corrupt", resumable=False) for step, hours in ((550, 6), (600, 5))]
    assert ask(saved(500, 30), saved(700, 28), *bad).step == 500


@pytest.mark.parametrize(
    ("order", "chosen"),
    [
        ([(500, 0), (600, 3600), (700, 7200), (100, 90_000), (200, 93_600), (300, 97_200)], 300),
        ([(700, 0), (100, 90_000), (200, 93_600), (300, 97_200)], 300),
        ([(1000, 0), (2000, 200), (500, 400)], 2000),
        ([(1000, 0), (2000, 300), (300, 600), (500, 900)], 2000),
        ([(500, 0), (2000, 200), (1000, 400), (1500, 600), (1800, 800)], 2000),
        ([(100, 0), (200, 86_400), (300, 172_800), (100, 400_000)], 300),
        ([(500, 0), (600, 3600), (700, 7200), (100, 90_000), (200, 90_100), (300, 90_200)], 700),
        ([(700, 0), (100, 90_000)], 700),
    ],
    ids=[
        "second_run",
        "second_run_beside_one",
        "copy_by_name",
        "longer_copy_by_name",
        "copy_in_any_order",
        "put_back",
        "burst",
        "one_lower",
    ],
)
def test_only_a_run_of_rising_steps_at_a_trainings_pace_goes_before_a_higher_step(
    order: list[tuple[int, float]], chosen: int
) -> None:
    times = dict(order)
    assert ask(*(saved(step, 1000 - seconds / HOUR) for step, seconds in times.items())).step == chosen


def test_rising_steps_are_one_history_however_long_the_pauses() -> None:
    assert steps([point(10, 0), point(20, 90_000), point(30, 90_010)]) == [[10, 20, 30]]


def test_files_copied_in_the_order_of_their_names_are_no_history() -> None:
    assert steps([point(1000, 0), point(1100, 5), point(200, 10), point(300, 12)]) == [[1000, 1100, 200, 300]]


def test_large_files_copied_one_after_another_are_no_history() -> None:
    large = 500_000_000_000
    assert steps([point(1000, 0, large), point(200, 900, large), point(300, 1800, large)]) == [[1000, 200, 300]]


def test_one_file_repaired_later_makes_no_new_history() -> None:
    repaired = saved(500, 0.1, files_age_seconds=30 * HOUR)
    assert ask(repaired, saved(600, 29), saved(700, 28)).step == 700


def test_copies_in_other_folders_are_not_held_against_each_other() -> None:
    assert ask(saved(700, 28), saved(600, 1, path="/other-tier/checkpoint-600")).step == 700


def test_a_conversion_of_an_older_step_is_no_new_history() -> None:
    assert ask(saved(40, 5), saved(20, 1, path="/run/global_step20_universal", format="deepspeed_universal")).step == 40
