"""Taking in event batches: a repeated event is ignored, every batch renews the lease, progress is summarised."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.utils import timezone
from muster_agent.protocol.wire import EventBatch, TaskEvent

from apps.core.dispatch import wake_owner
from apps.core.errors import Conflict, InvalidInput
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.fleet.models import Agent, AgentEvent, AgentTask
from apps.fleet.tasks import LEASE_LOST, held_task

MAX_EVENTS = 1_000
_MOST_COUNTS, _COUNT_NAME_LENGTH = 16, 40


@transaction.atomic
def ingest(*, agent: Agent, task_id: str, batch: EventBatch) -> AgentTask:
    """Store a batch and renew the lease. Raises Conflict `lease_lost` for a stale attempt, InvalidInput for bad events.

    An empty batch only renews. Four statements, however many events.
    """
    rows = _rows(task_id, batch)
    task = held_task(agent, task_id, batch.attempt)
    if rows:
        AgentEvent.objects.bulk_create(rows, ignore_conflicts=True, batch_size=250)
    started = task.state == AgentTask.State.ACKED and bool(rows)
    if started:
        transition(task, old=AgentTask.State.ACKED, new=AgentTask.State.RUNNING, started_at=timezone.now())
    _renew(task, batch)
    if rows:
        announce(f"{task.owner_kind}:{task.owner_id}")
    if started or any(row.kind == "injected" for row in rows):
        wake_owner(task.owner_kind, task.owner_id)
    return task


def _renew(task: AgentTask, batch: EventBatch) -> None:
    progress = summarise(task.progress, batch.events)
    expires_at = timezone.now() + timedelta(seconds=settings.TASK_LEASE_SECONDS)
    held = AgentTask.objects.filter(pk=task.pk, attempt=batch.attempt, state__in=AgentTask.HELD)
    dropped = min(max(batch.dropped, 0), 1_000_000_000)
    if not held.update(lease_expires_at=expires_at, progress=progress, dropped_events=F("dropped_events") + dropped):
        raise Conflict(LEASE_LOST, code="lease_lost")
    task.progress, task.lease_expires_at = progress, expires_at


def summarise(progress: dict[str, Any], events: tuple[TaskEvent, ...]) -> dict[str, Any]:
    """What a page shows of a running task: `phase`, `done_bytes`, `total_bytes`, `at`, `counts` (what else
    the work counts, by name), and per phase when it began and
    ended (`phases`: {phase: {"begin": t, "end": t}}, Unix seconds). A later attempt's events overwrite."""
    summary = dict(progress)
    phases = {name: dict(times) for name, times in summary.get("phases", {}).items()}
    for event in sorted(events, key=lambda one: one.seq):
        if event.kind == "phase" and event.phase and event.edge:
            phases.setdefault(event.phase, {})[event.edge] = event.at_unix_seconds
        if event.kind in ("progress", "phase"):
            given = {"phase": event.phase, "done_bytes": event.done_bytes, "total_bytes": event.total_bytes}
            summary |= {name: value for name, value in given.items() if value is not None}
            summary["at"] = event.at_unix_seconds
            if event.data:
                summary["counts"] = _counts(event.data)
        elif event.kind == "log" and event.message:
            summary["message"] = event.message[:500]
    if phases:
        summary["phases"] = phases
    return summary


def _counts(data: dict[str, Any]) -> dict[str, int]:
    """A few small numbers, whatever an agent sends."""
    whole = {name: value for name, value in data.items() if type(value) is int and 0 <= value < 2**63}
    return {name[:_COUNT_NAME_LENGTH]: whole[name] for name in sorted(whole)[:_MOST_COUNTS]}


def _rows(task_id: str, batch: EventBatch) -> list[AgentEvent]:
    if len(batch.events) > MAX_EVENTS:
        raise InvalidInput(f"A batch holds at most {MAX_EVENTS} events.", pointer="/events")
    return [_row(task_id, batch.attempt, event, number) for number, event in enumerate(batch.events)]


def _row(task_id: str, attempt: int, event: TaskEvent, number: int) -> AgentEvent:
    fits = (
        0 <= event.seq < 2**63
        and 0 < len(event.kind) <= 16
        and len(event.phase or "") <= 16
        and len(event.edge or "") <= 8
        and (event.rank is None or -1 <= event.rank < 2**31)
    )
    if not fits:
        raise InvalidInput("This event has a field that is too long or out of range.", pointer=f"/events/{number}")
    return AgentEvent(
        task_id=task_id,
        attempt=attempt,
        seq=event.seq,
        kind=event.kind,
        at=_time(event.at_unix_seconds, number),
        mono_seconds=event.mono_seconds,
        phase=event.phase or "",
        edge=event.edge or "",
        rank=event.rank,
        data=_data(event),
    )


def _data(event: TaskEvent) -> dict[str, Any]:
    named = {"done_bytes": event.done_bytes, "total_bytes": event.total_bytes, "message": event.message}
    return {**event.data, **{name: value for name, value in named.items() if value is not None}}


def _time(unix_seconds: float, number: int) -> datetime:
    try:
        return datetime.fromtimestamp(unix_seconds, tz=UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise InvalidInput("This event's time is out of range.", pointer=f"/events/{number}/at_unix_seconds") from error
