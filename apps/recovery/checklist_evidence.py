"""The rows that the validation checklist of a run is judged by: for each step the newest that says something."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Q, Subquery, Sum
from django.utils import timezone
from muster_agent.decide.model import ResumeDecision

from apps.checkpoints.models import Finding, Placement, TrainingRun, TrustEvidence
from apps.checkpoints.resume import resume_decision
from apps.core.units import duration, percent, rate
from apps.drills.models import FROM_MEMORY_RATIO, Drill, DrillKind, RankResult
from apps.recovery.checklist import (
    BALANCED_JAIN,
    DEFAULT_MAX_AGE,
    LINE_RATE_RATIO,
    Evidence,
    Judged,
    Step,
    judge_all,
    score,
)
from apps.recovery.models import Recovery
from apps.recovery.selectors import WITH_RESULT

READING = (DrillKind.RELOAD, DrillKind.HERD)
SHAPE_CODES = ("monolithic", "rank_skew", "shared_shard", "stripe_narrow")
STANDBY = "standby"
_NO_MEMORY = Q(cached_ratio_before=None) | Q(cached_ratio_before__lte=FROM_MEMORY_RATIO)


@dataclass(frozen=True, kw_only=True)
class Checklist:
    """A run's five steps with the score that they add up to."""

    run: TrainingRun
    max_age_seconds: float
    steps: list[Judged]

    @property
    def passed(self) -> bool:
        return all(judged.verdict == "passed" for judged in self.steps)

    @property
    def score(self) -> float:
        return score(self.steps)


def checklist(run: TrainingRun, max_age: timedelta = DEFAULT_MAX_AGE, now: datetime | None = None) -> Checklist:
    """Judge the run by what is recorded now, in at most ten queries."""
    at = now or timezone.now()
    decision = resume_decision(run, now=at)
    drills = _newest_drills(run)
    evidence = {
        Step.CHAOS_NODE_FAILURE: _newest(_restart(drills.get("failover")), _recovery(run)),
        Step.LINE_RATE_READ: _line_rate(drills.get("line_rate")),
        Step.RANK_SHARD_PARALLELISM: _shards(drills.get("shards"), _shape_warnings(run, decision)),
        Step.INTEGRITY_HASHING: _integrity(run, decision),
        Step.HOT_STANDBY: _restart(drills.get("standby")),
    }
    return Checklist(run=run, max_age_seconds=max_age.total_seconds(), steps=judge_all(evidence, at, max_age))


def _newest_drills(run: TrainingRun) -> dict[str, Any]:
    """For each step that a drill can show its newest one with a result, in one query: with the CPU seconds and bytes of
    its clients. Reading from memory or under a cap says nothing of the line; spares are the cluster's, so what another
    run's drill has shown of them holds for this one."""
    ended = Drill.objects.filter(outcome__in=WITH_RESULT, finished_at__isnull=False)
    own = ended.filter(run=run)
    wanted = {
        "failover": own.filter(kind=DrillKind.FAILOVER),
        "line_rate": own.filter(_NO_MEMORY, kind__in=READING, max_bytes_per_second=None),
        "shards": own.filter(kind__in=READING, outcome=Drill.Outcome.PASSED, rungs__client_count__gt=1),
        "standby": ended.filter(cluster=run.cluster_id, kind=STANDBY),
    }
    ids = {name: Subquery(rows.order_by("-finished_at", "-pk").values("pk")[:1]) for name, rows in wanted.items()}
    spent = RankResult.objects.filter(rung__drill=OuterRef("pk"), cpu_seconds__isnull=False, bytes__gt=0)
    totals = spent.order_by().values("rung__drill").annotate(cpu=Sum("cpu_seconds"), read=Sum("bytes"))
    which = Q()
    for one in ids.values():
        which |= Q(pk=one)
    rows = Drill.objects.filter(which).annotate(
        cpu=Subquery(totals.values("cpu")),
        read=Subquery(totals.values("read")),
        **{f"{n}_id": i for n, i in ids.items()},
    )
    found = list(rows)
    return {name: drill for name in wanted for drill in found if drill.pk == getattr(drill, f"{name}_id")}


def _newest(*found: Evidence | None) -> Evidence | None:
    return max((one for one in found if one is not None), key=lambda one: one.at, default=None)


def _of_drill(drill: Drill, *, holds: bool, detail: str, cure: str = "") -> Evidence:
    assert drill.finished_at is not None
    return Evidence(
        source_kind="drill", source_id=drill.pk, at=drill.finished_at, holds=holds, detail=detail, cure=cure
    )


def _failed(drill: Drill) -> Evidence:
    return _of_drill(drill, holds=False, detail=drill.reason, cure="Mend what its reason names, then drill again.")


def _restart(drill: Drill | None) -> Evidence | None:
    """A drill that had to bring something back: passed, and not over its objective."""
    if drill is None or drill.outcome != Drill.Outcome.PASSED:
        return _failed(drill) if drill else None
    late = drill.objective_state == Drill.ObjectiveState.BREACHED
    objective = f" of {duration(drill.objective_seconds)}" if drill.objective_seconds else ""
    detail = f"Back in {duration(drill.seconds)}{objective}."
    return _of_drill(drill, holds=not late, detail=detail, cure="Shorten its longest phase, then drill again.")


def _recovery(run: TrainingRun) -> Evidence | None:
    closed = Recovery.objects.filter(
        incident__run=run, state=Recovery.State.CLOSED, time_to_resume_seconds__isnull=False, closed_at__isnull=False
    )
    found = closed.order_by("-closed_at", "-pk").first()
    if found is None or found.closed_at is None:
        return None
    limit = run.rto_objective_seconds
    return Evidence(
        source_kind="recovery",
        source_id=found.pk,
        at=found.closed_at,
        holds=limit is None or (found.time_to_resume_seconds or 0.0) <= limit,
        detail=f"A real failure: back in {duration(found.time_to_resume_seconds)}.",
        cure="Shorten its longest phase, then drill a failover.",
    )


def _line_rate(drill: Drill | None) -> Evidence | None:
    if drill is None or drill.outcome != Drill.Outcome.PASSED:
        return _failed(drill) if drill else None
    reached = drill.efficiency_ratio
    if reached is None:
        detail = f"{rate(drill.bytes_per_second)}, of a ceiling that nobody has measured with as many clients."
        return _of_drill(drill, holds=False, detail=detail, cure="Measure the tier's ceiling, then drill again.")
    detail = f"{rate(drill.bytes_per_second)}, {percent(reached)} of the measured ceiling."
    cure = "See which phase and which client held it up on the drill's page."
    return _of_drill(drill, holds=reached >= LINE_RATE_RATIO, detail=detail, cure=cure)


def _shards(drill: Any, warned: list[str]) -> Evidence | None:
    """Reading by several clients, and what the shape of the checkpoint's files warns of."""
    if drill is None:
        return None
    spent = drill.cpu / (drill.read / 1e9) if drill.read else None
    balance = drill.jain_index
    words = "not measured" if balance is None else f"{balance:.3f}"
    cpu = "CPU not measured" if spent is None else f"{spent:.2f} CPU s/GB"
    detail = f"Balance (Jain) {words}, {cpu}{'; ' + ', '.join(warned) if warned else ''}."
    cure = f"Mend {warned[0]}: see the checkpoint's findings." if warned else "See the stragglers on the drill's page."
    holds = balance is not None and balance >= BALANCED_JAIN and spent is not None and not warned
    return _of_drill(drill, holds=holds, detail=detail, cure=cure)


def _shape_warnings(run: TrainingRun, decision: ResumeDecision) -> list[str]:
    """What is wrong with the shape of the copy that a restart would take."""
    rows = Finding.objects.filter(**_of_answer(run, decision), resolved_at=None, code__in=SHAPE_CODES)
    return sorted(set(rows.values_list("code", flat=True)))


def _of_answer(run: TrainingRun, decision: ResumeDecision) -> dict[str, Any]:
    return {
        "placement__checkpoint__run": run,
        "placement__path": decision.path or "",
        "placement__tier__name": decision.tier or "",
    }


def _integrity(run: TrainingRun, decision: ResumeDecision) -> Evidence | None:
    """Proof of the very copy that a restart would take; proof of an older one does not help it."""
    rungs = (Placement.Trust.VERIFIED, Placement.Trust.RELOADED)
    rows = TrustEvidence.objects.filter(**_of_answer(run, decision), rung__in=rungs, voided_at=None)
    found = rows.order_by("-at").first()
    if found is None:
        return None
    how = "reloaded and compared" if found.rung == Placement.Trust.RELOADED else "read and compared"
    return Evidence(
        source_kind=found.source_kind,
        source_id=found.source_id,
        at=found.at,
        holds=True,
        detail=f"Step {decision.step} was {how} with its manifest.",
    )
