"""Task kind `bandwidth`: read a place for a while, at the same moment as the other nodes."""

from __future__ import annotations

import msgspec

from muster_agent.jobs.bandwidth import RunnerUnavailable
from muster_agent.jobs.bandwidth import prepare as prepare_bandwidth
from muster_agent.jobs.ceiling_sources import NothingToRead
from muster_agent.protocol.measuring import BandwidthParams
from muster_agent.protocol.wire import ReloadBody
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: BandwidthParams, context: TaskContext) -> Run:
    root = context.roots.resolve(params.root)
    if context.limits.max_bytes_per_second is not None:
        raise TaskFailed("capped", "this node caps what a task may read each second, so its cap would be measured")
    try:
        prepared = prepare_bandwidth(msgspec.structs.replace(params, root=root))
    except NothingToRead as error:
        raise TaskFailed("nothing_to_read", str(error)) from error
    except RunnerUnavailable as error:
        raise TaskFailed("not_possible_here", str(error)) from error
    except OSError as error:
        raise TaskFailed("root_unreadable", f"{root} could not be looked at: {error.strerror}") from error

    def run() -> ReloadBody:
        context.reporter.begin("read")
        try:
            body = prepared.run(context.control)
        except RunnerUnavailable as error:
            raise TaskFailed("not_possible_here", str(error)) from error
        finally:
            context.reporter.end("read")
        started = body.started_unix_seconds + context.clock_offset_seconds()
        return msgspec.structs.replace(body, started_unix_seconds=started)

    return run
