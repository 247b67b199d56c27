"""Task kind `inventory`."""

from __future__ import annotations

import msgspec

from muster_agent.formats.walk import RootUnreadable
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.scan_process import ScanEnded, run_apart
from muster_agent.protocol.wire import MAX_BODY_BYTES, InventoryBody, InventoryParams
from muster_agent.tasks.bucket import stores_for
from muster_agent.tasks.context import Run, TaskContext, TaskFailed

_ENVELOPE_BYTES = 4096
"""What is around the body in a result."""


def prepare(params: InventoryParams, context: TaskContext) -> Run:
    root = context.roots.resolve(params.root)
    store = next(iter(stores_for(root, params.store)), None)

    def run() -> InventoryBody:
        context.reporter.begin("inventory")
        try:
            wanted, note = msgspec.structs.replace(params, root=root), context.reporter.log
            if store is not None:  # waits for the network, not for a processor
                body = run_inventory(wanted, context.control, cache_file=context.scan_cache, store=store, note=note)
            else:
                body = run_apart(wanted, context.control, cache_file=context.scan_cache, note=note)
        except RootUnreadable as error:
            raise TaskFailed("root_unreadable", str(error)) from error
        except ScanEnded as error:
            raise TaskFailed("scan_ended", str(error)) from error
        finally:
            context.reporter.end("inventory")
        _require_sendable(body)
        return body

    return run


def _require_sendable(body: InventoryBody) -> None:
    """The server would refuse it, and the scan would wait for an answer that never comes."""
    size_bytes = len(msgspec.json.encode(body))
    if size_bytes > MAX_BODY_BYTES - _ENVELOPE_BYTES:
        raise TaskFailed(
            "result_too_large",
            f"the inventory of {body.root} has {size_bytes} bytes, and a result at most {MAX_BODY_BYTES}; "
            "scan the folders below it one at a time, or have the workers scan this tier",
        )
