"""What ends a reading drill that does harm or hangs: asked by the controller every few seconds while it reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from apps.checkpoints.models import RunAttempt, StepReport
from apps.core.units import duration
from apps.drills import slowdown
from apps.drills.models import Drill
from apps.drills.results import Client
from apps.fleet.models import AgentTask

LOOK_BACK = timedelta(minutes=10)
_MAX_STEPS = 200


def stalled(drill: Drill, clients: Sequence[Client], now: datetime) -> str:
    """The client at work that told of no progress for as long as the drill allows, "" where there is none."""
    limit = drill.abort_stall_seconds
    for client in clients if limit else ():
        task = client.task
        if task.state not in AgentTask.HELD or task.started_at is None:
            continue
        heard = max(task.started_at.timestamp(), float(task.progress.get("at") or 0.0))
        silence = now.timestamp() - heard
        if silence > (limit or 0):
            return f"Stalled: {client.who} told of no progress for {duration(silence)}."
    return ""


def slowed(drill: Drill, now: datetime) -> str:
    """The job on the cluster that suffers from the drill by more than it allows, "" where there is none."""
    if drill.abort_slowdown_ratio is None or drill.started_at is None:
        return ""
    live = RunAttempt.objects.filter(
        run__cluster_id=drill.cluster_id, ended_at=None, last_report_at__gte=drill.started_at - LOOK_BACK
    )
    for attempt in live.select_related("run")[:50]:
        before = _times(attempt, drill.started_at - LOOK_BACK, drill.started_at)
        told = slowdown.harm(
            before, _times(attempt, drill.started_at, now), now.timestamp(), drill.abort_slowdown_ratio
        )
        if told:
            return f"Given up to spare the job: {attempt.run.name} {told}."
    return ""


def _times(attempt: RunAttempt, begin: datetime, end: datetime) -> list[float]:
    """When the latest steps of that span were done, in order."""
    rows = StepReport.objects.filter(attempt=attempt, at__gt=begin, at__lte=end).order_by("-at")
    return [at.timestamp() for at in rows.values_list("at", flat=True)[:_MAX_STEPS]][::-1]
