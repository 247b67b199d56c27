"""What every format reader returns: a `ShardMap`, made of inert values only.

A reader never unpickles, never imports a training framework, bounds everything it reads, and answers any bytes at all
with findings instead of an exception. The words are those of docs/findings.md.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Status(StrEnum):
    """What lies on disk. `missing` is added by the control plane, which remembers what was there."""

    COMPLETE = "complete"
    UNCOMMITTED = "uncommitted"
    INCOMPLETE = "incomplete"
    IN_PROGRESS = "in_progress"
    CORRUPT = "corrupt"
    UNREADABLE = "unreadable"
    ARCHIVED = "archived"
    UNKNOWN = "unknown"


class Role(StrEnum):
    """What a shard holds. A shard that holds several roles has the first of them in this order."""

    MODEL = "model"
    OPTIMIZER = "optimizer"
    RNG = "rng"
    DATALOADER = "dataloader"
    SCHEDULER = "scheduler"
    METADATA = "metadata"
    OTHER = "other"


class Severity(StrEnum):
    DAMAGE = "damage"
    """The checkpoint cannot be trusted or resumed as it lies."""
    WARNING = "warning"
    """It can be used, and something about it should be put right."""
    NOTE = "note"
    """Worth knowing; nothing need be done."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One typed result: stable code, severity, where, what was seen, and the next action that cures it."""

    code: str
    severity: Severity
    path: str
    detail: str
    cure: str
    begin_byte: int | None = None
    end_byte: int | None = None
    tensor: str | None = None


class TensorRange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where one tensor (or one chunk of it) lies: bytes [offset_bytes, offset_bytes + length_bytes) of `shard`."""

    name: str
    shard: str
    offset_bytes: int
    length_bytes: int
    dtype: str
    shape: tuple[int, ...]
    role: Role = Role.MODEL


class ShardEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One file of a checkpoint. `path` is relative to the checkpoint's own path, with `/`; for a checkpoint that is a
    single file it is that file's name. `size_bytes` is what lies on disk, None where the file is missing."""

    path: str
    size_bytes: int | None
    promised_bytes: int | None = None
    rank: int | None = None
    role: Role = Role.OTHER
    mtime_ns: int | None = None
    shared_file: str | None = None
    """The same for every name of one file, where it has several (hard links, links); None for a file with one name."""


class ShardMap(msgspec.Struct, frozen=True, kw_only=True):
    """All that could be read about one checkpoint without trusting it.

    `path` is absolute (a folder, or a file for single-file formats); `resumable` is False with reasons when a training
    job could not continue from it even if every byte is good (no optimizer state, say).
    """

    path: str
    run: str
    format: str
    step: int | None
    status: Status
    resumable: bool
    not_resumable_reasons: tuple[str, ...] = ()
    world_size: int | None = None
    dp: int | None = None
    """Data-parallel ranks, where the format tells (of the data-loader state, where only that depends on them)."""
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    must_match: tuple[str, ...] = ()
    """Which of `world_size`, `dp`, `tp` and `pp` the job that resumes must share with the one that saved."""
    shards: tuple[ShardEntry, ...] = ()
    tensors: tuple[TensorRange, ...] = ()
    findings: tuple[Finding, ...] = ()
    newest_mtime_ns: int | None = None

    @property
    def middle_mtime_ns(self) -> int | None:
        """When most of it was saved: the median time of its shards, so that one repaired later does not count."""
        times = sorted([shard.mtime_ns for shard in self.shards if shard.mtime_ns is not None])
        return times[len(times) // 2] if times else self.newest_mtime_ns

    @property
    def total_bytes(self) -> int:
        return sum([shard.size_bytes or 0 for shard in self.shards])
