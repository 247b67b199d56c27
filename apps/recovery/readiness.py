"""The Readiness rows: every visible run, judged, the worst first, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone
from muster_agent.decide.model import ResumeDecision

from apps.checkpoints.models import Placement, RunAttempt, StepReport, TrainingRun
from apps.checkpoints.resume import decisions_for
from apps.drills.models import Drill
from apps.fleet.access import scoped
from apps.recovery import advisor, selectors
from apps.recovery.predict import Prediction
from apps.recovery.verdict import LastDrill, Standing, Verdict, sentence, verdict

MAX_RUNS = 200


@dataclass(frozen=True, kw_only=True)
class ReadinessRow:
    """One run. `drill` is its newest drill with a result; every None is "not measured" or "not known"."""

    run: TrainingRun
    decision: ResumeDecision
    verdict: Verdict
    sentence: str
    placement: Placement | None
    drill: Drill | None
    objective_seconds: float | None
    predicted_seconds: float | None
    predicted_phases: dict[str, float]
    lost_steps: int | None
    lost_seconds: float | None
    lost_cost: float | None


def readiness_rows(request: Any, now: datetime | None = None) -> list[ReadinessRow]:
    """Rows of the runs that the caller may see and that are not archived; the 200 newest are judged."""
    visible = scoped(request, runs_to_judge().filter(archived_at=None), "cluster")
    return rows_of(list(visible.order_by("-created_at")[:MAX_RUNS]), now)


def row_of(run: TrainingRun, now: datetime | None = None) -> ReadinessRow:
    """The same for one run."""
    return rows_of([runs_to_judge().get(pk=run.pk)], now)[0]


def rows_of(
    runs: Sequence[Any],
    now: datetime | None = None,
    *,
    copies_at_hand: Iterable[Any] = (),
    drills_at_hand: Iterable[Drill] = (),
) -> list[ReadinessRow]:
    """Runs as `runs_to_judge()` gives them, judged and sorted. At most eight queries, however many runs.

    A page that has read copies (`selectors.with_ceiling`, with tier and checkpoint) or drills already hands them in:
    what is found there is not read again.
    """
    at = now or timezone.now()
    decisions = decisions_for(runs, now=at)
    copies = _copies(decisions, copies_at_hand)
    predicted = selectors.predictions(list(copies.items()), at)
    drills = {drill.pk: drill for drill in drills_at_hand}
    unread = {run.last_drill_id for run in runs if run.last_drill_id} - drills.keys()
    if unread:
        drills |= Drill.objects.in_bulk(unread)
    done = _steps_done(decisions)
    rows = []
    for run in runs:
        lost_seconds = _lost_seconds(run, done.get(run.pk))
        rows.append(
            _row(
                run,
                decisions[run.pk],
                copies.get(run.pk),
                drills.get(run.last_drill_id),
                predicted.get(run.pk),
                lost_seconds,
                at,
            )
        )
    return sorted(rows, key=lambda row: (row.verdict.rank, row.run.name))


def _row(
    run: Any,
    decision: ResumeDecision,
    copy: Placement | None,
    drill: Drill | None,
    guess: Prediction | None,
    lost_seconds: float | None,
    now: datetime,
) -> ReadinessRow:
    objective = run.rto_objective_seconds
    predicted_seconds = guess.seconds if guess else None
    lost_cost = _cost(run, lost_seconds)
    standing = Standing(
        decision=decision,
        objective_seconds=objective,
        predicted_seconds=predicted_seconds,
        prediction_is_storage_only=guess is not None and guess.is_storage_only,
        drill=_last_drill(drill),
        lost_seconds=lost_seconds,
        lost_cost=lost_cost,
    )
    return ReadinessRow(
        run=run,
        decision=decision,
        verdict=verdict(standing, now),
        sentence=sentence(standing, now),
        placement=copy,
        drill=drill,
        objective_seconds=objective,
        predicted_seconds=predicted_seconds,
        predicted_phases=guess.phases if guess else {},
        lost_steps=_lost_steps(run, decision),
        lost_seconds=lost_seconds,
        lost_cost=lost_cost,
    )


def runs_to_judge() -> QuerySet[TrainingRun]:
    """Runs with what their newest launch reported and which of their drills judges them."""
    launches = RunAttempt.objects.filter(run=OuterRef("pk"), last_step__isnull=False).order_by("-started_at")
    # by (attempt, step), which is indexed: a run may have millions of reports
    steps = StepReport.objects.filter(attempt=OuterRef("last_attempt_id"), step=OuterRef("last_step"))
    judged = Drill.objects.filter(run=OuterRef("pk"), outcome__in=selectors.WITH_RESULT).order_by("-created_at", "-pk")
    return TrainingRun.objects.select_related("cluster").annotate(
        last_attempt_id=Subquery(launches.values("pk")[:1]),
        last_step=Subquery(launches.values("last_step")[:1]),
        last_step_at=Subquery(steps.values("at")[:1]),
        last_drill_id=Subquery(judged.values("pk")[:1]),
    )


def _copies(decisions: dict[str, ResumeDecision], at_hand: Iterable[Any]) -> dict[str, Placement]:
    """The copy that each run would resume from."""
    wanted = {run_id: (one.path, one.tier) for run_id, one in decisions.items() if one.path}
    found = _matching(wanted, at_hand)
    unread = {run_id: path for run_id, (path, _tier) in wanted.items() if run_id not in found}
    if unread:
        rows = Placement.objects.filter(checkpoint__run__in=list(unread), path__in=list(unread.values()))
        found |= _matching(wanted, selectors.with_ceiling(rows).select_related("tier", "checkpoint"))
    return found


def _matching(wanted: Mapping[str, tuple[str | None, str | None]], copies: Iterable[Any]) -> dict[str, Placement]:
    return {
        row.checkpoint.run_id: row for row in copies if wanted.get(row.checkpoint.run_id) == (row.path, row.tier.name)
    }


def _steps_done(decisions: dict[str, ResumeDecision]) -> dict[str, datetime]:
    """When the step of each answer was done, by the training hook; the latest time where it was done again."""
    wanted = Q(pk=0)
    for run_id, decision in decisions.items():
        if decision.step is not None:
            wanted |= Q(attempt__run_id=run_id, step=decision.step)
    return dict(StepReport.objects.filter(wanted).order_by("at").values_list("attempt__run_id", "at"))


def _lost_seconds(run: Any, step_done_at: datetime | None) -> float | None:
    if step_done_at is None or run.last_step_at is None:
        return None
    return float(max(0.0, (run.last_step_at - step_done_at).total_seconds()))


def _lost_steps(run: Any, decision: ResumeDecision) -> int | None:
    if decision.step is None or run.last_step is None:
        return None
    return int(max(0, run.last_step - decision.step))


def _cost(run: TrainingRun, lost_seconds: float | None) -> float | None:
    price, count = run.cluster.gpu_hour_cost, run.gpu_count or run.cluster.gpu_count
    if lost_seconds is None or price is None or not count:
        return None
    return advisor.failure_cost(count, lost_seconds, 0.0, float(price))


def _last_drill(drill: Drill | None) -> LastDrill | None:
    if drill is None:
        return None
    return LastDrill(
        id=drill.pk,
        kind=drill.kind,
        outcome=drill.outcome,
        objective_state=drill.objective_state,
        seconds=drill.seconds,
        finished_at=drill.finished_at,
    )
