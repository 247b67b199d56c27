"""Reading what is known of one run for the advisor: measured where rows say so, given by people, else assumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from apps.checkpoints.models import RunAttempt, RunEvent, TrainingRun
from apps.core import units
from apps.drills.models import Drill, DrillKind
from apps.recovery import advisor
from apps.recovery.advice import GPUS_PER_NODE, REPAIR_HOURS, Input, Inputs, Source, given, missing
from apps.recovery.models import Incident, Recovery

LOOK_BACK = timedelta(days=90)
MAX_SAVE_RECORDS = 4000
NEWEST = 10
NAMES = (
    "gpu_count", "gpus_per_node", "gpu_hour_cost", "failures_per_node_day", "mtbf_seconds", "save_seconds",
    "interval_seconds", "resume_seconds", "objective_seconds", "repair_hours",
)  # fmt: skip
"""What a question may give itself; a given value stands before a measured one."""


def inputs_of(run: TrainingRun, asked: Mapping[str, Any], now: datetime | None = None) -> Inputs:
    """In five queries at most. `asked` holds some of NAMES; None counts as not asked."""
    since = (now or timezone.now()) - LOOK_BACK
    wished = {name: given(float(asked[name])) for name in NAMES if asked.get(name) is not None}
    saves = _saves(run, since)
    found = {
        "gpu_count": _gpu_count(run),
        "gpus_per_node": Input(GPUS_PER_NODE, Source.ASSUMED, "the usual node of accelerators"),
        "gpu_hour_cost": _price(run),
        "failures_per_node_day": Input(
            advisor.FAILURES_PER_NODE_DAY, Source.ASSUMED, "published for clusters of 8-GPU nodes"
        ),
        "mtbf_seconds": missing("no incident is recorded") if "mtbf_seconds" in wished else _mtbf(run, since),
        "save_seconds": _save_seconds(saves),
        "interval_seconds": _interval(saves),
        "resume_seconds": missing("") if "resume_seconds" in wished else _resume(run, since),
        "objective_seconds": _objective(run),
        "repair_hours": Input(REPAIR_HOURS, Source.ASSUMED, "a day until a broken node is back"),
    }
    whole = _save_seconds(saves)
    if whole.value is None and "save_seconds" in wished:
        whole = missing("the save's own records are not there, so the blocking time stands for all of it")
    return Inputs(whole_save_seconds=whole, **{**found, **wished})


def _gpu_count(run: TrainingRun) -> Input:
    if run.gpu_count:
        return given(run.gpu_count, "on the run")
    if run.cluster.gpu_count:
        return given(run.cluster.gpu_count, f"on the cluster {run.cluster.name}, for all of it")
    return missing("set the GPUs on the run's page")


def _price(run: TrainingRun) -> Input:
    price = run.cluster.gpu_hour_cost
    return (
        given(float(price), f"on the cluster {run.cluster.name}")
        if price is not None
        else missing(f"set the cost of a GPU-hour on the cluster {run.cluster.name}")
    )


def _objective(run: TrainingRun) -> Input:
    seconds = run.rto_objective_seconds
    return given(seconds, "on the run") if seconds else missing("set an objective on the run's page")


def _mtbf(run: TrainingRun, since: datetime) -> Input:
    """The time that its launches were seen training, over the incidents among them."""
    count = Incident.objects.filter(run=run, fault_at__gte=since).count()
    if not count:
        return missing("no incident of it in 90 days: from the nodes instead")
    spans = RunAttempt.objects.filter(run=run, last_report_at__gte=since, last_step__isnull=False)
    seconds = sum(
        max(0.0, (end - max(begin, since)).total_seconds())
        for begin, end in spans.values_list("started_at", "last_report_at")
    )
    if not seconds:
        return missing("its launches reported no time: from the nodes instead")
    incidents = "1 incident" if count == 1 else f"{count} incidents"
    return Input(seconds / count, Source.MEASURED, f"{incidents} in {units.duration(seconds)} of training")


def _resume(run: TrainingRun, since: datetime) -> Input:
    """The median of the newest ten restarts, drilled or real."""
    drills = Drill.objects.filter(
        run=run, kind=DrillKind.FAILOVER, outcome=Drill.Outcome.PASSED, seconds__isnull=False, created_at__gte=since
    )
    real = Recovery.objects.filter(incident__run=run, time_to_resume_seconds__isnull=False, closed_at__gte=since)
    timed = [
        *_newest(drills, "created_at", "seconds"),
        *_newest(real, "closed_at", "time_to_resume_seconds"),
    ]
    newest = [seconds for _at, seconds in sorted(timed, reverse=True)[:NEWEST]]
    if not newest:
        return missing("no restart of it was ever timed: run a failover drill")
    restarts = "one restart" if len(newest) == 1 else f"the median of {len(newest)} restarts"
    return Input(median(newest), Source.MEASURED, restarts)


def _newest(rows: QuerySet[Any], at: str, seconds: str) -> list[tuple[datetime, float]]:
    return list(rows.order_by(f"-{at}").values_list(at, seconds)[:NEWEST])


_Saves = list[tuple[str, int, float | None, datetime]]
"""(launch, step, seconds of its slowest writer, when it was complete), oldest first."""


def _saves(run: TrainingRun, since: datetime) -> _Saves:
    rows = RunEvent.objects.filter(
        run=run, kind__in=("save_started", "save_finished"), step__isnull=False, at__gte=since
    ).order_by("-at")
    fields = rows.values_list("attempt_id", "step", "source", "kind", "mono_seconds", "at")[:MAX_SAVE_RECORDS]
    begun: dict[tuple[str, int, str], float] = {}
    ends: dict[tuple[str, int], datetime] = {}
    spans: dict[tuple[str, int], list[float]] = defaultdict(list)
    for attempt, step, source, kind, mono, at in reversed(fields):
        if step is None:
            continue
        if kind == "save_started":
            begun[attempt, step, source] = mono
            continue
        ends[attempt, step] = at
        started = begun.get((attempt, step, source))
        if started is not None and mono >= started:
            spans[attempt, step].append(mono - started)
    return [
        (attempt, step, max(spans[attempt, step], default=None), at)
        for (attempt, step), at in sorted(ends.items(), key=lambda item: item[1])
    ]


def _save_seconds(saves: _Saves) -> Input:
    spans = [seconds for _attempt, _step, seconds, _at in saves if seconds][-50:]
    if not spans:
        return missing("no save reported its start and end: call the training hook around saves, or give it")
    return Input(
        median(spans), Source.MEASURED, f"the median of {len(spans)} whole saves; give the blocking part if less"
    )


def _interval(saves: _Saves) -> Input:
    gaps = [
        (later[3] - earlier[3]).total_seconds()
        for earlier, later in zip(saves, saves[1:], strict=False)
        if earlier[0] == later[0] and later[1] > earlier[1]
    ][-50:]
    if not gaps or median(gaps) <= 0:
        return missing("no two saves of one launch were reported")
    return Input(median(gaps), Source.MEASURED, f"the median of {len(gaps)} gaps between saves")
