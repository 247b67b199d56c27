"""Task kind `loader_compare`: the only one that may lead to unpickling, in the team's own process."""

from __future__ import annotations

import os

import msgspec

from muster_agent.formats.places import is_bucket
from muster_agent.jobs.loader_compare import LoaderRefused, command, require_rule, run_loader, side_by_side
from muster_agent.protocol.measuring import LoaderCompareParams
from muster_agent.protocol.wire import ReloadBody
from muster_agent.tasks import reload
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: LoaderCompareParams, context: TaskContext) -> Run:
    loader = context.loaders.get(params.loader)
    if loader is None:
        known = ", ".join(sorted(context.loaders)) or "none"
        raise TaskFailed("loader_unknown", f"this node's config.json names no loader {params.loader!r}; known: {known}")
    path = context.roots.resolve_checkpoint(params.reload.path)
    if is_bucket(path):
        raise TaskFailed("not_possible_here", "a loader is compared on files; choose a copy on a file system")
    try:
        require_rule(loader, command(loader, path))
    except LoaderRefused as error:
        raise TaskFailed("loader_refused", str(error)) from error
    engine = reload.prepare(params.reload, context)

    def run() -> ReloadBody:
        body = engine()
        assert isinstance(body, ReloadBody)
        context.reporter.begin("materialize")
        try:
            files = [os.path.join(path, shard) for shard in params.reload.shards]
            own = run_loader(loader, path, files, context.control, cold=params.reload.evict)
        except LoaderRefused as error:
            raise TaskFailed("loader_refused", str(error)) from error
        finally:
            context.reporter.end("materialize")
        told = {"loader": params.loader, "own": msgspec.to_builtins(own), **side_by_side(body.report, own)}
        evidence = {**body.report.evidence, "loader_compare": told}
        return msgspec.structs.replace(body, report=msgspec.structs.replace(body.report, evidence=evidence))

    return run
