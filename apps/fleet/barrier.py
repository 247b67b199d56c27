"""The barrier of multi-agent drills: counts who is ready and names one start a little ahead, by itself."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.core.dispatch import wake_owner
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.fleet.models import AgentTask, TaskGroup

State = TaskGroup.State


@transaction.atomic
def create_group(*, owner_kind: str, owner_id: str, quorum: int, deadline_at: datetime) -> TaskGroup:
    """A barrier that opens when `quorum` of its tasks are ready, and is aborted when they are not by `deadline_at`."""
    return TaskGroup.objects.create(
        owner_kind=owner_kind, owner_id=owner_id, quorum=quorum, deadline_at=deadline_at, created_at=timezone.now()
    )


@transaction.atomic
def abort_group(*, group: TaskGroup, reason: str) -> bool:
    """It will never open: those who wait are told, those who have not begun are not begun. False when it had opened."""
    if not transition(group, old=State.GATHERING, new=State.ABORTED, reason=reason):
        return False
    TaskGroup.objects.filter(pk=group.pk).update(reason=reason)
    group.reason = reason
    for task in group.tasks.filter(state__in=(AgentTask.State.QUEUED, AgentTask.State.LEASED)):
        ended: dict[str, Any] = {"outcome": AgentTask.Outcome.CANCELLED, "error": reason, "finished_at": timezone.now()}
        transition(task, old=task.state, new=AgentTask.State.DONE, reason=reason, error_code="barrier_aborted", **ended)
    _tell(group)
    return True


@transaction.atomic
def mark_ready(task: AgentTask) -> None:
    """This member is ready. Committed before the count is taken: of two that arrive at once, the later sees both."""
    AgentTask.objects.filter(pk=task.pk, attempt=task.attempt, ready_at=None).update(ready_at=timezone.now())


def settle(group_id: str) -> TaskGroup:
    """Open the barrier if its quorum is ready, abort it if its deadline has passed; gives the group as it then is."""
    group = TaskGroup.objects.get(pk=group_id)
    return _settled(group) if group.state == State.GATHERING else group


@transaction.atomic
def _settled(group: TaskGroup) -> TaskGroup:
    now = timezone.now()
    ready = group.tasks.filter(ready_at__isnull=False).exclude(state__in=AgentTask.FINISHED).count()
    if ready >= group.quorum:
        start_at = now + timedelta(seconds=lead_seconds(group.quorum))
        if transition(group, old=State.GATHERING, new=State.RELEASED, reason=f"{ready} are ready", start_at=start_at):
            _tell(group)
    elif now >= group.deadline_at:
        abort_group(group=group, reason=f"only {ready} of {group.quorum} agents were ready by the deadline")
    group.refresh_from_db()
    return group


def member_ended(task: AgentTask) -> None:
    """A member that ended without success keeps a barrier that is still gathering from ever opening."""
    if task.group_id is None or task.outcome == AgentTask.Outcome.DONE:
        return
    group = TaskGroup.objects.filter(pk=task.group_id, state=State.GATHERING).first()
    if group is not None:
        abort_group(group=group, reason=f"task {task.pk} ended as {task.outcome}: {task.error or 'no reason given'}")


def lead_seconds(quorum: int) -> float:
    """How far ahead the start is named: all must hear of it first, and many take longer than few."""
    return 0.5 if quorum <= 16 else min(0.5 + quorum / 200, 5.0)


def overdue() -> list[str]:
    """Groups that gather beyond their deadline; `settle` ends each."""
    rows = TaskGroup.objects.filter(state=State.GATHERING, deadline_at__lte=timezone.now())
    return list(rows.values_list("pk", flat=True))


def _tell(group: TaskGroup) -> None:
    announce(f"group:{group.pk}")
    announce(f"{group.owner_kind}:{group.owner_id}")
    wake_owner(group.owner_kind, group.owner_id)
