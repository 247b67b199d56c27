from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from muster_agent.decide.model import Candidate, ResumeDecision, ResumeRequest, Skipped
from muster_agent.decide.resume import reasons_against

from apps.recovery.sentence import About, Known, parts, sentence
from apps.recovery.verdict import Inventory, LastDrill, Restart, Standing, Verdict, verdict

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
        "kind": "failover",
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
        "restart": Restart(NOW - timedelta(hours=6), 78.0),
        "lost_seconds": 192.0,
        "lost_cost": 412.0,
    }
    return Standing(**{**values, **fields})


def saved(step: int = 12_440, seconds_ago: float = 30.0, **fields: Any) -> Inventory:
    """The inventory of a minute ago knows step 12,400; the job reported `step` as saved."""
    values: dict[str, Any] = {"seen_at": NOW - timedelta(minutes=1), "newest_step": 12_400}
    return Inventory(**{**values, **fields}, saved_step=step, saved_at=NOW - timedelta(seconds=seconds_ago))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (standing(), Verdict.READY),
        (standing(decision(outcome="nothing_resumable", step=None, path=None)), Verdict.NOTHING_RESUMABLE),
        (standing(decision(outcome="no_checkpoints", step=None, path=None)), Verdict.NOTHING_RESUMABLE),
        (standing(decision(trust="sealed")), Verdict.NOT_PROVEN),
        (standing(decision(trust="resumed")), Verdict.READY),
        (standing(drill=drill(outcome="failed", objective_state="none")), Verdict.DRILL_FAILED),
        (standing(drill=drill(outcome="lost", objective_state="none")), Verdict.DRILL_FAILED),
        (standing(decision(trust="resumed"), drill=drill(kind="herd", outcome="failed")), Verdict.DRILL_FAILED),
        (standing(decision(trust="sealed"), drill=drill(outcome="failed")), Verdict.NOT_PROVEN),
        (standing(drill=drill(objective_state="breached", seconds=137.0)), Verdict.BREACHED),
        (standing(predicted_seconds=205.0), Verdict.BREACHED),
        (standing(predicted_seconds=205.0, objective_seconds=None), Verdict.READY),
        (standing(drill=drill(kind="reload", objective_state="breached")), Verdict.READY),
        (standing(restart=Restart(NOW, 91.0)), Verdict.BREACHED),
        (standing(restart=Restart(NOW, 91.0), objective_seconds=None), Verdict.READY),
        (standing(drill=None, restart=None, predicted_seconds=None), Verdict.NEVER_DRILLED),
        (standing(drill=None), Verdict.READY),
        (standing(drill=drill(kind="reload"), restart=None), Verdict.RESTART_UNTIMED),
        (standing(drill=drill(kind="herd"), restart=None, objective_seconds=None), Verdict.RESTART_UNTIMED),
        (standing(decision(as_of=(NOW - timedelta(days=8)).isoformat())), Verdict.STALE_PROOF),
        (standing(restart=Restart(NOW - timedelta(days=31), 78.0)), Verdict.STALE_PROOF),
        (standing(inventory=Inventory(seen_at=NOW - timedelta(minutes=14))), Verdict.READY),
        (standing(inventory=Inventory(seen_at=NOW - timedelta(minutes=16))), Verdict.STALE_PROOF),
        (standing(inventory=saved(seconds_ago=30)), Verdict.READY),
        (standing(inventory=saved(seconds_ago=121)), Verdict.STALE_PROOF),
        (standing(inventory=saved(step=12_400, seconds_ago=121)), Verdict.READY),
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
        "Resumes at step 12,400, verified 14 min ago on nvme, predicted back in 78 s of 90 s (78 s measured 6 h ago), "
        "loses 3 min 12 s of work, about 412 in GPU time."
    )


def test_a_newer_checkpoint_that_is_passed_over_is_named_with_its_reason() -> None:
    skipped = (Skipped(path="/c/48000", step=48_000, reasons=("rank-3 differs at 12.0-16.0 MiB.",)),)
    text = sentence(standing(decision(skipped=skipped)), NOW)
    assert text.startswith(
        "Its newest checkpoint, step 48,000, is passed over: rank-3 differs at 12.0-16.0 MiB. Resumes"
    )


def test_a_damaged_checkpoint_is_called_so_without_its_byte_ranges() -> None:
    reasons = reasons_against(
        Candidate(
            path="/c/48000",
            step=48_000,
            format="dcp",
            status="complete",
            resumable=True,
            damage=("rank-0: bytes 4 to 8 differ (audit aud_1 at 2026-11-30T09:00:00Z)",),
        ),
        ResumeRequest(),
    )
    text = sentence(standing(decision(skipped=(Skipped(path="/c/48000", step=48_000, reasons=reasons),))), NOW)
    assert text.startswith("Its newest checkpoint, step 48,000, is damaged. Resumes")


def test_an_older_checkpoint_that_was_skipped_is_not_mentioned() -> None:
    skipped = (Skipped(path="/c/100", step=100, reasons=("old",)),)
    assert "passed over" not in sentence(standing(decision(skipped=skipped)), NOW)


def test_what_was_not_measured_is_said_and_never_0() -> None:
    text = sentence(standing(drill=None, restart=None, predicted_seconds=None, lost_seconds=None, lost_cost=None), NOW)
    assert "time to resume not measured" in text and "never drilled" in text
    assert "lost work not measured" in text and "loses" not in text


def test_every_part_says_what_it_speaks_of_and_how_that_is_known() -> None:
    told = {part.about: (part.text, part.known) for part in parts(standing(), NOW) if part.about}
    assert told == {
        About.CHECKPOINT: ("step 12,400", Known.MEASURED),
        About.PROOF: ("verified 14 min ago", Known.MEASURED),
        About.TIER: ("nvme", Known.NONE),
        About.TIME: ("predicted back in 78 s", Known.PREDICTED),
        About.RESTART: ("78 s measured 6 h ago", Known.MEASURED),
        About.LOSS: ("loses 3 min 12 s of work", Known.MEASURED),
        About.COST: ("about 412 in GPU time", Known.COMPUTED),
    }


def test_a_restart_that_nothing_predicts_is_told_as_measured() -> None:
    text = sentence(standing(predicted_seconds=None), NOW)
    assert "back in 78 s of 90 s as measured 6 h ago" in text and "not measured" not in text


def test_losing_more_work_than_the_objective_allows_is_a_breach_and_said() -> None:
    late = standing(loss_objective_seconds=120.0)
    assert verdict(late, NOW) is Verdict.BREACHED
    assert "loses 3 min 12 s of work (over its objective of 2 min 00 s)" in sentence(late, NOW)
    assert verdict(standing(loss_objective_seconds=192.0), NOW) is Verdict.READY


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (standing(decision(outcome="no_checkpoints", step=None)), "scan the tier"),
        (standing(decision(outcome="nothing_resumable", step=None)), "start over"),
        (standing(decision(outcome="unknown", step=None)), "could not be looked at"),
        (
            standing(drill=drill(outcome="failed", reason="gpu-1 (rank 3) failed.")),
            "failed 6 h ago: gpu-1 (rank 3) failed.",
        ),
        (standing(drill=drill(outcome="lost")), "last drill was lost 6 h ago."),
        (standing(drill=drill(kind="reload"), restart=None), "restart was never timed: only reading was drilled."),
        (standing(drill=None, restart=Restart(NOW, 91.0)), "last restart took 91 s, over the objective"),
        (
            standing(inventory=Inventory(seen_at=NOW - timedelta(minutes=5))),
            "nvme, inventoried 5 min ago, predicted",
        ),
        (standing(inventory=saved()), "Step 12,440 was saved 30 s ago and is not inventoried yet."),
        (standing(inventory=saved(seconds_ago=90)), "saved 90 s ago, and no scan since has found it"),
        (
            standing(decision(trust="complete"), newest_proven_step=12_000),
            "not sealed, so its bytes are unproven; the newest proven is step 12,000, which would lose 400 more steps.",
        ),
        (standing(decision(trust="sealed")), "sealed but not verified, and no checkpoint of the run is proven."),
        (standing(drill=drill(objective_state="breached", seconds=137.0)), "took 2 min 17 s, over the objective"),
        (standing(restart=Restart(NOW - timedelta(days=31), 78.0)), "restart was last timed 31 d ago"),
    ],
)
def test_the_sentence_gives_the_reason_of_the_word(state: Standing, words: str) -> None:
    assert words in sentence(state, NOW)


def test_a_save_that_is_inventoried_is_not_spoken_of() -> None:
    assert "saved" not in sentence(standing(inventory=saved(step=12_400)), NOW)


def test_a_storage_drill_is_not_called_in_time_or_late() -> None:
    late = standing(drill=drill(kind="reload", objective_state="breached", seconds=137.0), restart=None)
    assert "over the objective" not in sentence(late, NOW)
