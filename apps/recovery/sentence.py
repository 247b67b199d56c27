"""If a run died now: one sentence from data alone, in parts that say what they speak of and how it is known. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from muster_agent.decide.model import ResumeDecision, Skipped
from muster_agent.protocol.trust import Trust

from apps.core import units
from apps.recovery.verdict import (
    FAILOVER,
    Inventory,
    Standing,
    is_damage,
    newest_skipped,
    proof_is_stale,
    restart_is_stale,
)

_MAX_REASON = 300


class About(StrEnum):
    """What a part speaks of, so what its evidence is; empty for the words between."""

    WORDS = ""
    PASSED_OVER = "passed_over"
    CHECKPOINT = "checkpoint"
    PROOF = "proof"
    TIER = "tier"
    INVENTORY = "inventory"
    TIME = "time"
    RESTART = "restart"
    LOSS = "loss"
    COST = "cost"
    SAVE = "save"
    NEWEST_PROVEN = "newest_proven"
    DRILL = "drill"


class Known(StrEnum):
    """How a part is known; empty where it states no figure."""

    NONE = ""
    MEASURED = "measured"
    PREDICTED = "predicted"
    COMPUTED = "computed"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True)
class Part:
    """A piece of the sentence. `step` of a checkpoint that is not the answer."""

    text: str
    about: About = About.WORDS
    known: Known = Known.NONE
    step: int | None = None


Parts = list[Part]


def sentence(standing: Standing, now: datetime) -> str:
    """What would happen, how that is known and what is missing."""
    return "".join(part.text for part in parts(standing, now))


def parts(standing: Standing, now: datetime) -> tuple[Part, ...]:
    """The same in its parts, whose texts together are the sentence."""
    return tuple(part for part in _parts(standing, now) if part.text)


def _parts(standing: Standing, now: datetime) -> Parts:
    decision = standing.decision
    begin = _passed_over(newest_skipped(decision))
    seen, behind = _seen(standing, now), _behind(standing.inventory, now)
    if decision.outcome == "no_checkpoints":
        return [Part("No checkpoint of it is known: scan the tier that it saves to."), *behind]
    if decision.outcome == "unknown":
        return [*begin, Part("Not known: what it would resume from could not be looked at"), *seen, Part("."), *behind]
    if decision.outcome != "found" or decision.step is None:
        return [*begin, Part("It would start over: there is nothing to resume from"), *seen, Part("."), *behind]
    answer = [
        Part("Resumes at "),
        Part(f"step {decision.step:,}", About.CHECKPOINT, Known.MEASURED),
        *_proof(decision, now),
        *seen,
    ]
    told = [*answer, Part(", "), *_time(standing, now), Part(", "), *_loss(standing), Part(".")]
    return [*begin, *told, *behind, *_unproven(standing), *_drill(standing, now)]


def _passed_over(skipped: Skipped | None) -> Parts:
    """Damage in a word: which bytes of what, and who found them when, the checkpoint itself says in full."""
    if skipped is None:
        return []
    why = _short("; ".join(skipped.reasons)) or "no reason is recorded"
    fault = "is damaged" if is_damage(skipped) else f"is passed over: {why}"
    step = Part(f"step {skipped.step:,}", About.PASSED_OVER, Known.MEASURED, skipped.step)
    return [Part("Its newest checkpoint, "), step, Part(f", {fault}. ")]


def _proof(decision: ResumeDecision, now: datetime) -> Parts:
    as_of = _moment(decision.as_of)
    age = f" {units.age(as_of, now)}" if as_of else ""
    proof = [Part(", "), Part(f"{decision.trust}{age}", About.PROOF, Known.MEASURED)] if decision.trust else []
    return [*proof, Part(" on "), Part(decision.tier, About.TIER)] if decision.tier else proof


def _seen(standing: Standing, now: datetime) -> Parts:
    seen_at = standing.inventory.seen_at
    if seen_at is None:
        return []
    return [Part(", "), Part(f"inventoried {units.age(seen_at, now)}", About.INVENTORY, Known.MEASURED)]


def _time(standing: Standing, now: datetime) -> Parts:
    """Predicted for this very copy where anything was drilled, and what the last restart really took."""
    predicted, restart = standing.predicted_seconds, standing.restart
    of = f" of {units.duration(standing.objective_seconds)}" if standing.objective_seconds else ""
    if predicted is None and restart is None:
        return [Part("time to resume not measured", About.TIME, Known.NOT_MEASURED)]
    if predicted is None and restart is not None:
        took = Part(f"back in {units.duration(restart.seconds)}", About.RESTART, Known.MEASURED)
        return [took, Part(f"{of} as measured {units.age(restart.at, now)}")]
    if standing.prediction_is_storage_only:
        storage = Part(f"predicted {units.duration(predicted)} for the storage part", About.TIME, Known.PREDICTED)
        rest = Part("the rest not measured", About.RESTART, Known.NOT_MEASURED)
        return [storage, Part(", "), rest if restart is None else _measured(standing, now)]
    whole = [Part(f"predicted back in {units.duration(predicted)}", About.TIME, Known.PREDICTED), Part(of)]
    return [*whole, Part(" ("), _measured(standing, now), Part(")")] if restart else whole


def _measured(standing: Standing, now: datetime) -> Part:
    assert standing.restart is not None
    took, age = units.duration(standing.restart.seconds), units.age(standing.restart.at, now)
    return Part(f"{took} measured {age}", About.RESTART, Known.MEASURED)


def _loss(standing: Standing) -> Parts:
    lost, cost = standing.lost_seconds, standing.lost_cost
    if lost is None:
        return [Part("lost work not measured", About.LOSS, Known.NOT_MEASURED)]
    found = [Part(f"loses {units.duration(lost)} of work", About.LOSS, Known.MEASURED)]
    if standing.loses_too_much:
        found.append(Part(f" (over its objective of {units.duration(standing.loss_objective_seconds)})"))
    if cost is not None:
        found += [Part(", "), Part(f"about {cost:,.0f} in GPU time", About.COST, Known.COMPUTED)]
    return found


def _behind(inventory: Inventory, now: datetime) -> Parts:
    """About a newer save than any that a scan has found."""
    if not inventory.is_behind or inventory.saved_step is None:
        return []
    saved = Part(f"Step {inventory.saved_step:,} was saved {units.age(inventory.saved_at, now)}", About.SAVE)
    if inventory.seen_at is None or inventory.saved_at is None or inventory.seen_at <= inventory.saved_at:
        return [Part(" "), saved, Part(" and is not inventoried yet.")]
    return [Part(" "), saved, Part(", and no scan since has found it: it lies on no known tier, or is gone.")]


def _unproven(standing: Standing) -> Parts:
    step, trust, proven = standing.decision.step, standing.decision.trust, standing.newest_proven_step
    if standing.is_proven or step is None:
        return []
    missing = "sealed but not verified" if trust == Trust.SEALED else "not sealed, so its bytes are unproven"
    if proven is None:
        return [Part(f" It is {missing}, and no checkpoint of the run is proven.")]
    if proven >= step:
        return [Part(f" It is {missing}.")]
    newest = Part(f"step {proven:,}", About.NEWEST_PROVEN, Known.MEASURED, proven)
    return [Part(f" It is {missing}; the newest proven is "), newest, Part(_would_lose(step - proven))]


def _would_lose(steps: int) -> str:
    return f", which would lose {steps:,} more step{'' if steps == 1 else 's'}."


def _drill(standing: Standing, now: datetime) -> Parts:
    drill, restart, objective = standing.drill, standing.restart, standing.objective_seconds
    last_drill = Part("last drill", About.DRILL)
    last_restart = Part("last restart", About.RESTART)
    if drill is not None and drill.outcome in ("failed", "lost"):
        how = "failed" if drill.outcome == "failed" else "was lost"
        why = f": {_short(drill.reason)}" if drill.reason else ""
        return [Part(" Its "), last_drill, Part(f" {how} {units.age(drill.finished_at, now)}{why}.")]
    if drill is not None and drill.kind == FAILOVER and drill.objective_state == "breached":
        return [Part(" Its "), last_drill, Part(f" took {units.duration(drill.seconds)}, over the objective.")]
    if restart is not None and objective is not None and restart.seconds > objective:
        return [Part(" Its "), last_restart, Part(f" took {units.duration(restart.seconds)}, over the objective.")]
    if restart is None and drill is None:
        return [Part(" It was never drilled.", About.DRILL, Known.NOT_MEASURED)]
    if restart is None:
        return [Part(" Its restart was never timed: only reading was drilled.", About.DRILL, Known.NOT_MEASURED)]
    return _stale(standing, now)


def _stale(standing: Standing, now: datetime) -> Parts:
    if proof_is_stale(standing, now):
        return [Part(f" Its proof is old: {units.age(_moment(standing.decision.as_of), now)}.")]
    if restart_is_stale(standing, now) and standing.restart is not None:
        return [Part(f" Its restart was last timed {units.age(standing.restart.at, now)}.")]
    return []


def _short(text: str) -> str:
    text = text.rstrip(".")
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3].rstrip() + "..."


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
