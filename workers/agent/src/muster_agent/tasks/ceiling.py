"""Task kind `ceiling`: how fast this node can read a tier at all."""

from __future__ import annotations

from muster_agent.jobs.ceiling import measure_ceiling
from muster_agent.jobs.ceiling_sources import NothingToRead
from muster_agent.protocol.wire import CeilingBody, CeilingParams
from muster_agent.tasks.bucket import stores_for
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: CeilingParams, context: TaskContext) -> Run:
    root = context.roots.resolve(params.root)
    if context.limits.max_bytes_per_second is not None:
        raise TaskFailed("capped", "this node caps what a task may read each second, so its cap would be measured")

    store = next(iter(stores_for(root, params.store)), None)

    def run() -> CeilingBody:
        context.reporter.begin("read")
        try:
            report = measure_ceiling(root, seconds_per_try=params.seconds_per_try, control=context.control, store=store)
        except NothingToRead as error:
            raise TaskFailed("nothing_to_read", str(error)) from error
        except OSError as error:
            raise TaskFailed("root_unreadable", f"{root} could not be looked at: {error.strerror}") from error
        finally:
            context.reporter.end("read")
        return CeilingBody(report=report)

    return run
