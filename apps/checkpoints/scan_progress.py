"""How far a running scan is, whoever lists."""

from __future__ import annotations

from typing import Any

from apps.checkpoints.models import InventoryScan
from apps.checkpoints.scans import OWNER_KIND
from apps.fleet.tasks import tasks_of

COUNTS = ("entries", "entries_per_second", "folders_left")
FIELDS = ("checkpoints", "checkpoints_left", *COUNTS, "note", "at")


def progress_of(scan: InventoryScan) -> dict[str, Any]:
    """`checkpoints` read and `checkpoints_left` of those found so far, `entries` seen in all folders and
    `entries_per_second`, `folders_left` (found, and to be listed yet), `note` (a line with the entries seen and their
    rate) and `at` (Unix seconds), as far as told; empty unless it runs."""
    if scan.state != InventoryScan.State.RUNNING:
        return {}
    if scan.agent_id is None:
        return {name: scan.progress[name] for name in FIELDS if name in scan.progress}
    task = tasks_of(OWNER_KIND, scan.pk).last()
    told = task.progress if task is not None else {}
    known = {"note": str(told["message"])} if told.get("message") else {}
    counts = {name: told["counts"][name] for name in COUNTS if name in told.get("counts", {})}
    return known | counts | counted(told.get("done_bytes"), told.get("total_bytes"), told.get("at"))


def counted(done: object, total: object, at: object) -> dict[str, Any]:
    """What a listing tells in numbers; it counts checkpoints where other jobs count bytes."""
    if not isinstance(done, int) or not isinstance(total, int):
        return {}
    return {"checkpoints": done, "checkpoints_left": max(0, total - done), "at": at}
