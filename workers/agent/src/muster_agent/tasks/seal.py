"""Task kind `seal`."""

from __future__ import annotations

from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import SealBody, SealParams
from muster_agent.tasks.bucket import stores_for
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: SealParams, context: TaskContext) -> Run:
    path = context.roots.resolve_checkpoint(params.path)
    store = next(iter(stores_for(path, params.store)), None)

    def run() -> SealBody:
        try:
            return seal(path, control=context.control, write_beside=params.write_beside, store=store)
        except CheckpointNotFound as error:
            raise TaskFailed("checkpoint_not_found", str(error)) from error
        except RootUnreadable as error:
            raise TaskFailed("storage_unreadable", f"{error}; {error.hint}") from error

    return run
