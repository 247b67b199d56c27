"""When the copies on a colder tier fall behind."""

from __future__ import annotations

import pytest

from apps.checkpoints.tier_lag import TierSteps, lags


def tier(name: str, order: int, *steps: int) -> TierSteps:
    return TierSteps(name, order, steps)


def test_a_cold_tier_that_stopped_at_an_old_step_is_named_with_what_lies_on_the_hot_one_only() -> None:
    (found,) = lags([tier("nvme", 0, *range(10, 31)), tier("nas", 1, 7, 8, 9)])
    assert found.sentence == (
        "nas is behind: its newest whole checkpoint is step 9, that of nvme is step 30; 21 newer steps lie on nvme only"
    )


def test_each_tier_that_is_behind_is_named() -> None:
    found = lags([tier("nvme", 0, 100, 200, 300, 400), tier("nas", 1, 100), tier("cold", 2, 100), tier("warm", 1, 400)])
    assert [(one.behind, one.only_count) for one in found] == [("cold", 3), ("nas", 3)]


@pytest.mark.parametrize(
    "tiers",
    [
        [],
        [tier("nvme", 0, 10, 20, 30)],
        [tier("nvme", 0, 10, 20, 30), tier("nas", 1)],
        [tier("nvme", 0, 10, 20, 30), tier("nas", 1, 30)],
        [tier("nvme", 0, 10, 20, 30), tier("nas", 1, 10)],  # two saves: one copy under way, one about to
        [tier("nvme", 0, 960, 970, 980, 990, 1000), tier("nas", 1, 700, 800, 900)],  # takes every tenth
        [tier("nvme", 0, 10), tier("nas", 1, 10, 20, 30)],  # the hot tier was cleaned; that is no loss of work
        [tier("nvme", 0, 30), tier("nas", 1, 30)],
    ],
    ids=["none", "one tier", "no target", "up to date", "under way", "its own rhythm", "hot one cleaned", "one step"],
)
def test_what_is_as_it_should_be_gives_no_warning(tiers: list[TierSteps]) -> None:
    assert lags(tiers) == []


def test_two_single_steps_far_apart_are_a_lag() -> None:
    assert len(lags([tier("nvme", 0, 30), tier("nas", 1, 9)])) == 1
