"""What the workers' scans have read of a tier, kept in the database between slices and between scans.

A worker may die, and the next slice may come to another host, so nothing may lie on a worker's disk only.
"""

from __future__ import annotations

import logging
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.utils import timezone

from apps.checkpoints.models import ScanMemory
from apps.storage.models import StorageTier

log = logging.getLogger(__name__)
MAX_BYTES = 1024 * 1024 * 1024
"""Beyond this a memory is not kept: reading everything again is then the lesser evil."""


@dataclass(slots=True)
class Memory:
    """`file` is for the listing job, in a folder that only this process may enter."""

    file: str
    has_grown: bool = False


@contextmanager
def remembered(tier: StorageTier) -> Iterator[Memory]:
    """The memory of a tier's scans as a file; what the job leaves in it is saved, also when the job was stopped."""
    with tempfile.TemporaryDirectory(prefix="muster-scan-") as folder:
        memory = Memory(os.path.join(folder, "memory.sqlite3"))
        before = _load(tier, memory.file)
        try:
            yield memory
        finally:
            memory.has_grown = _save(tier, memory.file, before)


def _load(tier: StorageTier, file: str) -> bytes:
    """Writes the file; gives the compressed bytes, empty where nothing is remembered."""
    packed = ScanMemory.objects.filter(tier=tier).values_list("body", flat=True).first()
    if packed is None:
        return b""
    try:
        unpacked = zlib.decompressobj().decompress(bytes(packed), MAX_BYTES)
    except zlib.error:
        log.warning("the scan memory of %s is damaged; everything is read again", tier.pk)
        return b""
    with open(file, "wb") as stream:
        stream.write(unpacked)
    return bytes(packed)


def _save(tier: StorageTier, file: str, before: bytes) -> bool:
    """Whether there was anything new to keep."""
    try:
        size_bytes = os.path.getsize(file)
    except OSError:
        return False
    if size_bytes > MAX_BYTES:
        log.warning("the scan memory of %s has %d bytes; it is not kept", tier.pk, size_bytes)
        return False
    with open(file, "rb") as stream:
        packed = zlib.compress(stream.read(), 1)
    if packed == before:
        return False
    ScanMemory.objects.update_or_create(tier=tier, defaults={"body": packed, "saved_at": timezone.now()})
    return True
