"""Task kind `copy`: one step of a transfer, next to the data."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from muster_agent.formats.base import ShardMap
from muster_agent.formats.places import is_bucket
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.copy_removal import Stays, remove
from muster_agent.jobs.copy_steps import STEPS, copy_at, job_of
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.protocol.copies import CopyCursor, CopyOrder, RemovalOrder
from muster_agent.protocol.stores import StoreAt
from muster_agent.protocol.wire import CopyBody, CopyParams
from muster_agent.storage.s3_client import S3Unavailable, connect_at
from muster_agent.storage.s3_writer import S3Writer
from muster_agent.tasks.context import Run, TaskContext, TaskFailed
from muster_agent.tasks.roots import require_in_tier

FRESH_SECONDS = 60.0
"""So long the control plane's word holds that no rule speaks against a removal."""


def prepare(params: CopyParams, context: TaskContext) -> Run:
    work: Callable[[], ShardMap | None]
    if params.removal is not None and params.step == "retiring":
        work = _removal(params.removal, context)
    elif params.copy is not None and params.step in STEPS:
        work = _step(params, params.copy, context)
    else:
        raise TaskFailed("bad_params", f"a step {params.step!r} without what it is to be done with; update the agent")
    asked_at = params.asked_unix_seconds - context.clock_offset_seconds()

    def run() -> CopyBody:
        if params.removal is not None and time.time() - asked_at > FRESH_SECONDS:
            return CopyBody(state="asked_too_long_ago", cursor=params.cursor, seconds=0.0)
        return _answer(params.cursor, work)

    return run


def _answer(cursor: CopyCursor, work: Callable[[], ShardMap | None]) -> CopyBody:
    """What came of it. What it had done so far goes back with any answer, so that nothing is done twice."""
    began, before = time.monotonic(), _moved(cursor)
    body = CopyBody(state="ended", cursor=cursor, seconds=0.0)
    try:
        body = msgspec.structs.replace(body, shard_map=work())
    except Cancelled as stopped:
        if _moved(cursor) == before and not isinstance(stopped, _StepOver):
            raise  # nothing to bring back: the task's own result tells who stopped it
        body = msgspec.structs.replace(body, state="going_on")
    except Stays as why:
        body = msgspec.structs.replace(body, state="stays", problem=str(why))
    except CopyTrouble as trouble:
        body = msgspec.structs.replace(
            body, state="trouble", problem_code=trouble.code, problem=str(trouble), findings=trouble.findings
        )
    return msgspec.structs.replace(body, seconds=time.monotonic() - began)


def _moved(cursor: CopyCursor) -> int:
    return cursor.copied_bytes + cursor.proven_bytes


def _step(params: CopyParams, order: CopyOrder, context: TaskContext) -> Callable[[], ShardMap | None]:
    context.roots.resolve_checkpoint(order.source)
    context.copy_roots.resolve(order.target)
    require_in_tier(order.source, order.source_root)
    require_in_tier(order.target, order.target_root)
    rates = [rate for rate in (order.max_bytes_per_second, context.limits.max_bytes_per_second) if rate]
    order = msgspec.structs.replace(order, max_bytes_per_second=min(rates, default=None))
    cursor, control = params.cursor, _Timed(context.control, params.seconds)

    def tell() -> None:
        context.control.tell({"copied_bytes": cursor.copied_bytes, "proven_bytes": cursor.proven_bytes})

    def work() -> ShardMap | None:
        STEPS[params.step](job_of(order, cursor, _store_for, tell), control)
        if params.step != "switching":
            return None
        return msgspec.structs.replace(copy_at(order, _store_for), tensors=())

    return work


def _removal(order: RemovalOrder, context: TaskContext) -> Callable[[], None]:
    context.copy_roots.resolve_checkpoint(order.source)
    for one in order.colder or ():
        context.roots.resolve(one.path)
        require_in_tier(one.path, one.root)
    require_in_tier(order.source, order.source_root)
    return lambda: remove(order, _store_for, context.control.check)


class _StepOver(Cancelled):
    """There is more to do, in another task."""


class _Timed(JobControl):
    """The task's own control, that also ends the work when the time of the step is over."""

    def __init__(self, task: JobControl, seconds: float) -> None:
        super().__init__(task.progress, tell=task.tell)
        self._task, self._ends_at = task, time.monotonic() + seconds

    def check(self) -> None:
        self._task.check()
        if time.monotonic() > self._ends_at:
            raise _StepOver("the time of this step is over")

    def cancel(self) -> None:
        self._task.cancel()

    @property
    def cancelled(self) -> bool:
        return self._task.cancelled


def _store_for(path: str, at: StoreAt) -> S3Writer | None:
    if not is_bucket(path):
        return None
    try:
        return S3Writer.over(connect_at(at))
    except S3Unavailable as error:
        raise CopyTrouble("denied", f"{error}; {error.hint}") from error
