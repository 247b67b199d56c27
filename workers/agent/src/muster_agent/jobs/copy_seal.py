"""What is copied, and the copy's manifest: the source's own where it was sealed, else made while the bytes pass."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import xxhash

from muster_agent.formats.own_checks import SumChecker, recorded_sums
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.copy_blocks import ExpectedDigests
from muster_agent.jobs.copy_source import CopySource
from muster_agent.jobs.copy_target import CopyTarget, Stat
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.seal import SealConsumer
from muster_agent.manifest.model import Manifest, ShardDigest
from muster_agent.manifest.seal import assemble, chunk_digests, root_digest, trainable_tensors
from muster_agent.protocol.copies import CopiedFile, CopyOrder
from muster_agent.reload.plan import Extent


class CopySeal:
    """Seals the source of a copy in the same pass. What an earlier process had copied of a file is taken from the
    target, so that the source is read once."""

    def __init__(self, source: CopySource, files: Sequence[CopiedFile]) -> None:
        shard_map = source.shard_map()
        tensors = trainable_tensors(shard_map)
        stated = {one.path: one for one in source.stated(files)}
        sums = recorded_sums(shard_map, lambda path: source.place.open_file(stated[path]))
        self._files = files
        self._checkers = [SumChecker(one.path, sums.get(one.path, ())) for one in files]
        self.consumer = SealConsumer([tensors.get(one.path, []) for one in files], self._checkers)
        self._caught_up: set[int] = set()

    def catch_up(self, number: int, target: CopyTarget, expected: ExpectedDigests, control: JobControl) -> None:
        """Take in what is at the target already. Where that is not what was copied, the file is copied from there."""
        one = self._files[number]
        if not one.is_shard or number in self._caught_up:
            return
        self._caught_up.add(number)
        done = 0
        for data in target.written(one):
            control.check()
            wrong = expected.compare(number, done // expected.chunk_bytes, chunk_digests(data, expected.chunk_bytes))
            if wrong is not None:
                break
            self.consumer.landed(Extent(number, done, len(data)), data, control.check)
            done += len(data)
        one.copied_bytes = done
        expected.forget(number, done)

    def finish(self, number: int) -> None:
        """Keep the digests of a file that is copied whole. Raises CopyTrouble where the bytes are not those that the
        format itself recorded."""
        one = self._files[number]
        if not one.is_shard or one.copied_bytes < one.size_bytes:
            return
        findings = self._checkers[number].findings
        if findings:
            raise CopyTrouble("source_damaged", f"{findings[0].detail}; nothing was removed", findings=findings)
        one.xxh3_128 = self.consumer.sealers[number].xxh3_128()
        one.tensors = list(self.consumer.sealers[number].tensors)


def survey(order: CopyOrder, source: CopySource) -> tuple[list[CopiedFile], list[CopiedFile], list[str]]:
    """The files to copy, each with what the seal and the metadata know of it; those that are left out; the folders.
    Raises CopyTrouble where the source is
    not complete, changed since it was sealed, or cannot be copied as it is."""
    files, folders = source.files()
    shard_map = source.shard_map()
    by_path = {shard.path: shard for shard in shard_map.shards}
    for one in files:
        shard = by_path.get(one.path)
        if shard is not None:
            one.rank, one.role, one.is_shard = shard.rank, shard.role.value, True
    if order.manifest is not None:
        _take_seal(order.manifest, files, order.source)
    left_out = [one for one in files if one.role in order.leave_out_roles]
    return [one for one in files if one.role not in order.leave_out_roles], left_out, folders


def _take_seal(manifest: Manifest, files: list[CopiedFile], source: str) -> None:
    """Note whose digests are known. Times are not compared: the bytes are, on the way."""
    present = {one.path: one for one in files}
    for shard in manifest.shards:
        one = present.get(shard.path)
        if one is None or one.size_bytes != shard.size_bytes:
            told = "is gone" if one is None else f"has {one.size_bytes} bytes and not {shard.size_bytes}"
            raise CopyTrouble(
                "source_changed", f"{source}/{shard.path} {told}: it is not what was sealed; scan its tier"
            )
        one.is_sealed, one.xxh3_128 = True, shard.xxh3_128
        one.rank, one.role = shard.rank, shard.role
    unsealed = next((one for one in files if one.is_shard and not one.is_sealed), None)
    if unsealed is not None:
        raise CopyTrouble(
            "source_changed", f"{source}/{unsealed.path} is not in its manifest; seal the checkpoint again"
        )


def copy_manifest(order: CopyOrder, source: CopySource, files: Sequence[CopiedFile], stats: Sequence[Stat]) -> Manifest:
    """The manifest that lies beside the copy: the source's, with the times of the copy's files where the storage did
    not keep them, and without what was left out."""
    times = {path: mtime_ns for path, _size, mtime_ns in stats}
    if order.manifest is None:
        return _made(order, source, files, times)
    kept = [shard for shard in order.manifest.shards if shard.path in times]
    shards = tuple(msgspec.structs.replace(shard, mtime_ns=times[shard.path]) for shard in kept)
    if shards == order.manifest.shards:
        return order.manifest
    tensors = tuple(tensor for tensor in order.manifest.tensors if tensor.shard in times)
    root = order.manifest.root_xxh3_128 if len(kept) == len(order.manifest.shards) else root_digest(shards)
    return msgspec.structs.replace(order.manifest, shards=shards, tensors=tensors, root_xxh3_128=root)


def _made(order: CopyOrder, source: CopySource, files: Sequence[CopiedFile], times: dict[str, int]) -> Manifest:
    digests = [
        ShardDigest(
            path=one.path,
            size_bytes=one.size_bytes,
            mtime_ns=times[one.path],
            xxh3_128=one.xxh3_128 or xxhash.xxh3_128_hexdigest(b""),
            chunks_xxh3_64=one.chunks,
            rank=one.rank,
            role=one.role,
        )
        for one in files
        if one.is_shard
    ]
    tensors = [tensor for one in files if one.is_shard for tensor in one.tensors]
    sealed_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return assemble(source.shard_map(), digests, tensors, sealed_at=sealed_at, chunk_bytes=order.chunk_bytes)
