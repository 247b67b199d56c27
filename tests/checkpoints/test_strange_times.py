"""Files whose time of change no calendar and no 64-bit column holds (a file system in memory takes any)."""

from __future__ import annotations

import factories
import msgspec
import pytest
from listings import listing, manifest_of, scanned, shard_map
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.manifest.compare import matches

from apps.checkpoints.models import Placement, Shard

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("mtime_ns", [999_999_999_999 * 10**9, -5_000_000_000 * 10**9, -(10**30)])
def test_both_sides_give_such_files_the_same_fingerprint_and_a_seal_of_them_counts(mtime_ns: int) -> None:
    found = shard_map(10, mtime_ns=mtime_ns)
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    scanned(factories.tier(cluster), listing(found, manifests={found.path: manifest_of(found)}))
    copy = Placement.objects.get()
    on_the_node = fingerprint((s.path, s.size_bytes or 0, s.mtime_ns or 0) for s in found.shards)
    from_rows = fingerprint(Shard.objects.values_list("path", "size_bytes", "mtime_ns"))
    assert copy.fingerprint == on_the_node == from_rows
    assert (copy.status, copy.trust) == ("complete", "sealed")


def test_a_file_that_was_written_again_at_such_a_time_is_told_apart() -> None:
    found = shard_map(10)
    moved = msgspec.structs.replace(found.shards[0], mtime_ns=999_999_999_999 * 10**9)
    files = [(s.path, s.size_bytes or 0, s.mtime_ns or 0) for s in (moved, *found.shards[1:])]
    same, (told,) = matches(manifest_of(found), files)
    assert not same and told.code == "changed_since_sealing" and "no calendar" in told.detail
