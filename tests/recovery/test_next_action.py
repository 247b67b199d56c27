"""What to do next for a run follows from why it is not ready."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from muster_agent.decide.model import Skipped
from recovery.test_verdict import NOW, decision, drill, saved, standing

from apps.recovery.next_action import Action, next_action
from apps.recovery.verdict import Inventory, Restart, Standing

PASSED_OVER = (Skipped(path="/c/48000", step=48_000, reasons=("rank-3 is missing",)),)
DAMAGED = (Skipped(path="/c/48000", step=48_000, reasons=("it is damaged: chunk 3",)),)


@pytest.mark.parametrize(
    ("state", "action", "words"),
    [
        (standing(decision(outcome="no_checkpoints", step=None)), Action.SCAN, "Scan"),
        (standing(decision(outcome="unknown", step=None, skipped=PASSED_OVER)), Action.SCAN, "Scan again"),
        (
            standing(decision(outcome="nothing_resumable", step=None, skipped=PASSED_OVER)),
            Action.LOOK_AT_CHECKPOINT,
            "See what step 48,000 lacks",
        ),
        (standing(decision(trust="complete")), Action.SEAL, "Seal step 12,400"),
        (standing(decision(trust="sealed")), Action.VERIFY, "Verify step 12,400"),
        (standing(drill=drill(outcome="failed")), Action.LOOK_AT_DRILL, "See why it failed"),
        (standing(predicted_seconds=205.0), Action.SHORTEN_RESTART, "See what takes longest"),
        (standing(loss_objective_seconds=60.0), Action.SAVE_MORE_OFTEN, "See how often to save"),
        (standing(drill=None, restart=None), Action.DRILL_RELOAD, "Drill a reload"),
        (standing(drill=drill(kind="reload"), restart=None), Action.DRILL_FAILOVER, "Time a restart"),
        (standing(inventory=saved(seconds_ago=121)), Action.SCAN, "Scan again"),
        (standing(inventory=Inventory(seen_at=NOW - timedelta(minutes=16))), Action.SCAN, "Scan again"),
        (
            standing(decision(as_of=(NOW - timedelta(days=8)).isoformat())),
            Action.VERIFY,
            "Verify step 12,400 again",
        ),
        (standing(restart=Restart(NOW - timedelta(days=31), 78.0)), Action.DRILL_FAILOVER, "Time a restart again"),
        (standing(objective_seconds=None), Action.SET_OBJECTIVE, "Set an objective"),
        (standing(decision(skipped=DAMAGED)), Action.LOOK_AT_CHECKPOINT, "See the damage of step 48,000"),
    ],
)
def test_the_next_action_takes_away_the_reason_of_the_word(state: Standing, action: Action, words: str) -> None:
    found = next_action(state, NOW)
    assert found is not None
    assert (found.action, found.words) == (action, words)


def test_a_ready_run_with_an_objective_needs_nothing() -> None:
    assert next_action(standing(), NOW) is None


def test_each_action_is_reached_by_some_run() -> None:
    marks: Any = next(
        mark
        for mark in test_the_next_action_takes_away_the_reason_of_the_word.pytestmark
        if mark.name == "parametrize"  # type: ignore[attr-defined]
    )
    assert {case[1] for case in marks.args[1]} == set(Action)
