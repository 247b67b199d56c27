from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from muster_agent.decide.model import ResumeDecision, Skipped

from apps.recovery.verdict import LastDrill, Standing, Verdict, sentence, verdict

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def decision(**fields: Any) -> ResumeDecision:
    values: dict[str, Any] = {
        "outcome": "found",
        "path": "/ckpt/step-12400",
        "step": 12_400,
        "tier": "nvme",
        "trust": "verified",
        "as_of": (NOW - timedelta(minutes=14)).isoformat(),
    }
    return ResumeDecision(**{**values, **fields})


def drill(**fields: Any) -> LastDrill:
    values: dict[str, Any] = {
        "id": "drl_1",
        "kind": "reload",
        "outcome": "passed",
        "objective_state": "met",
        "seconds": 78.0,
        "finished_at": NOW - timedelta(hours=6),
    }
    return LastDrill(**{**values, **fields})


def standing(chosen: ResumeDecision | None = None, **fields: Any) -> Standing:
    values: dict[str, Any] = {
        "decision": chosen or decision(),
        "objective_seconds": 90.0,
        "predicted_seconds": 78.0,
        "drill": drill(),
        "lost_seconds": 192.0,
        "lost_cost": 412.0,
    }
    return Standing(**{**values, **fields})


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (standing(), Verdict.READY),
        (standing(decision(outcome="nothing_resumable", step=None, path=None)), Verdict.NOTHING_RESUMABLE),
        (standing(decision(outcome="no_checkpoints", step=None, path=None)), Verdict.NOTHING_RESUMABLE),
        (standing(decision(trust="sealed")), Verdict.NOT_PROVEN),
        (standing(decision(trust="resumed")), Verdict.READY),
        (standing(drill=drill(outcome="failed", objective_state="none")), Verdict.NOT_PROVEN),
        (standing(drill=drill(outcome="lost", objective_state="none")), Verdict.NOT_PROVEN),
        (standing(drill=drill(objective_state="breached", seconds=137.0)), Verdict.BREACHED),
        (standing(predicted_seconds=205.0), Verdict.BREACHED),
        (standing(predicted_seconds=205.0, objective_seconds=None), Verdict.READY),
        (standing(drill=None, predicted_seconds=None), Verdict.NEVER_DRILLED),
        (standing(decision(as_of=(NOW - timedelta(days=8)).isoformat())), Verdict.STALE_PROOF),
        (standing(drill=drill(finished_at=NOW - timedelta(days=31))), Verdict.STALE_PROOF),
        (standing(decision(trust="sealed"), drill=None), Verdict.NOT_PROVEN),
    ],
)
def test_the_word_is_the_worst_thing_that_is_true(state: Standing, expected: Verdict) -> None:
    assert verdict(state, NOW) is expected


def test_worst_sorts_first() -> None:
    assert sorted(Verdict, key=lambda word: word.rank)[0] is Verdict.NOTHING_RESUMABLE
    assert sorted(Verdict, key=lambda word: word.rank)[-1] is Verdict.READY


def test_a_ready_run_reads_as_what_would_happen() -> None:
    assert sentence(standing(), NOW) == (
        "Resumes at step 12,400, verified 14 min ago on nvme, predicted back in 78 s of 90 s, "
        "loses 3 min 12 s of work, about 412 in GPU time."
    )


def test_a_newer_checkpoint_that_is_passed_over_is_named_with_its_reason() -> None:
    skipped = (Skipped(path="/c/48000", step=48_000, reasons=("rank-3 differs at 12.0-16.0 MiB.",)),)
    text = sentence(standing(decision(skipped=skipped)), NOW)
    assert text.startswith(
        "Its newest checkpoint, step 48,000, is passed over: rank-3 differs at 12.0-16.0 MiB. Resumes"
    )


def test_an_older_checkpoint_that_was_skipped_is_not_mentioned() -> None:
    skipped = (Skipped(path="/c/100", step=100, reasons=("old",)),)
    assert "passed over" not in sentence(standing(decision(skipped=skipped)), NOW)


def test_what_was_not_measured_is_said_and_never_0() -> None:
    text = sentence(standing(drill=None, predicted_seconds=None, lost_seconds=None, lost_cost=None), NOW)
    assert "time to resume not measured" in text and "never drilled" in text
    assert "loses" not in text


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (standing(decision(outcome="no_checkpoints", step=None)), "scan the tier"),
        (standing(decision(outcome="nothing_resumable", step=None)), "start over"),
        (standing(drill=drill(outcome="failed")), "last drill failed 6 h ago"),
        (standing(drill=drill(objective_state="breached", seconds=137.0)), "took 2 min 17 s, over the objective"),
        (standing(drill=drill(finished_at=NOW - timedelta(days=31))), "last drill was 31 d ago"),
    ],
)
def test_the_sentence_gives_the_reason_of_the_word(state: Standing, words: str) -> None:
    assert words in sentence(state, NOW)
