"""Task kind `verify`."""

from __future__ import annotations

from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.structure import look
from muster_agent.jobs.verify import verify
from muster_agent.manifest.sampling import Sample
from muster_agent.protocol.wire import VerifyBody, VerifyParams
from muster_agent.tasks.bucket import stores_for
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: VerifyParams, context: TaskContext) -> Run:
    path = context.roots.resolve_checkpoint(params.path)
    store = next(iter(stores_for(path, params.store)), None)

    def run() -> VerifyBody:
        try:
            return _work(params, path, context, store)
        except CheckpointNotFound as error:
            raise TaskFailed("checkpoint_not_found", str(error)) from error
        except RootUnreadable as error:
            raise TaskFailed("storage_unreadable", f"{error}; {error.hint}") from error

    return run


def _work(params: VerifyParams, path: str, context: TaskContext, store: ObjectStore | None) -> VerifyBody:
    if params.sample_ratio == 0 or params.manifest is None:
        return look(path, params.manifest, control=context.control, store=store)
    return verify(
        path,
        params.manifest,
        sample=Sample(params.sample_ratio, params.seed, params.turn),
        max_bytes_per_second=params.max_bytes_per_second,
        through_cache=params.through_cache,
        control=context.control,
        store=store,
    )
