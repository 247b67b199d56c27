"""Breaking one worker of a training job: by its node's agent, or, for a whole node, through the cluster's scheduler."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from muster_agent.protocol.wire import DisruptBody, DisruptParams, TaskKind

from apps.checkpoints.models import RunAttempt, RunEvent
from apps.checkpoints.scheduler_events import note_requeue
from apps.core.moments import utc_moment
from apps.drills import selectors
from apps.drills.finish import OWNER_KIND
from apps.drills.models import Drill, Fault
from apps.drills.reading import CannotRun
from apps.drills.workers import Worker, choose_worker, fitting
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask
from apps.fleet.schedulers.access import required_scheduler, scheduler_of
from apps.fleet.schedulers.base import PARKED_REASON, Scheduler, SchedulerError, SchedulerNode

RESTORE_RETRY = timedelta(seconds=10)
LOG_FOUND = "log_found"
"""The record by which an agent begins a launch that it reads from a log."""
log = logging.getLogger(__name__)


class NotInjected(Exception):
    """There will be no fault; `outcome` is the drill's, the message its reason."""

    def __init__(self, outcome: Drill.Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


@dataclass(frozen=True)
class Injection:
    """When it broke, on the server's clock, and what the drill's facts shall say of it."""

    fault_at: datetime
    facts: dict[str, Any]


# -- before ------------------------------------------------------------------------------------------------------------
def chosen_worker(drill: Drill, attempt: RunAttempt) -> Worker:
    """Whom to break. Raises CannotRun where nobody fits or may be broken."""
    fit = fitting_workers(drill, attempt)
    worker = choose_worker(fit, rank=drill.worker_rank, seed=drill.seed)
    if drill.fault == Fault.NODE:
        _check_node(drill, attempt, worker.node)
    else:
        require_agent(attempt, worker)
    return worker


def fitting_workers(drill: Drill, attempt: RunAttempt) -> list[Worker]:
    """Those of which the drill breaks one; never empty. Raises CannotRun."""
    workers = selectors.live_workers(attempt)
    fit = fitting(workers, rank=drill.worker_rank, node=drill.worker_node)
    if not fit:
        wanted = " ".join(
            [f"rank {drill.worker_rank}"] * (drill.worker_rank is not None)
            + [f"on {drill.worker_node}"] * bool(drill.worker_node)
        )
        there = ", ".join(one.who for one in workers[:8]) or "none"
        raise CannotRun(f"Launch {attempt.launch_id} has no worker {wanted}; registered are: {there}.")
    return fit


def require_agent(attempt: RunAttempt, worker: Worker) -> None:
    """Raises CannotRun where nobody beside the worker could break it."""
    if worker.pid is None and RunEvent.objects.filter(attempt=attempt, kind=LOG_FOUND).exists():
        raise CannotRun(
            f"Launch {attempt.launch_id} is known by its log alone: no process there has registered itself with the "
            "training hook, so none may be signalled. Break its node instead (fault node), or add the hook."
        )
    agent = Agent.objects.filter(pk=worker.agent_id).first()
    if agent is None or not selectors.can_work(agent):
        raise CannotRun(
            f"The agent beside launch {attempt.launch_id} is not online, so nothing there may be signalled."
        )


def _check_node(drill: Drill, attempt: RunAttempt, name: str) -> None:
    """Asked of the scheduler itself: what is known of the job's nodes may be minutes old."""
    try:
        scheduler = required_scheduler(drill.cluster)
        node = scheduler.node(name)
        job = scheduler.job(attempt.job_id) if attempt.job_id else None
    except SchedulerError as problem:
        raise CannotRun(str(problem)) from problem
    if not node.usable:
        why = f" ({node.reason})" if node.reason else ""
        raise CannotRun(f"{name} is {node.state}{why} already: somebody works on it, so no drill does.")
    if job is not None and job.nodes and name not in job.nodes:
        raise CannotRun(
            f"Job {job.job_id} runs on {', '.join(job.nodes[:8])} and not on {name}: take an inventory of the cluster, "
            "then start the drill again."
        )


def ask_agent(drill: Drill, attempt: RunAttempt, worker: Worker) -> None:
    """Hand the breaking to the agent beside the worker. An agent too old to know other faults refuses the empty
    signal."""
    tasks.create_task(
        agent=Agent.objects.get(pk=worker.agent_id),
        kind=TaskKind.DISRUPT,
        params=DisruptParams(
            run=drill.run.name,
            attempt=attempt.launch_id,
            fault=drill.fault,
            signal_name=drill.signal_name if drill.fault == Fault.PROCESS else "",
            pid=worker.pid,
            link=drill.link,
        ),
        owner_kind=OWNER_KIND,
        owner_id=drill.pk,
        idempotent=False,
    )


# -- the fault ---------------------------------------------------------------------------------------------------------
def injected(drill: Drill) -> Injection | None:
    """The fault, once it has happened; None until then. Raises NotInjected."""
    return _fail_node(drill) if drill.fault == Fault.NODE else _by_agent(drill)


def _by_agent(drill: Drill) -> Injection | None:
    task = tasks.tasks_of(OWNER_KIND, drill.pk).first()
    if task is None:
        raise NotInjected(Drill.Outcome.FAILED, "The launch that was to be disrupted is no longer known.")
    if task.outcome not in ("", AgentTask.Outcome.DONE):
        raise _refusal(task)
    if task.outcome != AgentTask.Outcome.DONE:
        return None
    body = tasks.body(task, DisruptBody)
    facts: dict[str, Any] = {"pid": body.pid, "signal": body.signal_name, "node": task.agent.node.name}
    if body.undone_after_seconds is not None:
        facts["undone_after_seconds"] = body.undone_after_seconds
    if drill.fault == Fault.EXCEPTION:
        raised = RunEvent.objects.filter(attempt=drill.attempt, kind="fault_injected", pid=body.pid).first()
        return Injection(raised.at, facts) if raised else None
    fault_at = utc_moment(body.injected_unix_seconds)
    if fault_at is None:
        fault_at = task.finished_at or timezone.now()
        facts["fault_time"] = "no calendar holds the time that the agent sent; this is when its answer came"
    return Injection(fault_at, facts)


def _refusal(task: AgentTask) -> NotInjected:
    node = task.agent.node.name
    if task.outcome == AgentTask.Outcome.LOST:
        reason = f"{node} was lost before it said whether the process was ended; see whether the run restarted."
        return NotInjected(Drill.Outcome.LOST, reason)
    return NotInjected(Drill.Outcome.FAILED, f"{node} did not end the process: {task.error or task.outcome}.")


def _fail_node(drill: Drill) -> Injection:
    """Set the node down, once: one that is down with this drill's own reason was set down before a crash."""
    name, facts = drill.restore_node, {"node": drill.restore_node}
    try:
        scheduler = required_scheduler(drill.cluster)
        if _is_ours(drill, scheduler.node(name)):
            return Injection(
                timezone.now(), {**facts, "fault_time": "found down after an interruption; it was earlier"}
            )
        fault_at = timezone.now()
        scheduler.fail(name, node_reason(drill))
    except SchedulerError as problem:
        raise NotInjected(Drill.Outcome.FAILED, f"{name} could not be set down: {problem}") from problem
    return Injection(fault_at, facts)


def node_reason(drill: Drill) -> str:
    """What the scheduler shows of a node that this drill took out of use, and by which it is known again."""
    return f"muster drill {drill.pk}"


def _is_ours(drill: Drill, node: SchedulerNode) -> bool:
    return not node.usable and node.reason == node_reason(drill)


# -- after -------------------------------------------------------------------------------------------------------------
def follow_scheduler(drill: Drill) -> str | None:
    """Record what the scheduler says of the broken launch's job; gives the cure of its hold where it has one."""
    if drill.attempt is None or not drill.attempt.job_id:
        return None
    try:
        scheduler = scheduler_of(drill.cluster)
        job = scheduler.job(drill.attempt.job_id) if scheduler else None
    except SchedulerError as problem:
        log.warning("drill %s: %s", drill.pk, problem)
        return None
    if scheduler is None or job is None:
        return None
    note_requeue(drill.attempt, job)
    return scheduler.requeue_hold_cure


def restore_nodes(drill: Drill) -> None:
    """Bring back the node that this drill took out, and park the spare that it brought in, unless somebody else has
    taken them over since. Tried until it is done, whatever became of the drill."""
    try:
        _bring_back(drill, required_scheduler(drill.cluster))
    except SchedulerError as problem:
        log.warning("drill %s cannot bring %s back yet: %s", drill.pk, drill.restore_node, problem)
        Drill.objects.filter(pk=drill.pk).update(next_attempt_at=timezone.now() + RESTORE_RETRY)
        return
    Drill.objects.filter(pk=drill.pk).update(restore_node="", park_node="", next_attempt_at=None)


def _bring_back(drill: Drill, scheduler: Scheduler) -> None:
    if _is_ours(drill, scheduler.node(drill.restore_node)):
        scheduler.resume(drill.restore_node)
    if drill.park_node and scheduler.node(drill.park_node).usable:
        scheduler.drain(drill.park_node, PARKED_REASON)
