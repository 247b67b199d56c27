"""Task kind `inventory`."""

from __future__ import annotations

import msgspec

from muster_agent.formats.walk import RootUnreadable
from muster_agent.jobs.inventory import run_inventory
from muster_agent.protocol.wire import InventoryBody, InventoryParams
from muster_agent.tasks.context import Run, TaskContext, TaskFailed


def prepare(params: InventoryParams, context: TaskContext) -> Run:
    root = context.roots.resolve(params.root)

    def run() -> InventoryBody:
        context.reporter.begin("inventory")
        try:
            return run_inventory(
                msgspec.structs.replace(params, root=root),
                context.control,
                cache_file=context.scan_cache,
                note=context.reporter.log,
            )
        except RootUnreadable as error:
            raise TaskFailed("root_unreadable", str(error)) from error
        finally:
            context.reporter.end("inventory")

    return run
