"""Every run against its objectives: the passes and misses of its drills, what is left of its budget of misses, how sure
that is, and the work it would lose now. The worst first, in keyset pages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db.models import Case, Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce, Least
from django.utils import timezone

from apps.checkpoints.models import TrainingRun
from apps.drills.models import Drill, DrillKind
from apps.recovery import readiness
from apps.recovery.selectors import RECENT, WITH_RESULT
from apps.recovery.trials import BUDGET_WINDOW, Summary, Trial, summary

PREFERENCE = (DrillKind.FAILOVER, DrillKind.RELOAD, DrillKind.HERD)
"""A failover measures all of the way back; the others only its storage part."""
MAX_TRIALS = 20_000
_MOST_MISSES = 999
_TRIALS_FOR_A_MISS = 20


class State(StrEnum):
    """How a run stands, the worst first."""

    OVER_BUDGET = "over_budget"
    MISSED = "missed"
    NOT_DRILLED = "not_drilled"
    NO_OBJECTIVE = "no_objective"
    IN_TIME = "in_time"


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One run. `kind` is of the drills that judge it, "" where none ended with a result in 90 days; `summary` is of
    those. `lost_seconds` is the work that would be lost now, None where that is not measured."""

    run: TrainingRun
    state: State
    kind: str
    summary: Summary
    lost_seconds: float | None

    @property
    def is_storage_only(self) -> bool:
        return self.kind in (DrillKind.RELOAD, DrillKind.HERD)

    @property
    def rpo_is_met(self) -> bool | None:
        """None without an objective, or where the loss is not measured."""
        allowed = self.run.rpo_objective_seconds
        return None if allowed is None or self.lost_seconds is None else self.lost_seconds <= allowed


def ranked(runs: QuerySet[Any], now: datetime | None = None) -> QuerySet[Any]:
    """`runs` with `judging_kind` and `standing`, a whole number that grows from the worst to the best, to sort by."""
    at = now or timezone.now()
    judging = Drill.objects.filter(run=OuterRef("pk"), kind=OuterRef("judging_kind"), outcome__in=WITH_RESULT)
    in_window = judging.filter(created_at__gte=at - BUDGET_WINDOW)
    is_miss = ~Q(outcome=Drill.Outcome.PASSED) | Q(objective_state=Drill.ObjectiveState.BREACHED)
    is_met = Q(outcome=Drill.Outcome.PASSED, objective_state=Drill.ObjectiveState.MET)
    told = ~Q(outcome=Drill.Outcome.PASSED) | Q(seconds__isnull=False)
    rows = runs.annotate(judging_kind=_judging_kind(at))
    rows = rows.annotate(
        trial_count=_count(in_window.filter(told).filter(is_miss | is_met)),
        miss_count=_count(in_window.filter(told).filter(is_miss)),
    )
    ranked_rows: QuerySet[Any] = rows.annotate(
        standing=_RANK * 1000 + _MOST_MISSES - Least(F("miss_count"), Value(_MOST_MISSES)),
    )
    return ranked_rows


def _judging_kind(now: datetime) -> Case:
    recent = Drill.objects.filter(run=OuterRef("pk"), outcome__in=WITH_RESULT, created_at__gte=now - RECENT)
    found = [When(Exists(recent.filter(kind=kind)), then=Value(kind.value)) for kind in PREFERENCE]
    return Case(*found, default=Value(""))


def _count(drills: QuerySet[Drill]) -> Coalesce:
    counted = drills.order_by().values("run").annotate(count=Count("pk")).values("count")
    return Coalesce(Subquery(counted), Value(0), output_field=IntegerField())


# misses above max(1, trials // 20), as `trials.budget` has it
_OVER = Q(miss_count__gt=1) & Q(trial_count__lt=F("miss_count") * _TRIALS_FOR_A_MISS)
_RANK = Case(
    When(_OVER, then=Value(0)),
    When(miss_count__gt=0, then=Value(1)),
    When(rto_objective_seconds__isnull=False, trial_count=0, then=Value(2)),
    When(rto_objective_seconds__isnull=True, trial_count=0, then=Value(3)),
    default=Value(4),
    output_field=IntegerField(),
)


def state_of(run: Any) -> State:
    """Of a run that `ranked` gives."""
    standing: int = run.standing
    return list(State)[standing // 1000]


def objectives_of(rows: Sequence[Any], now: datetime | None = None) -> list[Objective]:
    """For the runs of one page of `ranked(readiness.runs_to_judge())`, in their order."""
    at = now or timezone.now()
    trials = _trials({run.pk: run.judging_kind for run in rows}, at - RECENT)
    losses = readiness.losses(rows, at)
    return [
        Objective(
            run=run,
            state=state_of(run),
            kind=run.judging_kind,
            summary=summary(trials[run.pk], at),
            lost_seconds=losses.get(run.pk),
        )
        for run in rows
    ]


def trials_of(run: TrainingRun, kind: str, now: datetime) -> list[Trial]:
    """One run's drills of one kind in 90 days, newest first: the very ones that `objectives_of` counts."""
    return _trials({run.pk: kind}, now - RECENT)[run.pk]


def _trials(kinds: dict[str, str], since: datetime) -> dict[str, list[Trial]]:
    """Newest first, without phases: they are counted, not explained."""
    rows = Drill.objects.filter(run__in=list(kinds), kind__in=set(kinds.values()), outcome__in=WITH_RESULT)
    fields = ("run_id", "kind", "created_at", "outcome", "seconds", "objective_state")
    newest = rows.filter(created_at__gte=since).order_by("-created_at", "-pk").values_list(*fields)
    found: dict[str, list[Trial]] = defaultdict(list)
    for run_id, kind, at, outcome, seconds, judged in newest[:MAX_TRIALS]:
        restored = outcome == Drill.Outcome.PASSED
        if kind == kinds[run_id] and (seconds is not None or not restored):
            is_met = _MET.get(judged) if restored else None
            found[run_id].append(Trial(at=at, seconds=seconds if restored else None, is_met=is_met, phases={}))
    return found


_MET = {Drill.ObjectiveState.MET.value: True, Drill.ObjectiveState.BREACHED.value: False}
