"""If a run died now: one word and one sentence, from data alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from muster_agent.decide.model import ResumeDecision, Skipped
from muster_agent.protocol.trust import Trust

from apps.core import units

STALE_PROOF = timedelta(days=7)
STALE_RESTART = timedelta(days=30)
SAVE_WAITS = timedelta(minutes=2)
"""How long a reported save may wait for its scan before the inventory counts as behind."""
FAILOVER = "failover"
_MAX_REASON = 300
_DAMAGE = ("an audit found damage", "it is damaged")


class Verdict(StrEnum):
    """Worst first."""

    NOTHING_RESUMABLE = "nothing_resumable"
    NOT_PROVEN = "not_proven"
    DRILL_FAILED = "drill_failed"
    BREACHED = "breached"
    NEVER_DRILLED = "never_drilled"
    RESTART_UNTIMED = "restart_untimed"
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
    reason: str = ""


@dataclass(frozen=True)
class Restart:
    """The newest time that this run came back from a fault to training, in a failover drill or for real."""

    at: datetime
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """How well the rows know what lies on the storage. `newest_step` is the newest that a scan has found;
    `saved_step`, at `saved_at`, the one that the training job reported last. Each None is not known."""

    seen_at: datetime | None = None
    newest_step: int | None = None
    saved_step: int | None = None
    saved_at: datetime | None = None
    max_age: timedelta = timedelta(minutes=15)

    @property
    def is_behind(self) -> bool:
        """A save was reported that no scan has found."""
        return self.saved_step is not None and (self.newest_step is None or self.saved_step > self.newest_step)

    def is_stale(self, now: datetime) -> bool:
        if self.seen_at is not None and now - self.seen_at > self.max_age:
            return True
        return self.is_behind and self.saved_at is not None and now - self.saved_at > SAVE_WAITS


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What is known of one run beside the decision. Times in seconds; None is not measured."""

    decision: ResumeDecision
    objective_seconds: float | None
    predicted_seconds: float | None
    prediction_is_storage_only: bool = False
    drill: LastDrill | None
    restart: Restart | None = None
    inventory: Inventory = Inventory()
    newest_proven_step: int | None = None
    lost_seconds: float | None
    lost_cost: float | None

    @property
    def is_proven(self) -> bool:
        """Every byte of the answer was read and compared since it was sealed."""
        trust = self.decision.trust
        return trust is not None and Trust(trust).rung >= Trust.VERIFIED.rung


def verdict(standing: Standing, now: datetime) -> Verdict:
    """The worst thing that is true of it. Not restored (`drill_failed`) and restored late (`breached`) never mix; only
    a timed restart makes a run ready, since a drill of the storage part is no time to resume."""
    drill = standing.drill
    if standing.decision.outcome != "found":
        return Verdict.NOTHING_RESUMABLE
    if not standing.is_proven:
        return Verdict.NOT_PROVEN
    if drill is not None and drill.outcome in ("failed", "lost"):
        return Verdict.DRILL_FAILED
    if _is_late(standing):
        return Verdict.BREACHED
    if standing.restart is None:
        return Verdict.NEVER_DRILLED if drill is None else Verdict.RESTART_UNTIMED
    is_stale = standing.inventory.is_stale(now) or _stale_words(standing, now)
    return Verdict.STALE_PROOF if is_stale else Verdict.READY


def sentence(standing: Standing, now: datetime) -> str:
    """What would happen, how that is known and what is missing."""
    decision = standing.decision
    skipped = newest_skipped(decision)
    begin = f"Its newest checkpoint, step {skipped.step:,}, {_fault_words(skipped)}. " if skipped else ""
    behind = _behind_words(standing.inventory, now)
    if decision.outcome == "no_checkpoints":
        return f"No checkpoint of it is known: scan the tier that it saves to.{behind}"
    if decision.outcome == "unknown":
        seen = _seen_words(standing, now)
        return f"{begin}Not known: what it would resume from could not be looked at{seen}.{behind}"
    if decision.outcome != "found" or decision.step is None:
        return f"{begin}It would start over: there is nothing to resume from{_seen_words(standing, now)}.{behind}"
    parts = [
        f"{begin}Resumes at step {decision.step:,}{_proof(decision, now)}{_seen_words(standing, now)}",
        _time_words(standing),
        _loss_words(standing),
    ]
    said = ", ".join(part for part in parts if part)
    return f"{said}.{behind}{_unproven_words(standing)}{_drill_words(standing, now)}"


def newest_skipped(decision: ResumeDecision) -> Skipped | None:
    """The newest step that the decision passed over, where it is newer than the answer."""
    newer = [
        one for one in decision.skipped if one.step is not None and (decision.step is None or one.step > decision.step)
    ]
    return max(newer, key=lambda one: one.step or 0, default=None)


def _is_late(standing: Standing) -> bool:
    drill, restart, objective = standing.drill, standing.restart, standing.objective_seconds
    if drill is not None and drill.kind == FAILOVER and drill.objective_state == "breached":
        return True
    times = [standing.predicted_seconds, restart.seconds if restart else None]
    return objective is not None and any(seconds is not None and seconds > objective for seconds in times)


def _seen_words(standing: Standing, now: datetime) -> str:
    seen_at = standing.inventory.seen_at
    return f", inventoried {units.age(seen_at, now)}" if seen_at else ""


def _behind_words(inventory: Inventory, now: datetime) -> str:
    """About a newer save than any that a scan has found."""
    if not inventory.is_behind or inventory.saved_step is None:
        return ""
    saved = f" Step {inventory.saved_step:,} was saved {units.age(inventory.saved_at, now)}"
    if inventory.seen_at is None or inventory.saved_at is None or inventory.seen_at <= inventory.saved_at:
        return f"{saved} and is not inventoried yet."
    return f"{saved}, and no scan since has found it: it lies on no known tier, or is gone."


def _unproven_words(standing: Standing) -> str:
    step, trust, proven = standing.decision.step, standing.decision.trust, standing.newest_proven_step
    if standing.is_proven or step is None:
        return ""
    missing = "sealed but not verified" if trust == Trust.SEALED else "not sealed, so its bytes are unproven"
    if proven is None:
        return f" It is {missing}, and no checkpoint of the run is proven."
    if proven >= step:
        return f" It is {missing}."
    return f" It is {missing}; the newest proven is step {proven:,}, which would lose {step - proven:,} more steps."


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
    drill, restart, objective = standing.drill, standing.restart, standing.objective_seconds
    if drill is not None and drill.outcome in ("failed", "lost"):
        how = "failed" if drill.outcome == "failed" else "was lost"
        why = f": {_short(drill.reason)}" if drill.reason else ""
        return f" Its last drill {how} {units.age(drill.finished_at, now)}{why}."
    if drill is not None and drill.kind == FAILOVER and drill.objective_state == "breached":
        return f" Its last drill took {units.duration(drill.seconds)}, over the objective."
    if restart is not None and objective is not None and restart.seconds > objective:
        return f" Its last restart took {units.duration(restart.seconds)}, over the objective."
    if restart is None:
        return " It was never drilled." if drill is None else " Its restart was never timed: only reading was drilled."
    return _stale_words(standing, now)


def _stale_words(standing: Standing, now: datetime) -> str:
    as_of = _moment(standing.decision.as_of)
    if as_of is not None and now - as_of > STALE_PROOF:
        return f" Its proof is old: {units.age(as_of, now)}."
    if standing.restart is not None and now - standing.restart.at > STALE_RESTART:
        return f" Its restart was last timed {units.age(standing.restart.at, now)}."
    return ""


def _fault_words(skipped: Skipped) -> str:
    """Damage in a word: which bytes of what, and who found them when, `skipped` itself says in full."""
    if any(reason.startswith(_DAMAGE) for reason in skipped.reasons):
        return "is damaged"
    return f"is passed over: {_short('; '.join(skipped.reasons)) or 'no reason is recorded'}"


def _short(text: str) -> str:
    text = text.rstrip(".")
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 3].rstrip() + "..."


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
