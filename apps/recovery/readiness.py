"""The Readiness rows: every visible run, judged, the worst first, in a constant number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import BigIntegerField, Case, Max, OuterRef, QuerySet, Subquery, Value, When
from django.utils import timezone
from muster_agent.decide.model import ResumeDecision

from apps.checkpoints.models import Checkpoint, Placement, RunAttempt, RunEvent, StepReport, TrainingRun
from apps.checkpoints.rescans import SAVE_FINISHED
from apps.checkpoints.resume import decisions_for
from apps.drills.models import Drill, DrillKind
from apps.drills.selectors import VERIFIED
from apps.fleet.access import scoped
from apps.recovery import advisor, selectors
from apps.recovery.fleet_summary import RunFigures, fleet, undrilled
from apps.recovery.models import Recovery
from apps.recovery.next_action import NextAction, next_action
from apps.recovery.predict import Prediction
from apps.recovery.sentence import Known, Part, parts
from apps.recovery.verdict import (
    Inventory,
    LastDrill,
    Restart,
    Standing,
    Verdict,
    newest_skipped,
    verdict,
)

MAX_RUNS = 200
MIN_INVENTORY_AGE = timedelta(minutes=2)
UNSCHEDULED_INVENTORY_AGE = timedelta(minutes=15)


@dataclass(frozen=True, kw_only=True)
class ReadinessRow:
    """One run. `drill` is its newest drill with a result; `inventory_at` when a scan last saw the answer (or, without
    one, any copy of the run); `newest_saved_step` what its job reported last as saved. Every None is "not measured" or
    "not known". `parts` together are the sentence; `next_action` is None where there is nothing to do."""

    run: TrainingRun
    decision: ResumeDecision
    verdict: Verdict
    parts: tuple[Part, ...]
    next_action: NextAction | None
    placement: Placement | None
    drill: Drill | None
    objective_seconds: float | None
    predicted_seconds: float | None
    prediction_is_storage_only: bool
    predicted_phases: dict[str, float]
    lost_steps: int | None
    lost_seconds: float | None
    lost_cost: float | None
    inventory_at: datetime | None
    newest_saved_step: int | None
    restart: Restart | None

    @property
    def sentence(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def is_proven(self) -> bool:
        return self.decision.trust in VERIFIED

    @property
    def restart_seconds(self) -> float | None:
        return self.restart.seconds if self.restart else None

    @property
    def back_seconds(self) -> float | None:
        """The whole way back: as predicted for this copy, else as last measured; None where neither is known."""
        if self.predicted_seconds is None or self.prediction_is_storage_only:
            return self.restart_seconds
        return self.predicted_seconds

    @property
    def back_known(self) -> Known:
        if self.back_seconds is None:
            return Known.NOT_MEASURED
        is_predicted = self.predicted_seconds is not None and not self.prediction_is_storage_only
        return Known.PREDICTED if is_predicted else Known.MEASURED


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
    """Runs as `runs_to_judge()` gives them, judged and sorted. A constant number of queries, however many runs: eight,
    and up to four more where some run has nothing to resume from.

    A page that has read copies (`selectors.with_ceiling` and `with_proof`, with tier and checkpoint) or drills already
    hands them in: what is found there is not read again.
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
    seen = _last_seen(decisions, copies)
    rows = []
    for run in runs:
        found = _Found(
            decision=decisions[run.pk],
            copy=copies.get(run.pk),
            drill=drills.get(run.last_drill_id),
            guess=predicted.get(run.pk),
            lost_seconds=_lost_seconds(run, done.get(run.pk)),
            seen_at=seen.get(run.pk),
        )
        rows.append(_row(run, found, at))
    return sorted(rows, key=lambda row: (row.verdict.rank, row.run.name))


def losses(runs: Sequence[Any], now: datetime | None = None) -> dict[str, float]:
    """Seconds of work that each run of `runs_to_judge()` would lose if it died now, by id; one that is not measured is
    absent. The very numbers of `rows_of`, in four to seven queries."""
    decisions = decisions_for(runs, now=now or timezone.now())
    done = _steps_done(decisions)
    lost = {run.pk: _lost_seconds(run, done.get(run.pk)) for run in runs}
    return {run_id: seconds for run_id, seconds in lost.items() if seconds is not None}


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What was read about one run beside its own row."""

    decision: ResumeDecision
    copy: Placement | None
    drill: Drill | None
    guess: Prediction | None
    lost_seconds: float | None
    seen_at: datetime | None


def _row(run: Any, found: _Found, now: datetime) -> ReadinessRow:
    guess = found.guess
    standing = Standing(
        decision=found.decision,
        objective_seconds=run.rto_objective_seconds,
        predicted_seconds=guess.seconds if guess else None,
        prediction_is_storage_only=guess is not None and guess.is_storage_only,
        drill=_last_drill(found.drill),
        restart=_restart(run),
        inventory=_inventory(run, found.seen_at),
        newest_proven_step=run.newest_proven_step,
        lost_seconds=found.lost_seconds,
        lost_cost=_cost(run, found.lost_seconds),
        loss_objective_seconds=run.rpo_objective_seconds,
    )
    return ReadinessRow(
        run=run,
        decision=found.decision,
        verdict=verdict(standing, now),
        parts=parts(standing, now),
        next_action=next_action(standing, now),
        placement=found.copy,
        drill=found.drill,
        objective_seconds=standing.objective_seconds,
        predicted_seconds=standing.predicted_seconds,
        prediction_is_storage_only=standing.prediction_is_storage_only,
        predicted_phases=guess.phases if guess else {},
        lost_steps=_lost_steps(run, found.decision),
        lost_seconds=found.lost_seconds,
        lost_cost=standing.lost_cost,
        inventory_at=found.seen_at,
        newest_saved_step=run.saved_step,
        restart=standing.restart,
    )


def _restart(run: Any) -> Restart | None:
    """The newer one of the last timed failover drill and the last real recovery."""
    timed = [
        (run.failover_at, run.failover_seconds, "drill", run.failover_id),
        (run.recovered_at, run.recovered_seconds, "incident", run.recovered_id),
    ]
    return max((Restart(*one) for one in timed if one[0] is not None), key=lambda one: one.at, default=None)


def _inventory(run: Any, seen_at: datetime | None) -> Inventory:
    return Inventory(
        seen_at=seen_at,
        newest_step=run.newest_step,
        saved_step=run.saved_step,
        saved_at=run.saved_at,
        max_age=inventory_max_age(settings.SCAN_SECONDS),
    )


def inventory_max_age(scan_seconds: int) -> timedelta:
    """How old an inventory may be: three scans in a row that did not happen, or 15 min where none is scheduled."""
    return max(timedelta(seconds=3 * scan_seconds), MIN_INVENTORY_AGE) if scan_seconds else UNSCHEDULED_INVENTORY_AGE


def runs_to_judge() -> QuerySet[TrainingRun]:
    """Runs with what their newest launch and save reported, which of their drills judges them, and their last timed
    restart."""
    launches = RunAttempt.objects.filter(run=OuterRef("pk"), last_step__isnull=False).order_by("-started_at")
    # by (attempt, step), which is indexed: a run may have millions of reports
    steps = StepReport.objects.filter(attempt=OuterRef("last_attempt_id"), step=OuterRef("last_step"))
    judged = Drill.objects.filter(run=OuterRef("pk"), outcome__in=selectors.WITH_RESULT).exclude(
        # one measures the storage, the other exchanges a node: neither restores anything of the run
        kind__in=(DrillKind.BANDWIDTH, DrillKind.STANDBY)
    )
    judged = judged.order_by("-created_at", "-pk")
    failovers = Drill.objects.filter(
        run=OuterRef("pk"), kind=DrillKind.FAILOVER, outcome=Drill.Outcome.PASSED, seconds__isnull=False
    ).order_by("-created_at", "-pk")
    recoveries = Recovery.objects.filter(
        incident__run=OuterRef("pk"), state=Recovery.State.CLOSED, time_to_resume_seconds__isnull=False
    ).order_by("-closed_at", "-pk")
    saves = RunEvent.objects.filter(run=OuterRef("pk"), kind=SAVE_FINISHED, step__isnull=False).order_by("-at", "-pk")
    known = Checkpoint.objects.filter(run=OuterRef("pk")).order_by("-step")
    proven = known.filter(
        placements__status=Placement.Status.COMPLETE,
        placements__resumable=True,
        placements__damaged_at=None,
        placements__trust__in=VERIFIED,
    )
    return TrainingRun.objects.select_related("cluster").annotate(
        failover_at=Subquery(failovers.values("finished_at")[:1]),
        failover_seconds=Subquery(failovers.values("seconds")[:1]),
        failover_id=Subquery(failovers.values("pk")[:1]),
        recovered_at=Subquery(recoveries.values("closed_at")[:1]),
        recovered_seconds=Subquery(recoveries.values("time_to_resume_seconds")[:1]),
        recovered_id=Subquery(recoveries.values("incident_id")[:1]),
        saved_step=Subquery(saves.values("step")[:1]),
        saved_at=Subquery(saves.values("at")[:1]),
        newest_step=Subquery(known.values("step")[:1]),
        newest_proven_step=Subquery(proven.values("step")[:1]),
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
        rows = selectors.with_proof(selectors.with_ceiling(rows))
        found |= _matching(wanted, rows.select_related("tier", "checkpoint"))
    return found


def _matching(wanted: Mapping[str, tuple[str | None, str | None]], copies: Iterable[Any]) -> dict[str, Placement]:
    return {
        row.checkpoint.run_id: row for row in copies if wanted.get(row.checkpoint.run_id) == (row.path, row.tier.name)
    }


def _last_seen(decisions: dict[str, ResumeDecision], copies: Mapping[str, Placement]) -> dict[str, datetime]:
    """When a scan last saw each answer; where a run has none, when one last saw any copy of it."""
    seen = {run_id: copy.last_seen_at for run_id, copy in copies.items()}
    others = [run_id for run_id, one in decisions.items() if one.outcome != "no_checkpoints" and run_id not in seen]
    if others:
        rows = Placement.objects.filter(checkpoint__run__in=others).order_by().values_list("checkpoint__run")
        seen |= dict(rows.annotate(at=Max("last_seen_at")))
    return seen


def _steps_done(decisions: dict[str, ResumeDecision]) -> dict[str, datetime]:
    """When the step of each answer was done, by the training hook; the latest time where it was done again."""
    answered = {run_id: one.step for run_id, one in decisions.items() if one.step is not None}
    if not answered:
        return {}
    # One look into the index for each launch: told as alternatives, planning alone takes longer than the page may.
    cases = (When(pk=run_id, then=Value(step)) for run_id, step in answered.items())
    reports = StepReport.objects.filter(attempt__run=OuterRef("pk"), step=OuterRef("answered_step")).order_by("-at")
    step = Case(*cases, output_field=BigIntegerField())
    runs = TrainingRun.objects.filter(pk__in=list(answered)).annotate(answered_step=step)
    rows = runs.annotate(done_at=Subquery(reports.values("at")[:1])).values_list("pk", "done_at")
    return {run_id: at for run_id, at in rows if at is not None}


def _lost_seconds(run: Any, step_done_at: datetime | None) -> float | None:
    if step_done_at is None or run.last_step_at is None:
        return None
    return float(max(0.0, (run.last_step_at - step_done_at).total_seconds()))


def _lost_steps(run: Any, decision: ResumeDecision) -> int | None:
    if decision.step is None or run.last_step is None:
        return None
    return int(max(0, run.last_step - decision.step))


def gpus_of(run: TrainingRun) -> int | None:
    return run.gpu_count or run.cluster.gpu_count


def figures_of(row: ReadinessRow) -> RunFigures:
    gpus, lost = gpus_of(row.run), row.lost_seconds
    return RunFigures(
        run_id=row.run.pk,
        name=row.run.name,
        verdict=row.verdict,
        skipped_newest=newest_skipped(row.decision) is not None,
        back_seconds=row.back_seconds,
        lost_gpu_hours=gpus * lost / 3600 if gpus and lost is not None else None,
        lost_cost=row.lost_cost,
        drilled_at=row.drill.finished_at if row.drill else None,
    )


def summary(rows: Sequence[ReadinessRow], now: datetime | None = None) -> dict[str, Any]:
    """`fleet` and `undrilled`, of rows as `rows_of` gives them."""
    figures = [figures_of(row) for row in rows]
    max_age = timedelta(days=settings.DRILL_DAYS)
    late = undrilled(figures, now or timezone.now(), max_age) if settings.DRILL_DAYS else []
    return {"fleet": fleet(figures), "undrilled": late}


def _cost(run: TrainingRun, lost_seconds: float | None) -> float | None:
    price, count = run.cluster.gpu_hour_cost, gpus_of(run)
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
        reason=drill.reason,
    )
