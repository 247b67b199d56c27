"""Following real disruptions: an incident when a launch dies, its recovery until the run trains again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, Max, Min, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.checkpoints.models import RunAttempt, RunEvent, StepReport
from apps.checkpoints.scheduler_events import REQUEUED, SCHEDULER_KINDS
from apps.core import transitions
from apps.core.transitions import transition
from apps.drills import failing_over
from apps.drills.models import Drill, DrillKind
from apps.drills.run_records import WayBack, way_back
from apps.recovery.models import Incident, Recovery
from apps.recovery.timeline import Disruption, Launch, disruptions

LOOK_BACK = timedelta(days=7)
LATE_RECORDS = timedelta(minutes=10)
"""Records of a moment may come this much later; until then what they are about is computed again."""
SETTLE = timedelta(seconds=3)


def follow_runs(now: datetime | None = None) -> None:
    """Open what has begun, close what is over. Idempotent: called by every sweep."""
    now = now or timezone.now()
    _open_incidents(now)
    open_or_fresh = Q(state=Recovery.State.OPEN) | Q(closed_at__gte=now - LATE_RECORDS)
    for recovery in Recovery.objects.filter(open_or_fresh).select_related("incident__ended_attempt"):
        _follow(recovery, now)
    fresh = Drill.objects.filter(
        kind=DrillKind.FAILOVER, outcome=Drill.Outcome.PASSED, finished_at__gte=now - LATE_RECORDS
    )
    for drill in fresh.select_related("attempt", "placement", "run", "cluster"):
        failing_over.recompute(drill)


def _open_incidents(now: datetime) -> None:
    suspects = _suspects(now)
    by_run: dict[str, list[RunAttempt]] = defaultdict(list)
    for attempt in RunAttempt.objects.filter(run__in={row.run_id for row in suspects}):
        by_run[attempt.run_id].append(attempt)
    wanted = {row.pk for row in suspects}
    for attempts in by_run.values():
        rows = {row.launch_id: row for row in attempts}
        for found in disruptions(_launches(attempts)):
            if rows[found.launch_id].pk in wanted:
                _open(rows[found.launch_id], found)


def _suspects(now: datetime) -> list[RunAttempt]:
    """Launches that trained, have no incident, and ended or were followed by another; not those that a drill ended."""
    drilled = Drill.objects.filter(attempt=OuterRef("pk"), kind=DrillKind.FAILOVER)
    drilled = drilled.filter(Q(fault_at__isnull=False) | ~Q(state=Drill.State.FINISHED))
    later = RunAttempt.objects.filter(run=OuterRef("run"), started_at__gt=OuterRef("started_at"))
    rows = RunAttempt.objects.filter(
        Q(ended_at__isnull=False) | Exists(later),
        last_step__isnull=False,
        incident=None,
        last_report_at__gte=now - LOOK_BACK,
    )
    return list(rows.exclude(Exists(drilled))[:500])


def _launches(attempts: Sequence[RunAttempt]) -> list[Launch]:
    ids = [attempt.pk for attempt in attempts]
    events = RunEvent.objects.filter(attempt__in=ids)
    signs = _times(events.exclude(kind__in=("failure_detected", *SCHEDULER_KINDS)), Max("at"))
    steps = _times(StepReport.objects.filter(attempt__in=ids), Max("at"))
    ended = _times(events.filter(kind="process_ended"), Max("at"))
    failed = _times(events.filter(kind__in=("failure_detected", REQUEUED)), Min("at"))
    return [
        Launch(
            launch_id=row.launch_id,
            started_at=row.started_at.timestamp(),
            last_sign_at=max(signs.get(row.pk, row.started_at), steps.get(row.pk, row.started_at)).timestamp(),
            last_step=row.last_step,
            ended_at=_seconds(ended.get(row.pk)),
            failure_detected_at=_seconds(failed.get(row.pk)),
        )
        for row in attempts
    ]


def _times(rows: QuerySet[RunEvent] | QuerySet[StepReport], of: Max | Min) -> dict[str, datetime]:
    return dict(rows.order_by().values_list("attempt").annotate(moment=of))


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None


@transaction.atomic
def _open(attempt: RunAttempt, found: Disruption) -> None:
    now = timezone.now()
    incident, fresh = Incident.objects.get_or_create(
        ended_attempt=attempt,
        defaults={
            "run_id": attempt.run_id,
            "fault_at": _moment(found.fault_at),
            "detected_at": None if found.detected_at is None else _moment(found.detected_at),
            "detail": found.detail,
            "created_at": now,
        },
    )
    if fresh:
        recovery = Recovery.objects.create(incident=incident, created_at=now)
        transitions.record("recovery", recovery.pk, old="", new=recovery.state, reason=found.detail)


def _follow(recovery: Recovery, now: datetime) -> None:
    incident = recovery.incident
    if incident.ended_attempt is None:
        return  # nothing of ours measures it: what its reporter gave stands
    way = way_back(failed=incident.ended_attempt, fault_at=incident.fault_at, fault_is_exact=False)
    line = way.timeline
    if line.detected_at is not None and incident.detected_at is None:
        Incident.objects.filter(pk=incident.pk).update(detected_at=_moment(line.detected_at))
    if line.seconds is None or incident.fault_at + timedelta(seconds=line.seconds) > now - SETTLE:
        return
    figures = _figures(way)
    if recovery.state == Recovery.State.OPEN:
        transition(
            recovery,
            old=Recovery.State.OPEN,
            new=Recovery.State.CLOSED,
            reason="trains again",
            closed_at=now,
            **figures,
        )
    elif any(getattr(recovery, name) != value for name, value in figures.items()):
        Recovery.objects.filter(pk=recovery.pk).update(**figures)


def _figures(way: WayBack) -> dict[str, Any]:
    line = way.timeline
    return {
        "attempt": way.attempt,
        "checkpoint_step": line.resumed_from_step,
        "time_to_resume_seconds": line.seconds,
        "lost_steps": way.lost_steps,
        "lost_seconds": way.lost_seconds,
        "phases": line.phases,
        "unattributed_seconds": line.unattributed_seconds,
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
