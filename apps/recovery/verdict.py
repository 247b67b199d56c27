"""If a run died now: one word and one sentence, from data alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from muster_agent.decide.model import ResumeDecision, Skipped
from muster_agent.protocol.trust import Trust

from apps.core import units

STALE_PROOF = timedelta(days=7)
STALE_DRILL = timedelta(days=30)
_MAX_REASON = 300


class Verdict(StrEnum):
    """Worst first."""

    NOTHING_RESUMABLE = "nothing_resumable"
    NOT_PROVEN = "not_proven"
    BREACHED = "breached"
    NEVER_DRILLED = "never_drilled"
    STALE_PROOF = "stale_proof"
    READY = "ready"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Verdict).index(self)


@dataclass(frozen=True, kw_only=True)
class LastDrill:
    """The newest drill of a run that ended with a result."""

    id: str
    kind: str
    outcome: str
    objective_state: str
    seconds: float | None
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of one run beside the decision. Times in seconds; None is not measured."""

    decision: ResumeDecision
    objective_seconds: float | None
    predicted_seconds: float | None
    prediction_is_storage_only: bool = False
    drill: LastDrill | None
    lost_seconds: float | None
    lost_cost: float | None


def verdict(standing: Standing, now: datetime) -> Verdict:
    """The worst thing that is true of it. Not restored (`not_proven`) and restored late (`breached`) never mix."""
    decision, drill = standing.decision, standing.drill
    if decision.outcome != "found":
        return Verdict.NOTHING_RESUMABLE
    unproven = decision.trust is None or Trust(decision.trust).rung < Trust.VERIFIED.rung
    if unproven or (drill is not None and drill.outcome in ("failed", "lost")):
        return Verdict.NOT_PROVEN
    if _is_late(standing):
        return Verdict.BREACHED
    if drill is None:
        return Verdict.NEVER_DRILLED
    return Verdict.STALE_PROOF if _stale_words(standing, now) else Verdict.READY


def sentence(standing: Standing, now: datetime) -> str:
    """What would happen, how that is known and what is missing."""
    decision = standing.decision
    skipped = newest_skipped(decision)
    begin = f"Its newest checkpoint, step {skipped.step:,}, is passed over: {_reason(skipped)}. " if skipped else ""
    if decision.outcome == "no_checkpoints":
        return "No checkpoint of it is known: scan the tier that it saves to."
    if decision.outcome != "found" or decision.step is None:
        return f"{begin}It would start over: there is nothing to resume from."
    parts = [
        f"{begin}Resumes at step {decision.step:,}{_proof(decision, now)}",
        _time_words(standing),
        _loss_words(standing),
    ]
    return ", ".join(part for part in parts if part) + "." + _drill_words(standing, now)


def newest_skipped(decision: ResumeDecision) -> Skipped | None:
    """The newest step that the decision passed over, where it is newer than the answer."""
    newer = [
        one for one in decision.skipped if one.step is not None and (decision.step is None or one.step > decision.step)
    ]
    return max(newer, key=lambda one: one.step or 0, default=None)


def _is_late(standing: Standing) -> bool:
    if standing.drill is not None and standing.drill.objective_state == "breached":
        return True
    objective, predicted = standing.objective_seconds, standing.predicted_seconds
    return objective is not None and predicted is not None and predicted > objective


def _proof(decision: ResumeDecision, now: datetime) -> str:
    as_of = _moment(decision.as_of)
    age = f" {units.age(as_of, now)}" if as_of else ""
    where = f" on {decision.tier}" if decision.tier else ""
    return f", {decision.trust}{age}{where}" if decision.trust else where


def _time_words(standing: Standing) -> str:
    if standing.predicted_seconds is None:
        return "time to resume not measured"
    if standing.prediction_is_storage_only:
        return f"predicted {units.duration(standing.predicted_seconds)} for the storage part, the rest not measured"
    of = f" of {units.duration(standing.objective_seconds)}" if standing.objective_seconds else ""
    return f"predicted back in {units.duration(standing.predicted_seconds)}{of}"


def _loss_words(standing: Standing) -> str:
    if standing.lost_seconds is None:
        return ""
    cost = f", about {standing.lost_cost:,.0f} in GPU time" if standing.lost_cost is not None else ""
    return f"loses {units.duration(standing.lost_seconds)} of work{cost}"


def _drill_words(standing: Standing, now: datetime) -> str:
    drill = standing.drill
    if drill is None:
        return " It was never drilled."
    if drill.outcome in ("failed", "lost"):
        how = "failed" if drill.outcome == "failed" else "was lost"
        return f" Its last drill {how} {units.age(drill.finished_at, now)}."
    if drill.objective_state == "breached":
        return f" Its last drill took {units.duration(drill.seconds)}, over the objective."
    return _stale_words(standing, now)


def _stale_words(standing: Standing, now: datetime) -> str:
    as_of = _moment(standing.decision.as_of)
    if as_of is not None and now - as_of > STALE_PROOF:
        return f" Its proof is old: {units.age(as_of, now)}."
    drilled_at = standing.drill.finished_at if standing.drill else None
    if drilled_at is not None and now - drilled_at > STALE_DRILL:
        return f" Its last drill was {units.age(drilled_at, now)}."
    return ""


def _reason(skipped: Skipped) -> str:
    text = "; ".join(skipped.reasons).rstrip(".") or "no reason is recorded"
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3].rstrip() + "..."


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
