from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from apps.recovery.trials import Like, Trial, blame, budget, node_group, slower, summary

NOW = datetime(2026, 5, 1, tzinfo=UTC)
ANY = Like()


def trial(
    seconds: float | None = 10.0, met: bool | None = True, days: float = 1.0, like: Like = ANY, **phases: float
) -> Trial:
    return Trial(at=NOW - timedelta(days=days), seconds=seconds, is_met=met, phases=phases, like=like)


@pytest.mark.parametrize(("count", "allowed"), [(0, 1), (1, 1), (20, 1), (39, 1), (40, 2), (60, 3), (100, 5)])
def test_five_percent_of_the_drills_and_at_least_one_may_miss(count: int, allowed: int) -> None:
    assert budget([trial()] * count, NOW).allowed == allowed


def test_the_budget_counts_late_and_failed_drills_of_28_days() -> None:
    trials = [trial(met=False), trial(None, None), trial(), trial(met=False, days=29), trial(met=None)]
    found = budget(trials, NOW)
    assert (found.trial_count, found.used, found.left) == (3, 2, -1)


@pytest.mark.parametrize(
    ("newest_first", "alarming"),
    [
        ([True, True, True, True, False, False], False),
        ([True, False, True, True, False], True),
        ([False, True, True], False),
    ],
)
def test_two_misses_in_the_newest_five_are_an_alarm(newest_first: list[bool], alarming: bool) -> None:
    assert budget([trial(met=met) for met in newest_first], NOW).is_alarming is alarming


def test_one_that_did_not_restore_is_an_alarm_at_once() -> None:
    assert budget([*[trial()] * 9, trial(None, None)], NOW).is_alarming


def test_a_regression_blames_the_phase_that_grew_most() -> None:
    before = [trial(10.0, read=6.0, verify=4.0), trial(10.1, read=6.1, verify=4.0), trial(9.9, read=5.9, verify=4.0)]
    found = slower([trial(20.0, read=7.0, verify=13.0), *before])
    assert found is not None and found.blame is not None
    assert (found.blame.phase, found.blame.seconds, found.blame.before_seconds) == ("verify", 13.0, 4.0)


def test_a_phase_that_was_never_measured_before_can_be_blamed_and_one_that_shrank_cannot() -> None:
    found = blame({"read": 1.0, "stage": 9.0}, [{"read": 2.0}])
    assert found is not None and (found.phase, found.before_seconds) == ("stage", None)
    assert blame({"read": 1.0}, [{"read": 2.0}]) is None
    assert blame({}, [{"read": 2.0}]) is None


def test_only_drills_of_its_like_are_compared() -> None:
    small, large = Like(total_bytes=100), Like(total_bytes=200)
    others = [trial(10.0, like=small)] * 9
    assert slower([trial(20.0, like=large), *others]) is None
    assert slower([trial(20.0, like=Like(total_bytes=105)), *others]) is not None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (Like(), Like(), True),
        (Like(total_bytes=100), Like(total_bytes=111), True),
        (Like(total_bytes=100), Like(total_bytes=112), False),
        (Like(total_bytes=100), Like(), False),
        (Like(cached_ratio=0.0), Like(cached_ratio=0.5), False),
        (Like(tier_id="a"), Like(tier_id="b"), False),
    ],
)
def test_what_is_alike(one: Like, other: Like, alike: bool) -> None:
    assert one.is_like(other) is alike


def test_a_summary_never_mixes_late_with_not_restored() -> None:
    found = summary([trial(), trial(met=False), trial(None, None), trial(met=None)], NOW)
    assert (found.met_count, found.breached_count, found.failed_count, found.judged_count) == (1, 1, 1, 3)
    assert found.spread is not None and found.spread.count == 3
    assert found.more_passes_needed == 124 - 3


@pytest.mark.parametrize(
    ("name", "group"),
    [("gpu-a-017", "gpu-a"), ("gpu01.east.example", "gpu"), ("h100_3", "h100"), ("17", "17"), ("login", "login")],
)
def test_nodes_that_differ_in_their_number_are_one_group(name: str, group: str) -> None:
    assert node_group(name) == group
