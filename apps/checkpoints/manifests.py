"""Manifests as rows: compressed canonical bytes under the id that is their SHA-256."""

from __future__ import annotations

import hashlib
import zlib
from datetime import datetime

import msgspec
from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.model import Manifest, canonical_bytes

from apps.checkpoints import models
from apps.checkpoints.findings import clean
from apps.checkpoints.tensors import tensor_pages
from apps.core.errors import Conflict, InvalidInput

MAX_MANIFEST_BYTES = 256 * 1024 * 1024
"""Chunk digests of 64 TiB. More would not fit the memory of a web process, and is refused with a sentence."""


@transaction.atomic
def store_manifest(*, checkpoint: models.Checkpoint, manifest: Manifest) -> models.Manifest:
    """Keep a manifest; the same one again is the same row. Raises InvalidInput for one that contradicts itself or is
    too large, Conflict for one that another checkpoint already has."""
    fresh = manifest_row(checkpoint, manifest)
    models.Manifest.objects.bulk_create([fresh], ignore_conflicts=True)
    store_tensors(fresh.pk, manifest)
    row = models.Manifest.objects.get(pk=fresh.pk)
    if row.checkpoint_id != checkpoint.pk:
        raise Conflict("This manifest belongs to another checkpoint; one of the two lies in a folder that was copied.")
    return row


def store_tensors(manifest_id: str, manifest: Manifest) -> None:
    """Keep the list of its tensors; the same again changes nothing."""
    models.TensorPage.objects.bulk_create(
        tensor_pages(manifest_id, manifest.tensors), ignore_conflicts=True, batch_size=50
    )


def manifest_row(checkpoint: models.Checkpoint, manifest: Manifest) -> models.Manifest:
    """An unsaved row. Raises InvalidInput for a manifest that contradicts itself or is too large."""
    fault = why_invalid(manifest)
    if fault is not None:
        raise InvalidInput(f"The manifest is damaged: {fault}; seal the checkpoint again.")
    data = canonical_bytes(manifest)
    if len(data) > MAX_MANIFEST_BYTES:
        raise InvalidInput(f"The manifest has {len(data)} bytes; at most {MAX_MANIFEST_BYTES} are kept.")
    return models.Manifest(
        id=hashlib.sha256(data).hexdigest(),
        checkpoint=checkpoint,
        version=manifest.version,
        origin=clean(manifest.origin, 16),
        total_bytes=manifest.total_bytes,
        shard_count=len(manifest.shards),
        tensor_count=len({tensor.name for tensor in manifest.tensors}),
        root_xxh3_128=clean(manifest.root_xxh3_128, 32),
        sealed_at=sealed_at(manifest),
        body=zlib.compress(data, 6),
        created_at=timezone.now(),
    )


def sealed_at(manifest: Manifest) -> datetime:
    """When it was sealed; never in the future, though a node's clock may be ahead."""
    now = timezone.now()
    try:
        at = parse_datetime(manifest.sealed_at)
    except ValueError:
        at = None
    return min(at, now) if at is not None and at.tzinfo is not None else now


def load_manifest(row: models.Manifest) -> Manifest:
    """The manifest of a row. Raises Conflict where the row's bytes are not those that its id names."""
    try:
        data = _decompress(bytes(row.body))
        if hashlib.sha256(data).hexdigest() != row.pk:
            raise ValueError("its bytes do not give its id")
        return msgspec.json.decode(data, type=Manifest)
    except (ValueError, zlib.error) as error:
        raise Conflict(f"Manifest {row.pk[:12]} cannot be used ({error}); seal the checkpoint again.") from error


def _decompress(body: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(body, MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES or not unpacker.eof:
        raise ValueError("it is cut short or too large")
    return data
