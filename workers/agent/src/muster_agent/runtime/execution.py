"""Running one task to a result, whatever happens in it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from muster_agent.jobs.control import Cancelled
from muster_agent.protocol.wire import TaskOrder, TaskResult
from muster_agent.runtime.holding import Holding
from muster_agent.runtime.reporter import storable
from muster_agent.tasks.context import TaskContext, TaskFailed
from muster_agent.tasks.registry import Handler, handler_for
from muster_agent.tasks.roots import PathOutsideRoots

log = logging.getLogger(__name__)


def execute(order: TaskOrder, context: TaskContext, holding: Holding, wait_for_start: Callable[[], None]) -> TaskResult:
    """The result of the task. Never raises for what the task or its parameters are; a task of another kind or with
    bad parameters is answered, not obeyed."""
    handler = handler_for(order.kind)
    if handler is None:
        return _failed("unsupported_kind", f"this agent does not know the task kind {order.kind!r}; update it", True)
    try:
        params = msgspec.convert(order.params, handler.params_type)
    except msgspec.ValidationError as error:
        return _failed("bad_params", f"the parameters of this {order.kind} are not valid: {error}", True)
    try:
        return _done(_run(handler, params, order, context, wait_for_start), holding)
    except Cancelled:
        return _stopped(holding)
    except TaskFailed as error:
        return _failed(error.code, str(error))
    except PathOutsideRoots as error:
        return _failed("path_outside_roots", str(error))
    except Exception as error:  # noqa: BLE001  (a job's surprise is reported; the agent goes on)
        log.exception("task %s failed", order.task_id)
        return _failed("agent_error", f"{type(error).__name__}: {error}")
    finally:
        holding.reporter.end_all()


def _run(
    handler: Handler, params: object, order: TaskOrder, context: TaskContext, wait_for_start: Callable[[], None]
) -> msgspec.Struct:
    run = handler.prepare(params, context)
    context.control.check()
    if order.has_barrier:
        wait_for_start()
    return run()


def _done(body: msgspec.Struct, holding: Holding) -> TaskResult:
    """Work that finished although it was to stop is done: the first terminal state wins, and the server decides."""
    return TaskResult(outcome="done", body=msgspec.to_builtins(body, str_keys=True))


def _stopped(holding: Holding) -> TaskResult:
    why = holding.stopped
    if why is None:
        return TaskResult(outcome="cancelled", error="cancelled", error_code="cancelled")
    return TaskResult(outcome=why.outcome or "cancelled", error=why.message, error_code=why.code)


def _failed(code: str, message: str, unsupported: bool = False) -> TaskResult:
    outcome = "unsupported" if unsupported else "failed"
    return TaskResult(outcome=outcome, error=storable(message), error_code=code)
