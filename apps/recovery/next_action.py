"""What to do next for one run, so that its answer becomes better known or better: one action, from data alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from muster_agent.protocol.trust import Trust

from apps.recovery.verdict import Standing, Verdict, is_damage, newest_skipped, proof_is_stale, verdict


class Action(StrEnum):
    """A code that stays the same; each names its page and its REST operation in `docs/readiness.md`."""

    SCAN = "scan"
    LOOK_AT_CHECKPOINT = "look_at_checkpoint"
    SEAL = "seal"
    VERIFY = "verify"
    DRILL_RELOAD = "drill_reload"
    DRILL_FAILOVER = "drill_failover"
    LOOK_AT_DRILL = "look_at_drill"
    SHORTEN_RESTART = "shorten_restart"
    SAVE_MORE_OFTEN = "save_more_often"
    SET_OBJECTIVE = "set_objective"


@dataclass(frozen=True)
class NextAction:
    """`words` as a button says it; `step` of the checkpoint that it is about."""

    action: Action
    words: str
    step: int | None = None


def next_action(standing: Standing, now: datetime) -> NextAction | None:
    """The one that takes away the verdict's reason; None where there is nothing to do."""
    word = verdict(standing, now)
    find = {
        Verdict.NOTHING_RESUMABLE: _to_have_an_answer,
        Verdict.NOT_PROVEN: _to_prove,
        Verdict.DRILL_FAILED: _to_explain,
        Verdict.BREACHED: _to_be_in_time,
        Verdict.NEVER_DRILLED: _to_measure_reading,
        Verdict.RESTART_UNTIMED: _to_time_a_restart,
    }.get(word)
    if find is not None:
        return find(standing)
    return _to_be_fresh(standing, now) if word is Verdict.STALE_PROOF else _to_be_better(standing)


def _to_have_an_answer(standing: Standing) -> NextAction:
    skipped = newest_skipped(standing.decision)
    if standing.decision.outcome not in ("no_checkpoints", "unknown") and skipped is not None:
        return NextAction(Action.LOOK_AT_CHECKPOINT, f"See what step {skipped.step:,} lacks", skipped.step)
    again = "Scan" if standing.decision.outcome == "no_checkpoints" else "Scan again"
    return NextAction(Action.SCAN, again)


def _to_prove(standing: Standing) -> NextAction:
    step, trust = standing.decision.step, standing.decision.trust
    sealed = trust is not None and Trust(trust).rung >= Trust.SEALED.rung
    if sealed:
        return NextAction(Action.VERIFY, f"Verify step {step:,}", step)
    return NextAction(Action.SEAL, f"Seal step {step:,}", step)


def _to_explain(_standing: Standing) -> NextAction:
    return NextAction(Action.LOOK_AT_DRILL, "See why it failed")


def _to_be_in_time(standing: Standing) -> NextAction:
    if standing.loses_too_much:
        return NextAction(Action.SAVE_MORE_OFTEN, "See how often to save")
    return NextAction(Action.SHORTEN_RESTART, "See what takes longest")


def _to_measure_reading(standing: Standing) -> NextAction:
    return NextAction(Action.DRILL_RELOAD, "Drill a reload", standing.decision.step)


def _to_time_a_restart(_standing: Standing) -> NextAction:
    return NextAction(Action.DRILL_FAILOVER, "Time a restart")


def _to_be_fresh(standing: Standing, now: datetime) -> NextAction:
    step = standing.decision.step
    if standing.inventory.is_stale(now):
        return NextAction(Action.SCAN, "Scan again")
    if proof_is_stale(standing, now):
        return NextAction(Action.VERIFY, f"Verify step {step:,} again", step)
    return NextAction(Action.DRILL_FAILOVER, "Time a restart again")


def _to_be_better(standing: Standing) -> NextAction | None:
    skipped = newest_skipped(standing.decision)
    if skipped is not None:
        fault = "damage" if is_damage(skipped) else "reason"
        return NextAction(Action.LOOK_AT_CHECKPOINT, f"See the {fault} of step {skipped.step:,}", skipped.step)
    if standing.objective_seconds is None:
        return NextAction(Action.SET_OBJECTIVE, "Set an objective")
    return None
