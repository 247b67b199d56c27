"""Listings as agents send them, and tasks answered without an agent."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from django.utils import timezone
from muster_agent.formats.base import Finding, Role, ShardEntry, ShardMap, Status
from muster_agent.manifest.model import Manifest, ShardDigest
from muster_agent.manifest.seal import root_digest
from muster_agent.protocol.wire import InventoryBody, RootMark

from apps.checkpoints import scans
from apps.checkpoints.models import InventoryScan
from apps.core.transitions import transition
from apps.fleet.models import AgentTask
from apps.fleet.tasks import tasks_of

MTIME_NS = 1_700_000_000_000_000_000


def shard_map(
    step: int | None,
    *,
    run: str = "llama-70b",
    root: str = "/ckpt",
    shards: int = 4,
    shard_bytes: int = 1000,
    mtime_ns: int = MTIME_NS,
    status: Status = Status.COMPLETE,
    **fields: Any,
) -> ShardMap:
    """A rank-sharded checkpoint at `root/run/step-N`."""
    entries = tuple(
        ShardEntry(
            path=f"rank-{rank:05d}.safetensors", size_bytes=shard_bytes, promised_bytes=shard_bytes, rank=rank,
            role=Role.MODEL, mtime_ns=mtime_ns,
        )
        for rank in range(shards)
    )  # fmt: skip
    defaults: dict[str, Any] = {
        "path": f"{root}/{run}/step-{step}",
        "run": run,
        "format": "safetensors",
        "step": step,
        "status": status,
        "resumable": status is Status.COMPLETE,
        "world_size": shards,
        "shards": entries,
        "newest_mtime_ns": mtime_ns,
    }
    return ShardMap(**{**defaults, **fields})


def changed_shard(listed: ShardMap, index: int = 0, **changes: Any) -> ShardMap:
    """The same checkpoint with one shard changed."""
    shards = list(listed.shards)
    shards[index] = msgspec.structs.replace(shards[index], **changes)
    return msgspec.structs.replace(listed, shards=tuple(shards))


def manifest_of(listed: ShardMap, origin: str = "storage") -> Manifest:
    """A manifest that speaks for exactly these files."""
    shards = tuple(
        ShardDigest(
            path=shard.path, size_bytes=shard.size_bytes or 0, mtime_ns=shard.mtime_ns or 0,
            xxh3_128=f"{index:032x}", chunks_xxh3_64=f"{index:016x}", rank=shard.rank, role=shard.role.value,
        )
        for index, shard in enumerate(listed.shards)
    )  # fmt: skip
    return Manifest(
        version=1, run=listed.run, step=listed.step, format=listed.format, world_size=listed.world_size, origin=origin,
        sealed_at="2026-01-02T03:04:05Z", chunk_bytes=4 * 1024 * 1024, root_xxh3_128=root_digest(shards), shards=shards,
    )  # fmt: skip


ROOT_MARK = RootMark(mount_point="/ckpt", device=64, inode=2)


def listing(*checkpoints: ShardMap, root: str = "/ckpt", **fields: Any) -> InventoryBody:
    """What an agent lists of a root that is always the same one, unless `root_mark` says otherwise."""
    return InventoryBody(root=root, checkpoints=checkpoints, **{"root_mark": ROOT_MARK, **fields})


def finding(code: str = "shard_orphaned", severity: str = "warning", path: str = "x", **fields: Any) -> Finding:
    return msgspec.convert(
        {"code": code, "severity": severity, "path": path, "detail": f"{code} at {path}", "cure": "Do this.", **fields},
        Finding,
    )


def answer(
    task: AgentTask, body: msgspec.Struct | None, *, outcome: str = "done", error: str = "", code: str = ""
) -> None:
    """Finish a task as the agent's result would."""
    now = timezone.now()
    AgentTask.objects.filter(pk=task.pk).update(
        state=AgentTask.State.LOST if outcome == "lost" else AgentTask.State.DONE,
        outcome=outcome,
        result=None if body is None else _as_received(body),
        error=error,
        error_code=code,
        started_at=task.started_at or now,
        finished_at=now,
    )


def _as_received(body: msgspec.Struct) -> Any:
    """The agent API replaces NUL before it decodes a body."""
    return msgspec.json.decode(msgspec.json.encode(body).replace(b"\\u0000", b"\\ufffd"))


def start(task: AgentTask) -> None:
    """The agent has taken the task up."""
    transition(task, old=AgentTask.State.QUEUED, new=AgentTask.State.LEASED)
    transition(task, old=AgentTask.State.LEASED, new=AgentTask.State.RUNNING, started_at=timezone.now())
    time.sleep(0.002)  # so that what follows is later by any clock


def scanned(tier: Any, body: InventoryBody, *, root: str | None = None, **wanted: Any) -> InventoryScan:
    """Request a scan, answer it with `body`, take the answer in."""
    scan = scans.request_scan(tier=tier, root=root, actor="test", **wanted)
    task = tasks_of("scan", scan.pk).get()
    start(task)
    task.refresh_from_db()
    answer(task, body)
    scans.advance(scan.pk)
    scan.refresh_from_db()
    return scan
