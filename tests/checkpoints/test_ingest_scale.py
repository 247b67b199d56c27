"""A large fleet's listing: bounded memory, seconds of work, and an unchanged one cheaper still."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from listings import MTIME_NS, finding, listing, shard_map
from muster_agent.protocol.wire import InventoryBody

from apps.checkpoints.ingest import ingest
from apps.checkpoints.intake import sort_listing
from apps.checkpoints.models import InventoryScan, Placement, Shard
from apps.storage.models import StorageTier

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
CHECKPOINTS, SHARDS = 1000, 64


def big(mtime_ns: int = MTIME_NS) -> InventoryBody:
    return listing(
        *(
            shard_map(step, run=f"run-{step % 10}", shards=SHARDS, findings=(finding(),), mtime_ns=mtime_ns)
            for step in range(CHECKPOINTS)
        )
    )


def take(tier: StorageTier, body: InventoryBody) -> tuple[dict[str, int], float]:
    scan = InventoryScan.objects.create(
        tier=tier, agent=tier.cluster.nodes.get().agent, root="/ckpt", state="finished", created_at=timezone.now()
    )
    began = time.monotonic()
    ingest(scan, sort_listing(body, "/ckpt"), timezone.now())
    seconds = time.monotonic() - began
    return Counter(scan.changes.values_list("kind", flat=True)), seconds


def test_a_thousand_checkpoints_of_64_shards_are_taken_in_and_unchanged_ones_write_next_to_nothing() -> None:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster))
    tier = factories.tier(cluster)
    first, first_seconds = take(tier, big())
    with CaptureQueriesContext(connection) as queries:
        same, same_seconds = take(tier, big())
    changed, changed_seconds = take(tier, big(MTIME_NS + 1))
    print(f"first {first_seconds:.1f} s, unchanged {same_seconds:.1f} s, all changed {changed_seconds:.1f} s")
    assert (first, same, changed) == ({"appeared": CHECKPOINTS}, {}, {"changed": CHECKPOINTS})
    assert (Placement.objects.count(), Shard.objects.count()) == (CHECKPOINTS, CHECKPOINTS * SHARDS)
    writes = [one["sql"] for one in queries if one["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
    assert len(writes) <= 20, writes[:30]


def test_memory_is_that_of_a_batch_not_of_the_listing() -> None:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster))
    tier = factories.tier(cluster)
    listed = sort_listing(big(), "/ckpt")
    scan = InventoryScan.objects.create(
        tier=tier, agent=cluster.nodes.get().agent, root="/ckpt", state="finished", created_at=timezone.now()
    )
    tracemalloc.start()
    ingest(scan, listed, timezone.now())
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 60_000_000
