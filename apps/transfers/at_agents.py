"""Transfers of what the workers do not reach: an agent next to the data does each step, as a task of its own; the row,
the cursor and the rules stay here."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from django.db import transaction
from django.utils import timezone
from muster_agent.jobs.control import Cancelled
from muster_agent.jobs.copy_removal import Stays
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.protocol.copies import CopyCursor, RemovalOrder
from muster_agent.protocol.wire import CopyBody, CopyParams, TaskKind

from apps.core.dispatch import enqueue
from apps.core.errors import ApplicationError
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask
from apps.fleet.selectors import contains
from apps.transfers import outcomes, slices
from apps.transfers.facts import FINISHED
from apps.transfers.models import Transfer
from apps.transfers.orders import order_of, removal_of
from apps.transfers.outcomes import UNDER_WAY
from apps.transfers.reach import agent_for
from apps.transfers.services import COPYING_KINDS, OWNER_KIND, SLICE

State = Transfer.State
LOOK_AGAIN = timedelta(seconds=10)
STEP_SECONDS = 60.0
"""A drill that waits for the same agent waits no longer than this for a step to end."""
_DISCARDING = "discarding"
_SECONDS = {"copying": "copy_seconds", "proving": "prove_seconds"}


def work(transfer: Transfer) -> bool:
    """Take what the agent answered, and hand out the next step. Whether to look again at once."""
    try:
        if transfer.task and not _take(transfer):
            return False
        _next(transfer)
    except Cancelled:
        return False
    except Stays as why:
        outcomes.stays(transfer, str(why))
    except CopyTrouble as trouble:
        return outcomes.met(transfer, slices.load_cursor(transfer), trouble)
    except ApplicationError as error:
        return outcomes.fail(transfer, "conflict", error.detail)
    return False


# -- what came back ----------------------------------------------------------------------------------------------------
def _take(transfer: Transfer) -> bool:
    """Take the answer of the task that was handed out. False where nothing is to be handed out now. Raises as
    `outcomes.ended`, and CopyTrouble or Stays as the agent met them."""
    task = AgentTask.objects.filter(pk=transfer.task).select_related("agent__node").first()
    if task is not None and not task.outcome:
        slices.note_counts(transfer, task.progress.get("counts", {}))
        _look_again(transfer)
        return False
    _let_go(transfer, task)
    if task is None:
        raise CopyTrouble("agent_lost", "its task is gone; it is handed out again")
    if task.params["step"] == _DISCARDING:
        _take_discard(transfer, task)
        return False
    if task.outcome == AgentTask.Outcome.DONE:
        _take_body(transfer, task)
    elif transfer.state in UNDER_WAY and task.cancel_requested_at is None:
        raise _trouble_of(task)
    return True  # where it was cancelled here, somebody resumed it meanwhile, or it ends


def _let_go(transfer: Transfer, task: AgentTask | None) -> None:
    """The agent is free for another transfer, and what the task carried is not kept."""
    Transfer.objects.filter(pk=transfer.pk).update(task="")
    transfer.task = ""
    waiting = Transfer.objects.filter(agent=transfer.agent_id, task="", state__in=UNDER_WAY).exclude(pk=transfer.pk)
    following = waiting.order_by("next_attempt_at").values_list("pk", flat=True).first()
    if following is not None:
        enqueue(SLICE, transfer_id=following)


def _take_body(transfer: Transfer, task: AgentTask) -> None:
    step, body = task.params["step"], _body(task)
    slices.save_cursor(transfer, body.cursor)
    if step in _SECONDS:
        slices.add_seconds(transfer, _SECONDS[step], body.seconds)
    if step != transfer.state:
        return  # paused or cancelled meanwhile
    if body.state == "ended":
        outcomes.ended(transfer, body.cursor, body.shard_map)
    elif body.state == "stays":
        raise Stays(body.problem)
    elif body.state == "trouble":
        raise CopyTrouble(body.problem_code, body.problem, findings=body.findings)


def _take_discard(transfer: Transfer, task: AgentTask) -> None:
    problem = _body(task).problem if task.outcome == AgentTask.Outcome.DONE else task.error or task.outcome
    if problem:
        outcomes.not_cleaned(transfer, problem)
    else:
        outcomes.cleaned(transfer)


def _body(task: AgentTask) -> CopyBody:
    """Raises CopyTrouble for an answer of another shape."""
    try:
        body = tasks.body(task, CopyBody)
    except msgspec.ValidationError as error:
        raise CopyTrouble("unsupported", f"the agent's answer was not understood ({error}); update it") from error
    tasks.forget_result(task)
    AgentTask.objects.filter(pk=task.pk).update(params={"step": task.params["step"]})
    return body


def _trouble_of(task: AgentTask) -> CopyTrouble:
    node = task.agent.node.name
    if task.outcome == AgentTask.Outcome.UNSUPPORTED:
        return CopyTrouble("unsupported", f"the agent on {node} cannot do it: {task.error}")
    if task.error_code == "path_outside_roots":
        return CopyTrouble("out_of_reach", f"the agent on {node} refused: {task.error}")
    code = "agent_lost" if task.outcome == AgentTask.Outcome.LOST else "agent_stopped"
    return CopyTrouble(code, f"the agent on {node} did not end it: {task.error or task.outcome}")


# -- what goes out -----------------------------------------------------------------------------------------------------
def _next(transfer: Transfer) -> None:
    """Hand out the step of the transfer's state, if there is one."""
    if transfer.state == State.PLANNED and transfer.kind not in COPYING_KINDS:
        outcomes.only_removes(transfer)
    left_behind = transfer.state in FINISHED and not transfer.is_clean
    if transfer.state not in UNDER_WAY and not left_behind:
        return
    agent = _agent(transfer)
    if _is_copying(agent):
        _look_again(transfer)
        return
    cursor = slices.load_cursor(transfer)
    retiring = transfer.state == State.RETIRING
    params = CopyParams(
        step=_DISCARDING if left_behind else transfer.state,
        asked_unix_seconds=timezone.now().timestamp(),
        cursor=cursor,
        removal=_removal(transfer, cursor, agent) if retiring else None,
        copy=None if retiring else order_of(transfer),
        seconds=STEP_SECONDS,
    )
    _hand_out(transfer, agent, params)


@transaction.atomic
def _hand_out(transfer: Transfer, agent: Agent, params: CopyParams) -> None:
    task = tasks.create_task(
        agent=agent, kind=TaskKind.COPY, params=params, owner_kind=OWNER_KIND, owner_id=transfer.pk
    )
    Transfer.objects.filter(pk=transfer.pk).update(task=task.pk)
    _look_again(transfer)


def _agent(transfer: Transfer) -> Agent:
    """The one that did the last step, or another that reaches both places. Raises CopyTrouble `agent_lost`."""
    agent = agent_for(transfer)
    if agent is None:
        told = f"no agent that is online reaches both {transfer.source.path} and {transfer.target_path or 'its copy'}"
        raise CopyTrouble("agent_lost", f"{told} any more; it goes on when one does")
    if agent.pk != transfer.agent_id:
        Transfer.objects.filter(pk=transfer.pk).update(agent=agent)
        transfer.agent = agent
        _forget_marks(transfer)
    return agent


def _forget_marks(transfer: Transfer) -> None:
    """Another node sees the same folders under other device numbers."""
    cursor = slices.load_cursor(transfer)
    cursor.source_mark = []
    if len(cursor.target_mark) > 1:
        cursor.target_mark = []
    slices.save_cursor(transfer, cursor)


def _is_copying(agent: Agent) -> bool:
    """One step at a time on a node: its other slots are for drills and scans."""
    of_agent = AgentTask.objects.filter(agent=agent, kind=TaskKind.COPY.value)
    return of_agent.exclude(state__in=AgentTask.FINISHED).exists()


def _removal(transfer: Transfer, cursor: CopyCursor, agent: Agent) -> RemovalOrder:
    order = removal_of(transfer, cursor)
    if order.colder is None:
        return order
    seen = tuple(one for one in order.colder if contains(agent.roots, one.path))
    if order.colder and not seen:
        raise Stays(f"the agent on {agent.node.name} does not reach its colder copy at {order.colder[0].path}")
    return msgspec.structs.replace(order, colder=seen)


def _look_again(transfer: Transfer) -> None:
    Transfer.objects.filter(pk=transfer.pk).update(next_attempt_at=timezone.now() + LOOK_AGAIN)
