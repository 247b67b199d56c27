"""Small real rows for tests: each function makes one thing with sensible defaults."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from apps.accounts import services as accounts
from apps.accounts.models import Role, User
from apps.checkpoints.models import Checkpoint, Placement, Shard, TrainingRun
from apps.fleet.models import Agent, Cluster, Node
from apps.storage.models import StorageTier


def cluster(name: str = "east", **fields: Any) -> Cluster:
    return Cluster.objects.create(name=name, created_at=timezone.now(), **fields)


def user(name: str = "olga", role: Role = Role.OPERATOR, password: str | None = None) -> User:
    """Without a password (hashing one costs a third of a second) unless the test signs in with it."""
    return accounts.create_user(username=name, password=password, role=role)


def token(owner: User, role: Role | None = None) -> str:
    """The secret of a fresh token."""
    return accounts.create_token(user=owner, name="test", role=role or Role(owner.role), days=1, actor="test")[1]


def node(in_cluster: Cluster, name: str = "gpu-1", **fields: Any) -> Node:
    return Node.objects.create(cluster=in_cluster, name=name, created_at=timezone.now(), **fields)


def agent(on: Node, **fields: Any) -> Agent:
    """An online agent that may read /."""
    now = timezone.now()
    defaults: dict[str, Any] = {
        "machine_id": f"machine-{on.name}",
        "enrol_nonce": f"nonce-{on.pk}",
        "credential_sha256": f"{on.pk:0>64}"[-64:],
        "state": Agent.State.ONLINE,
        "boot_id": "boot-1",
        "free_slots": 1,
        "roots": ["/"],
        "enrolled_at": now,
        "last_seen_at": now,
    }
    return Agent.objects.create(node=on, **{**defaults, **fields})


def tier(in_cluster: Cluster, name: str = "nvme", uri: str = "/ckpt", **fields: Any) -> StorageTier:
    fields.setdefault("kind", StorageTier.Kind.LOCAL_NVME)
    return StorageTier.objects.create(cluster=in_cluster, name=name, uri=uri, created_at=timezone.now(), **fields)


def run(in_cluster: Cluster, name: str = "llama-70b", **fields: Any) -> TrainingRun:
    return TrainingRun.objects.create(cluster=in_cluster, name=name, created_at=timezone.now(), **fields)


def placement(
    of: TrainingRun, on: StorageTier, step: int = 10, *, shards: int = 4, shard_bytes: int = 1000, **fields: Any
) -> Placement:
    """A complete, resumable copy of `of` at `step` with `shards` rank shards."""
    now = timezone.now()
    total_bytes = shards * shard_bytes
    defaults: dict[str, Any] = {"format": "safetensors", "world_size": shards, "total_bytes": total_bytes}
    checkpoint, _ = Checkpoint.objects.get_or_create(
        run=of, step=step, defaults={**defaults, "saved_at": now - timedelta(minutes=5), "created_at": now}
    )
    values: dict[str, Any] = {
        "path": f"{on.uri}/{of.name}/step-{step}",
        "status": Placement.Status.COMPLETE,
        "trust": Placement.Trust.COMPLETE,
        "resumable": True,
        "format": "safetensors",
        "world_size": shards,
        "shard_count": shards,
        "total_bytes": total_bytes,
        "fingerprint": f"{step:032x}",
        "newest_mtime_at": now - timedelta(minutes=5),
        "first_seen_at": now,
        "last_seen_at": now,
    }
    values = {**values, **fields}
    values.setdefault("listed_status", values["status"])
    row = Placement.objects.create(checkpoint=checkpoint, tier=on, **values)
    Shard.objects.bulk_create(
        Shard(
            placement=row,
            path=f"rank-{rank:05d}-of-{shards:05d}.safetensors",
            size_bytes=shard_bytes,
            rank=rank,
            role="model",
            mtime_ns=0,
        )
        for rank in range(shards)
    )
    return row
