"""Task kind `seal`."""

from __future__ import annotations

from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import SealBody, SealParams
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: SealParams, context: TaskContext) -> Run:
    path = context.roots.resolve_checkpoint(params.path)

    def run() -> SealBody:
        try:
            return seal(path, control=context.control, write_beside=params.write_beside)
        except CheckpointNotFound as error:
            raise TaskFailed("checkpoint_not_found", str(error)) from error

    return run
