"""The comparison of a resumed run with its reference sees what differs and never counts what it did not see."""

from __future__ import annotations

from deploy.demo.losses import AttemptLosses, Comparison, compare, parse_attempts

LOG = (
    "step 1 loss 0.5\nstep 2 loss 0.25\nsaved step 2 at /run/step-2\nstep 3 loss 0.2\n"
    "resumed from step 2 at /run/step-2\n"
)


def test_attempts_are_told_apart_where_one_resumed() -> None:
    assert parse_attempts(LOG + "step 3 loss 0.2\nstep 4 loss 0.1\n") == [
        AttemptLosses(resumed_from=None, losses={1: "0.5", 2: "0.25", 3: "0.2"}),
        AttemptLosses(resumed_from=2, losses={3: "0.2", 4: "0.1"}),
    ]


def test_an_attempt_without_a_step_is_left_out() -> None:
    assert [attempt.resumed_from for attempt in parse_attempts(LOG)] == [None]
    assert parse_attempts("") == []


def test_a_line_that_a_kill_cut_short_is_no_figure() -> None:
    assert parse_attempts("step 1 loss 0.5\nstep 2 loss 0.2")[0].losses == {1: "0.5"}


def test_equal_losses_are_counted() -> None:
    assert compare({3: "0.2", 4: "0.1"}, {1: "0.5", 3: "0.2", 4: "0.1"}) == Comparison(
        compared_steps=2, first_difference=None
    )


def test_the_first_difference_is_named_down_to_the_last_bit() -> None:
    assert compare({3: "0.2", 4: "0.1", 5: "9"}, {3: "0.2", 4: "0.10000000000000002", 5: "8"}) == Comparison(
        compared_steps=3, first_difference=(4, "0.1", "0.10000000000000002")
    )


def test_nothing_in_common_compares_nothing() -> None:
    assert compare({1: "0.5"}, {2: "0.5"}).compared_steps == 0
