"""Manifests as rows."""

from __future__ import annotations

import zlib
from typing import Any

import factories
import msgspec
import pytest
from listings import manifest_of, shard_map
from muster_agent.manifest.model import manifest_id

from apps.checkpoints import manifests, models
from apps.core.errors import Conflict, InvalidInput

pytestmark = pytest.mark.django_db


@pytest.fixture
def checkpoint() -> Any:
    cluster = factories.cluster()
    return factories.placement(factories.run(cluster), factories.tier(cluster)).checkpoint


def test_a_manifest_comes_back_as_it_was_under_its_id(checkpoint: Any) -> None:
    manifest = manifest_of(shard_map(10))
    row = manifests.store_manifest(checkpoint=checkpoint, manifest=manifest)
    assert row.pk == manifest_id(manifest)
    assert (row.total_bytes, row.shard_count, row.origin, row.sealed_at.year) == (4000, 4, "storage", 2026)
    assert manifests.load_manifest(models.Manifest.objects.get()) == manifest
    assert manifests.store_manifest(checkpoint=checkpoint, manifest=manifest).pk == row.pk
    assert models.Manifest.objects.count() == 1


def test_a_manifest_that_contradicts_itself_is_refused(checkpoint: Any) -> None:
    forged = msgspec.structs.replace(manifest_of(shard_map(10)), root_xxh3_128="0" * 32)
    with pytest.raises(InvalidInput, match="seal the checkpoint again"):
        manifests.store_manifest(checkpoint=checkpoint, manifest=forged)


def test_a_manifest_of_another_checkpoint_is_a_conflict(checkpoint: Any) -> None:
    manifest = manifest_of(shard_map(10))
    manifests.store_manifest(checkpoint=checkpoint, manifest=manifest)
    other = models.Checkpoint.objects.create(
        run=checkpoint.run, step=99, format="safetensors", created_at=checkpoint.created_at
    )
    with pytest.raises(Conflict, match="another checkpoint"):
        manifests.store_manifest(checkpoint=other, manifest=manifest)


@pytest.mark.parametrize(
    "body", [b"", b"not zlib", zlib.compress(b"{}"), zlib.compress(b"x" * 100)[:-5], zlib.compress(b"[1, 2")]
)
def test_a_damaged_row_is_a_clear_conflict_never_a_wrong_manifest(checkpoint: Any, body: bytes) -> None:
    row = manifests.store_manifest(checkpoint=checkpoint, manifest=manifest_of(shard_map(10)))
    row.body = body
    with pytest.raises(Conflict, match="cannot be used"):
        manifests.load_manifest(row)


def test_a_row_that_would_unpack_to_too_much_is_refused(checkpoint: Any, monkeypatch: Any) -> None:
    row = manifests.store_manifest(checkpoint=checkpoint, manifest=manifest_of(shard_map(10)))
    monkeypatch.setattr(manifests, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(Conflict, match="too large"):
        manifests.load_manifest(row)
    with pytest.raises(InvalidInput, match="at most 100"):
        manifests.store_manifest(checkpoint=row.checkpoint, manifest=manifest_of(shard_map(10)))
