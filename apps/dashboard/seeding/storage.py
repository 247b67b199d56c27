"""Clusters with nodes and tiers, and the checkpoints that lie there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from django.db import connection

from apps.checkpoints.models import Checkpoint, Finding, Placement, Shard, TrainingRun, TrustEvidence
from apps.core.ids import new_id
from apps.dashboard.seeding.size import Size, batches, create
from apps.fleet.models import Agent, Cluster, Node
from apps.storage.models import StorageTier, TierCeiling

GB = 1_000_000_000
STEPS_BETWEEN = 500
SAVED_EVERY = timedelta(minutes=20)
ON_FLASH = 5
"""Of each run so many newest checkpoints lie on the fast tier, older ones on the other."""
_TRUSTS = ("listed", "complete", "complete", "sealed", "sealed", "verified", "verified", "reloaded", "resumed")
_STATUSES = ("complete",) * 18 + ("incomplete", "corrupt")
_SHARD_COLUMNS = ("placement_id", "path", "size_bytes", "promised_bytes", "rank", "role", "mtime_ns")


@dataclass(frozen=True)
class Ground:
    """What everything else lies on."""

    clusters: list[Cluster]
    nodes: list[Node]
    tiers: dict[str, list[StorageTier]]
    """Of each cluster by its id, fastest first."""
    runs: list[TrainingRun]


def ground(size: Size, now: datetime, random: Random) -> Ground:
    clusters = create(
        Cluster,
        (
            Cluster(name=f"seeded-{number + 1}", gpu_count=8 * size.nodes // size.clusters, created_at=now)
            for number in range(size.clusters)
        ),
    )
    nodes = create(
        Node,
        (
            Node(cluster=clusters[number % size.clusters], name=f"seeded-gpu-{number + 1:04d}", created_at=now)
            for number in range(size.nodes)
        ),
    )
    create(Agent, (_agent(node, now, random) for node in nodes))
    tiers = {cluster.pk: _tiers(cluster, now) for cluster in clusters}
    runs = create(
        TrainingRun,
        (
            TrainingRun(
                cluster=clusters[number % size.clusters],
                name=f"seeded-run-{number + 1:03d}",
                rto_objective_seconds=300.0,
                rpo_objective_seconds=3600.0,
                gpu_count=64,
                created_at=now - timedelta(minutes=number),
            )
            for number in range(size.runs)
        ),
    )
    return Ground(clusters, nodes, tiers, runs)


def _agent(node: Node, now: datetime, random: Random) -> Agent:
    state = random.choices(("online", "busy", "stale", "lost"), (90, 6, 2, 2))[0]
    return Agent(
        node=node,
        machine_id=f"seeded-{node.name}",
        enrol_nonce=new_id("non"),
        credential_sha256=f"{random.getrandbits(256):064x}",
        state=state,
        roots=["/seeded"],
        version="0.1.0",
        clock_offset_seconds=random.gauss(0, 0.02),
        enrolled_at=now - timedelta(days=30),
        last_seen_at=now - timedelta(seconds=random.randrange(50) if state in ("online", "busy") else 5000),
    )


def _tiers(cluster: Cluster, now: datetime) -> list[StorageTier]:
    made: list[StorageTier] = create(
        StorageTier,
        (
            StorageTier(
                cluster=cluster,
                name=name,
                kind=kind,
                uri=f"/seeded/{cluster.name}/{name}",
                speed_order=order,
                capacity_bytes=2_000_000 * GB,
                created_at=now,
            )
            for order, (name, kind) in enumerate((("nvme", "local_nvme"), ("nas", "nas")))
        ),
    )
    for tier, rate in zip(made, (40 * GB, 8 * GB), strict=True):
        TierCeiling.objects.create(
            tier=tier, bytes_per_second=rate, client_count=8, method="made up by seed_fleet", measured_at=now
        )
    return made


def checkpoints(size: Size, on: Ground, now: datetime, random: Random) -> list[Placement]:
    """Every run's checkpoints, one copy of each, with its shards, its evidence and what is wrong with it."""
    shard_bytes = 2 * GB
    saved: list[Checkpoint] = create(Checkpoint, _checkpoints(size, on, now, shard_bytes))
    copies: list[Placement] = create(
        Placement,
        (_copy(size, on, number, checkpoint, random) for number, checkpoint in enumerate(saved)),
    )
    _insert_shards(copies, size.shards_each, shard_bytes)
    create(TrustEvidence, (_evidence(copy) for copy in copies if copy.trust not in ("listed", "complete")))
    create(Finding, (_damage(copy, now) for copy in copies if copy.status in ("corrupt", "incomplete")))
    return copies


def _checkpoints(size: Size, on: Ground, now: datetime, shard_bytes: int) -> Iterator[Checkpoint]:
    for run in on.runs:
        for back in range(size.steps):
            at = now - SAVED_EVERY * back - timedelta(minutes=5)
            yield Checkpoint(
                run=run,
                step=STEPS_BETWEEN * (size.steps - back),
                format="dcp",
                world_size=size.shards_each,
                total_bytes=size.shards_each * shard_bytes,
                saved_at=at,
                created_at=at + timedelta(minutes=1),
            )


def _copy(size: Size, on: Ground, number: int, checkpoint: Checkpoint, random: Random) -> Placement:
    back = number % size.steps
    tier = on.tiers[checkpoint.run.cluster_id][0 if back < ON_FLASH else 1]
    status = random.choice(_STATUSES)
    trust = random.choice(_TRUSTS) if status == "complete" else "listed"
    return Placement(
        checkpoint=checkpoint,
        tier=tier,
        path=f"{tier.uri}/{checkpoint.run.name}/step-{checkpoint.step}",
        format="dcp",
        world_size=size.shards_each,
        status=status,
        listed_status="complete" if status == "corrupt" else status,
        trust=trust,
        trust_at=checkpoint.created_at,
        resumable=status == "complete",
        shard_count=size.shards_each,
        total_bytes=checkpoint.total_bytes,
        newest_mtime_at=checkpoint.saved_at,
        middle_mtime_at=checkpoint.saved_at,
        fingerprint=f"{random.getrandbits(128):032x}",
        damaged_at=checkpoint.created_at if status == "corrupt" else None,
        first_seen_at=checkpoint.created_at,
        last_seen_at=checkpoint.created_at,
    )


def _insert_shards(copies: Sequence[Placement], each: int, shard_bytes: int) -> None:
    """The bulk of it: by COPY where the database has it, which is seven times as fast."""
    rows = (
        (copy.pk, f"__{rank}_0.distcp", shard_bytes, shard_bytes, rank, "model", 0)
        for copy in copies
        for rank in range(each)
    )
    if connection.vendor != "postgresql":
        for batch in batches(rows):
            Shard.objects.bulk_create(Shard(**dict(zip(_SHARD_COLUMNS, row, strict=True))) for row in batch)
        return
    with connection.cursor() as cursor:
        raw: Any = cursor.cursor
        with raw.copy(f"COPY {Shard._meta.db_table} ({', '.join(_SHARD_COLUMNS)}) FROM STDIN") as stream:
            for row in rows:
                stream.write_row(row)


def _evidence(copy: Placement) -> TrustEvidence:
    return TrustEvidence(
        placement=copy,
        rung=copy.trust,
        source_kind="drill" if copy.trust in ("reloaded", "resumed") else "audit",
        source_id=new_id("aud"),
        fingerprint=copy.fingerprint,
        at=copy.trust_at or copy.first_seen_at,
    )


def _damage(copy: Placement, now: datetime) -> Finding:
    code = "digest_mismatch" if copy.status == "corrupt" else "shard_missing"
    return Finding(
        placement=copy,
        code=code,
        severity="damage",
        path="__7_0.distcp",
        detail="made up by seed_fleet",
        cure="Nothing: this copy does not exist.",
        source_kind="audit",
        source_id=new_id("aud"),
        fingerprint=copy.fingerprint,
        found_at=now,
    )
