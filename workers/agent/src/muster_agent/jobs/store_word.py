"""What an object store says of the objects of a checkpoint, held against the CRCs that they were sent with. Nothing is
read: that the store keeps such bytes is its own word."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.places import bucket_and_key
from muster_agent.jobs.checkpoint_place import StatedShard, place_at
from muster_agent.jobs.structure import look
from muster_agent.manifest.model import Manifest
from muster_agent.manifest.rewrites import CHANGED
from muster_agent.protocol.wire import VerifyBody
from muster_agent.storage.s3_sent_sums import NAMES
from muster_agent.storage.s3_writer import S3Writer

_ASKERS = 8


def ask_store(path: str, manifest: Manifest, sums: Mapping[str, str], store: S3Writer) -> VerifyBody:
    """`sums`: by the file's path, such as `crc64nvme:ae8b14860a799888`, of each that is not empty.
    `verified` says that every object has its size and that the store tells the CRC it was sent with; None where it
    tells another, or none. Never False: damage is only what was read. `checked_bytes` is 0. Raises as `verify` does."""
    began = time.monotonic()
    body = look(path, manifest, store=store)
    if body.verified is True:
        place = place_at(path, store)
        shards = place.stat_all([shard.path for shard in manifest.shards if shard.size_bytes])
        with ThreadPoolExecutor(_ASKERS, thread_name_prefix="muster-sums") as pool:
            found = tuple(filter(None, pool.map(lambda one: _compared(one, sums.get(one.path, ""), store), shards)))
        body = msgspec.structs.replace(body, verified=None if found else True, findings=found)
    return msgspec.structs.replace(body, seconds=time.monotonic() - began)


def _compared(shard: StatedShard, expected: str, store: S3Writer) -> Finding | None:
    algorithm, _, digits = expected.partition(":")
    bucket, key = bucket_and_key(shard.location)
    try:
        told = store.kept_sum(bucket, key, shard.etag.strip('"'), algorithm) if digits else ""
    except OSError as error:
        return _found("listing_failed", shard, f"the store could not be asked for its check sum: {error.strerror}")
    if _digits(told) == digits and digits:
        return None
    if not _digits(told):
        return _found("listing_failed", shard, "the store tells no check sum of the whole object")
    name = NAMES[algorithm]
    return _found(CHANGED, shard, f"the store tells the {name} {_digits(told)}, and it was sent with {digits}")


def _found(code: str, shard: StatedShard, told: str) -> Finding:
    cure = "Verify the copy by reading it: only that tells whether its bytes are as they were sealed."
    return finding(code, path=shard.path, detail=f"{shard.path}: {told}", severity=Severity.WARNING, cure=cure)


def _digits(told: str) -> str:
    """Hexadecimal; empty for a composite sum, which depends on how the upload was cut, and for no sum."""
    try:
        return base64.b64decode(told, validate=True).hex()
    except (binascii.Error, ValueError):
        return ""


def covered(manifest: Manifest, sums: Mapping[str, str]) -> Sequence[str]:
    """Files of the manifest that no sum is known of; none where the store can be asked for all."""
    return [shard.path for shard in manifest.shards if shard.size_bytes and not sums.get(shard.path)]
