"""If a run died now: one word for it, from data alone. Pure; `sentence.py` says the rest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from muster_agent.decide.model import ResumeDecision, Skipped
from muster_agent.protocol.trust import Trust

STALE_PROOF = timedelta(days=7)
STALE_RESTART = timedelta(days=30)
SAVE_WAITS = timedelta(minutes=2)
"""How long a reported save may wait for its scan before the inventory counts as behind."""
FAILOVER = "failover"
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
    """The newest time that this run came back from a fault to training, in a failover drill or for real: the drill or
    incident that timed it."""

    at: datetime
    seconds: float
    source_kind: str = ""
    source_id: str = ""


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
    loss_objective_seconds: float | None = None

    @property
    def is_proven(self) -> bool:
        """Every byte of the answer was read and compared since it was sealed."""
        trust = self.decision.trust
        return trust is not None and Trust(trust).rung >= Trust.VERIFIED.rung

    @property
    def loses_too_much(self) -> bool:
        objective, lost = self.loss_objective_seconds, self.lost_seconds
        return objective is not None and lost is not None and lost > objective


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
    stale = standing.inventory.is_stale(now) or proof_is_stale(standing, now) or restart_is_stale(standing, now)
    return Verdict.STALE_PROOF if stale else Verdict.READY


def proof_is_stale(standing: Standing, now: datetime) -> bool:
    as_of = standing.decision.as_of
    return as_of is not None and now - datetime.fromisoformat(as_of) > STALE_PROOF


def restart_is_stale(standing: Standing, now: datetime) -> bool:
    return standing.restart is not None and now - standing.restart.at > STALE_RESTART


def is_damage(skipped: Skipped) -> bool:
    """It was passed over because its bytes are not those that were sealed."""
    return any(reason.startswith(_DAMAGE) for reason in skipped.reasons)


def newest_skipped(decision: ResumeDecision) -> Skipped | None:
    """The newest step that the decision passed over, where it is newer than the answer."""
    newer = [
        one for one in decision.skipped if one.step is not None and (decision.step is None or one.step > decision.step)
    ]
    return max(newer, key=lambda one: one.step or 0, default=None)


def _is_late(standing: Standing) -> bool:
    drill, restart, objective = standing.drill, standing.restart, standing.objective_seconds
    if standing.loses_too_much:
        return True
    if drill is not None and drill.kind == FAILOVER and drill.objective_state == "breached":
        return True
    times = [standing.predicted_seconds, restart.seconds if restart else None]
    return objective is not None and any(seconds is not None and seconds > objective for seconds in times)
