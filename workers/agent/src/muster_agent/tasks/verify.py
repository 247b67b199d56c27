"""Task kind `verify`."""

from __future__ import annotations

from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.verify import verify
from muster_agent.protocol.wire import VerifyBody, VerifyParams
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: VerifyParams, context: TaskContext) -> Run:
    path = context.roots.resolve_checkpoint(params.path)

    def run() -> VerifyBody:
        try:
            return verify(
                path,
                params.manifest,
                sample_ratio=params.sample_ratio,
                seed=params.seed,
                control=context.control,
            )
        except CheckpointNotFound as error:
            raise TaskFailed("checkpoint_not_found", str(error)) from error

    return run
