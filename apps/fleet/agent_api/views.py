"""The agent protocol's endpoints. Each waits at most for its database call, or, without holding one, for news."""

from __future__ import annotations

import random
import time

from django.conf import settings
from django.http import HttpRequest
from muster_agent.protocol.wire import (
    AckReply,
    AckRequest,
    EnrolReply,
    EnrolRequest,
    EventBatch,
    EventReply,
    PollReply,
    PollRequest,
    ReadyReply,
    ReadyRequest,
    ReleaseReply,
    ReleaseRequest,
    ResultReply,
    TaskResult,
)

from apps.core.database import in_database
from apps.core.errors import Conflict, InvalidInput
from apps.core.wakeups import Waiter
from apps.fleet import barrier, enrolment, events, polling, tasks
from apps.fleet.agent_api import rereading
from apps.fleet.agent_api.auth import agent_view, answering, decode
from apps.fleet.agent_api.body import read_body
from apps.fleet.models import Agent, AgentTask, TaskGroup

REREAD_SECONDS = 5.0
"""Who waits at a barrier looks at its rows this often even when nothing was announced."""
MAX_BOOT_ID_LENGTH = 64


async def _enrol(request: HttpRequest) -> EnrolReply:
    message = decode(read_body(request, "POST"), EnrolRequest)
    address = request.META.get("REMOTE_ADDR", "")
    agent, credential = await in_database(enrolment.enrol, request=message, address=address)
    return EnrolReply(agent_id=agent.pk, credential=credential, state=agent.state, server_unix_seconds=time.time())


enrol = answering(_enrol, _enrol)


@agent_view(PollRequest)
async def poll(request: HttpRequest, agent: Agent, message: PollRequest) -> PollReply:
    if not 1 <= len(message.boot_id) <= MAX_BOOT_ID_LENGTH:
        raise InvalidInput(f"boot_id has 1 to {MAX_BOOT_ID_LENGTH} characters.", pointer="/boot_id")
    wait_seconds = min(max(message.wait_seconds, 0.0), float(settings.AGENT_POLL_SECONDS))
    ends_at = time.monotonic() + wait_seconds * random.uniform(0.9, 1.0)
    async with Waiter(f"agent:{agent.pk}") as waiter:
        reply = await in_database(polling.begin, agent=agent, request=message)
        if polling.is_news(reply, message):
            return reply
        return await _news(waiter, agent.pk, message, ends_at) or reply_without_news(reply)


async def _news(waiter: Waiter, agent_id: str, message: PollRequest, ends_at: float) -> PollReply | None:
    """What comes up until `ends_at` of the monotonic clock; None where nothing does."""
    with rereading.of_this_loop().watching(waiter, agent_id, message):
        while (left := ends_at - time.monotonic()) > 0:
            if await waiter.wait(left, is_reread=True):
                news = await in_database(polling.look, agent_id=agent_id, request=message)
                if news is not None:
                    return news
    return None


def reply_without_news(reply: PollReply) -> PollReply:
    """The same answer with the time at which it leaves: the agent sets its clock by it."""
    return PollReply(
        server_unix_seconds=time.time(),
        cancel=reply.cancel,
        drain=reply.drain,
        state=reply.state,
        next_poll_seconds=reply.next_poll_seconds,
    )


@agent_view(AckRequest)
async def ack(request: HttpRequest, agent: Agent, message: AckRequest, task_id: str) -> AckReply:
    await in_database(tasks.acknowledge, agent=agent, task_id=task_id, attempt=message.attempt)
    return AckReply(server_unix_seconds=time.time(), lease_seconds=float(settings.TASK_LEASE_SECONDS))


@agent_view(EventBatch)
async def task_events(request: HttpRequest, agent: Agent, message: EventBatch, task_id: str) -> EventReply:
    task = await in_database(events.ingest, agent=agent, task_id=task_id, batch=message)
    return EventReply(
        acked_seq=max((event.seq for event in message.events), default=0),
        cancel=task.state == AgentTask.State.CANCELLING,
        lease_seconds=float(settings.TASK_LEASE_SECONDS),
        server_unix_seconds=time.time(),
    )


@agent_view(ReadyRequest)
async def ready(request: HttpRequest, agent: Agent, message: ReadyRequest, task_id: str) -> ReadyReply:
    task = await in_database(tasks.held_task, agent, task_id, message.attempt)
    if task.group_id is None:
        raise Conflict("This task has no barrier.", code="no_barrier")
    ends_at = time.monotonic() + min(max(message.wait_seconds, 0.0), float(settings.AGENT_POLL_SECONDS))
    async with Waiter(f"group:{task.group_id}", f"agent:{agent.pk}") as waiter:
        await in_database(barrier.mark_ready, task)
        while True:
            reply = await in_database(_look_at_barrier, agent, task_id, message.attempt)
            left = ends_at - time.monotonic()
            if reply.start_unix_seconds is not None or reply.abort is not None or left <= 0:
                return reply
            await waiter.wait(min(left, REREAD_SECONDS))


def _look_at_barrier(agent: Agent, task_id: str, attempt: int) -> ReadyReply:
    task = tasks.held_task(agent, task_id, attempt)
    assert task.group_id is not None
    group = barrier.settle(task.group_id)
    abort = (group.reason or "aborted") if group.state == TaskGroup.State.ABORTED else None
    if task.state == AgentTask.State.CANCELLING:
        abort = abort or "the task was cancelled"
    return ReadyReply(
        server_unix_seconds=time.time(),
        start_unix_seconds=group.start_at.timestamp() if group.start_at else None,
        abort=abort,
    )


@agent_view(ReleaseRequest)
async def release(request: HttpRequest, agent: Agent, message: ReleaseRequest, task_id: str) -> ReleaseReply:
    task = await in_database(
        tasks.release, agent=agent, task_id=task_id, attempt=message.attempt, reason=message.reason
    )
    return ReleaseReply(state=task.state)


@agent_view(TaskResult, method="PUT")
async def result(request: HttpRequest, agent: Agent, message: TaskResult, task_id: str, attempt: int) -> ResultReply:
    if message.outcome not in tasks.REPORTABLE:
        raise InvalidInput(f"The outcome {message.outcome!r} is not known.", pointer="/outcome")
    task, late = await in_database(tasks.finish, agent=agent, task_id=task_id, attempt=attempt, result=message)
    if late and task.attempt != attempt:
        raise Conflict(tasks.LEASE_LOST, code="lease_lost")
    return ResultReply(state=task.state, late=late)
