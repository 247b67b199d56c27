"""The life of a task: queued, handed out under a lease, taken up, finished exactly once."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from muster_agent.protocol.wire import TaskKind, TaskResult

from apps.core.dispatch import wake_owner
from apps.core.errors import Conflict, NotFound
from apps.core.transitions import record, transition
from apps.core.wakeups import announce
from apps.fleet import barrier
from apps.fleet.models import Agent, AgentTask, TaskGroup

State = AgentTask.State
Outcome = AgentTask.Outcome
Body = TypeVar("Body", bound=msgspec.Struct)

REPORTABLE = (Outcome.DONE, Outcome.FAILED, Outcome.CANCELLED, Outcome.UNSUPPORTED)
MAX_LATE_RESULTS = 3
LEASE_LOST = "This attempt no longer holds the task; stop it and drop what it had begun."


# -- what owners call --------------------------------------------------------------------------------------------------
@transaction.atomic
def create_task(
    *,
    agent: Agent,
    kind: TaskKind,
    params: msgspec.Struct,
    owner_kind: str,
    owner_id: str,
    group: TaskGroup | None = None,
    idempotent: bool = True,
) -> AgentTask:
    """Queue work for `agent`. An `idempotent` task whose attempt is lost is run again, up to three times in all."""
    task = AgentTask.objects.create(
        agent=agent,
        kind=kind.value,
        params=msgspec.to_builtins(params),
        owner_kind=owner_kind,
        owner_id=owner_id,
        group=group,
        idempotent=idempotent,
        created_at=timezone.now(),
    )
    announce(f"agent:{agent.pk}")
    return task


@transaction.atomic
def request_cancel(*, task: AgentTask, reason: str) -> bool:
    """Stop a task. One nobody works on ends here; a running one is told, and ends by its result (or is lost after a
    minute). False when it had finished already: the first terminal state wins."""
    task.refresh_from_db()
    now = timezone.now()
    ended: dict[str, Any] = {
        "outcome": Outcome.CANCELLED,
        "cancel_requested_at": now,
        "finished_at": now,
        "error": reason,
    }
    if transition(task, old=(State.QUEUED, State.LEASED, State.ORPHANED), new=State.DONE, reason=reason, **ended):
        _tell_owner(task)
        return True
    if transition(task, old=(State.ACKED, State.RUNNING), new=State.CANCELLING, reason=reason, cancel_requested_at=now):
        announce(f"agent:{task.agent_id}")
        return True
    return task.state == State.CANCELLING


def cancel_owner(*, owner_kind: str, owner_id: str, reason: str) -> int:
    """Cancel every unfinished task of an owner; gives how many."""
    unfinished = tasks_of(owner_kind, owner_id).exclude(state__in=AgentTask.FINISHED)
    return sum(request_cancel(task=task, reason=reason) for task in unfinished)


def tasks_of(owner_kind: str, owner_id: str) -> QuerySet[AgentTask]:
    """An owner's tasks, oldest first."""
    rows = AgentTask.objects.filter(owner_kind=owner_kind, owner_id=owner_id)
    return rows.select_related("agent__node").order_by("created_at", "pk")


def body(task: AgentTask, type_: type[Body]) -> Body:
    """The typed body of a task that is done. Raises msgspec.ValidationError for one of another shape (or none)."""
    return msgspec.convert(task.result, type_)


def forget_result(task: AgentTask) -> None:
    """Drop a big result once it has been taken over; its digest stays, so that a repeated PUT is still recognised."""
    AgentTask.objects.filter(pk=task.pk).update(result=None)
    task.result = None


# -- what agents cause -------------------------------------------------------------------------------------------------
def claim(*, agent: Agent, slots: int) -> list[AgentTask]:
    """Hand out up to `slots` queued tasks, each with attempt + 1 and a short time to acknowledge."""
    queued = AgentTask.objects.filter(agent=agent, state=State.QUEUED).order_by("created_at", "pk")[:slots]
    return [task for task in queued if _lease(task)]


def _lease(task: AgentTask) -> bool:
    expires_at = timezone.now() + timedelta(seconds=settings.TASK_ACK_SECONDS)
    return transition(task, old=State.QUEUED, new=State.LEASED, attempt=task.attempt + 1, lease_expires_at=expires_at)


@transaction.atomic
def acknowledge(*, agent: Agent, task_id: str, attempt: int) -> None:
    """The agent takes the task up: from here a side effect may happen. Repeating it is harmless."""
    task = held_task(agent, task_id, attempt, states=(State.LEASED, *AgentTask.HELD))
    if task.state == State.LEASED:
        taken = transition(
            task, old=State.LEASED, new=State.ACKED, lease_expires_at=_lease_end(), runs=task.runs + 1, ready_at=None
        )
        if not taken:
            raise Conflict(LEASE_LOST, code="lease_lost")


@transaction.atomic
def release(*, agent: Agent, task_id: str, attempt: int, reason: str) -> AgentTask:
    """A draining agent hands a task back. What may not be run twice ends here instead."""
    task = held_task(agent, task_id, attempt)
    reason = reason[:500] or "handed back by a draining agent"
    if task.state == State.CANCELLING or not task.idempotent:
        outcome = Outcome.CANCELLED if task.state == State.CANCELLING else Outcome.LOST
        transition(
            task,
            old=task.state,
            new=State.DONE,
            reason=reason,
            outcome=outcome,
            error=reason,
            finished_at=timezone.now(),
        )
    else:
        back: dict[str, Any] = {"lease_expires_at": None, "ready_at": None, "runs": max(task.runs - 1, 0)}
        transition(task, old=task.state, new=State.QUEUED, reason=reason, **back)
        announce(f"agent:{task.agent_id}")
    _tell_owner(task)
    return task


def held_task(agent: Agent, task_id: str, attempt: int, *, states: tuple[str, ...] = AgentTask.HELD) -> AgentTask:
    """The agent's own task while this attempt holds it. Another agent's task does not exist here: 404."""
    task = own_task(agent, task_id)
    if task.attempt != attempt or task.state not in states:
        raise Conflict(LEASE_LOST, code="lease_lost")
    return task


def own_task(agent: Agent, task_id: str) -> AgentTask:
    task = AgentTask.objects.filter(pk=task_id, agent=agent).select_related("group").first()
    if task is None:
        raise NotFound("This agent has no such task.")
    return task


def _lease_end() -> Any:
    return timezone.now() + timedelta(seconds=settings.TASK_LEASE_SECONDS)


@transaction.atomic
def finish(*, agent: Agent, task_id: str, attempt: int, result: TaskResult) -> tuple[AgentTask, bool]:
    """Store a result, once. The same again is accepted, another is a conflict; a late one is kept but not counted.

    Gives the task and whether the result came late.
    """
    task = own_task(agent, task_id)
    digest = hashlib.sha256(msgspec.json.encode(result, order="sorted")).hexdigest()
    if task.attempt == attempt and task.state in AgentTask.HELD:
        if _store(task, result, digest):
            return task, False
        task = own_task(agent, task_id)
    if task.attempt == attempt and task.result_sha256 == digest:
        return task, False
    if task.attempt == attempt and task.result_sha256:
        raise Conflict("This attempt has already reported another result; the first stands.", code="result_conflict")
    _keep_late(task, attempt, result, digest)
    return task, True


def _store(task: AgentTask, result: TaskResult, digest: str) -> bool:
    values: dict[str, Any] = {
        "outcome": Outcome(result.outcome),
        "result": result.body,
        "result_sha256": digest,
        "error": result.error or "",
        "error_code": (result.error_code or "")[:64],
        "finished_at": timezone.now(),
    }
    if not transition(task, old=AgentTask.HELD, new=State.REPORTED, reason=result.outcome, **values):
        return False
    transition(task, old=State.REPORTED, new=State.DONE, reason=result.outcome)
    _tell_owner(task)
    return True


def _keep_late(task: AgentTask, attempt: int, result: TaskResult, digest: str) -> None:
    if any(late["sha256"] == digest for late in task.late_results):
        return
    late = {
        "attempt": attempt,
        "at": timezone.now().isoformat(),
        "sha256": digest,
        **msgspec.to_builtins(result),
    }
    task.late_results = [*task.late_results, late][-MAX_LATE_RESULTS:]
    AgentTask.objects.filter(pk=task.pk).update(late_results=task.late_results)
    record("agenttask", task.pk, old=task.state, new=task.state, reason=f"late result of attempt {attempt} kept")


# -- when nobody holds it any more -------------------------------------------------------------------------------------
def release_of_old_boot(agent: Agent) -> None:
    """The node's agent started again: whatever the boot before held is free at once."""
    reason = "the node's agent started again"
    for task in AgentTask.objects.filter(agent=agent, state__in=(State.LEASED, *AgentTask.HELD)):
        requeue_unacknowledged(task, reason) if task.state == State.LEASED else orphan(task, reason)


def requeue_unacknowledged(task: AgentTask, reason: str) -> bool:
    """Nothing has happened yet, so this hand-out does not count as a run."""
    if not transition(task, old=State.LEASED, new=State.QUEUED, reason=reason, lease_expires_at=None):
        return False
    announce(f"agent:{task.agent_id}")
    return True


@transaction.atomic
def orphan(task: AgentTask, reason: str) -> bool:
    """The holder is gone: run it again where that is allowed, else it is lost."""
    was_cancelled = task.state == State.CANCELLING
    if not transition(
        task, old=AgentTask.HELD, new=State.ORPHANED, reason=reason, lease_expires_at=None, ready_at=None
    ):
        return False
    if task.idempotent and task.runs < settings.TASK_MAX_ATTEMPTS and not was_cancelled:
        transition(task, old=State.ORPHANED, new=State.QUEUED, reason=f"run {task.runs} was lost; another follows")
        announce(f"agent:{task.agent_id}")
    else:
        give_up(task, f"{reason}; it is not run again")
    _tell_owner(task)
    return True


def give_up(task: AgentTask, reason: str) -> None:
    """Nobody will report this any more."""
    lost: dict[str, Any] = {
        "outcome": Outcome.LOST,
        "error": reason,
        "error_code": "lost",
        "finished_at": timezone.now(),
    }
    if transition(task, old=(State.QUEUED, State.ORPHANED, State.CANCELLING), new=State.LOST, reason=reason, **lost):
        _tell_owner(task)


def _tell_owner(task: AgentTask) -> None:
    if task.is_finished:
        barrier.member_ended(task)
    wake_owner(task.owner_kind, task.owner_id)
    announce(f"{task.owner_kind}:{task.owner_id}")
