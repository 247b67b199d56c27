"""What an agent listed, sorted and made fit for rows: what is taken in, what is left out and why. Pure.

An agent reads foreign bytes, so every number and name here may be hostile; nothing of it reaches a column unchecked.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import msgspec
from muster_agent.decide.model import Pointer
from muster_agent.formats.base import Finding, Severity, ShardEntry, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.fingerprint import bounded_mtime_ns, fingerprint
from muster_agent.formats.places import is_bucket
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import InventoryBody

from apps.checkpoints.findings import bounded, clean, storable
from apps.checkpoints.runs import is_name
from apps.storage.paths import contains

MAX_PATH_CHARACTERS = 2048
MAX_SHARD_PATH_CHARACTERS = 1024
MAX_SHARDS = 200_000
MAX_STEPLESS = 2_000
BATCH_CHECKPOINTS = 250
BATCH_SHARDS = 20_000
_MAX_INTEGER = 2**63 - 1
_MAX_SMALL_INTEGER = 2**31 - 1
_NOT_LOOKED_AT = frozenset({"listing_failed", "permission_denied", "link_escapes_root", "link_broken"})

ShardFields = tuple[int | None, int | None, int | None, str, int | None]
"""size_bytes, promised_bytes, rank, role, mtime_ns."""


@dataclass
class Listed:
    """One checkpoint as listed, bounded. What becomes of its files' `entries` is worked out when it is asked for, and
    forgotten with its batch: a listing may have a million of them."""

    path: str
    run: str
    step: int
    format: str
    world_size: int | None
    dp: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    must_match: list[str]
    status: str
    resumable: bool
    reasons: list[str]
    entries: tuple[ShardEntry, ...]
    findings: list[Finding]
    newest_mtime_at: datetime | None
    middle_mtime_at: datetime | None
    total_bytes: int
    manifest: Manifest | None

    @property
    def was_read(self) -> bool:
        """False where the place could not be looked at: then nothing is known about its files."""
        return self.status != Status.UNREADABLE

    @cached_property
    def shards(self) -> dict[str, ShardFields]:
        return {
            shard.path: (
                storable(shard.size_bytes),
                storable(shard.promised_bytes),
                small(shard.rank),
                shard.role.value,
                None if shard.mtime_ns is None else bounded_mtime_ns(shard.mtime_ns),
            )
            for shard in self.entries
            if len(shard.path) <= MAX_SHARD_PATH_CHARACTERS and clean(shard.path, len(shard.path)) == shard.path
        }

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(present_files(self.shards))

    def forget_shards(self) -> None:
        self.__dict__.pop("shards", None)

    def files(self) -> list[tuple[str, int, int]]:
        return present_files(self.shards)


@dataclass(slots=True)
class Listing:
    """`not_looked_at`: places inside the root of which nothing is known; `left_out`: findings about the listing and
    about what of it is not recorded, of which `stepless_count` are checkpoints whose step nobody knows."""

    accepted: list[Listed] = field(default_factory=list)
    pointers: list[Pointer] = field(default_factory=list)
    left_out: list[Finding] = field(default_factory=list)
    not_looked_at: list[str] = field(default_factory=list)
    stepless: list[ShardMap] = field(default_factory=list)
    """At most MAX_STEPLESS of them, and those that could not be looked at."""
    stepless_count: int = 0


def sort_listing(body: InventoryBody, root: str) -> Listing:
    """Everything in `body` that lies inside `root` and can be recorded; the rest with a finding each."""
    listing = Listing(not_looked_at=[found.path for found in body.findings if found.code in _NOT_LOOKED_AT])
    paths: set[str] = set()
    for shard_map in body.checkpoints:
        if shard_map.status is Status.UNREADABLE:
            listing.not_looked_at.append(shard_map.path)
        refusal = _refusal(shard_map, root, paths)
        if refusal is not None:
            listing.left_out.append(refusal)
        elif not _has_step(shard_map):
            listing.stepless_count += shard_map.status is not Status.UNREADABLE
            listing.left_out.extend(_without_step(shard_map))
            paths.add(shard_map.path)
            if len(listing.stepless) < MAX_STEPLESS:
                listing.stepless.append(shard_map)
        else:
            paths.add(shard_map.path)
            listing.accepted.append(_listed(shard_map, body.manifests.get(shard_map.path)))
    listing.pointers = [pointer for pointer in body.pointers if _is_inside(pointer.path, root)]
    return listing


def batches(accepted: Iterable[Listed]) -> Iterator[list[Listed]]:
    """Pieces of bounded size, so that memory and transactions stay small however much was listed."""
    batch: list[Listed] = []
    shard_count = 0
    for item in accepted:
        if batch and (len(batch) >= BATCH_CHECKPOINTS or shard_count + len(item.entries) > BATCH_SHARDS):
            yield from _once(batch)
            batch, shard_count = [], 0
        batch.append(item)
        shard_count += len(item.entries)
    if batch:
        yield from _once(batch)


def _once(batch: list[Listed]) -> Iterator[list[Listed]]:
    yield batch
    for item in batch:
        item.forget_shards()


def was_looked_at(path: str, not_looked_at: Iterable[str]) -> bool:
    """Whether the listing can speak for `path`. Findings may name a place by its bare name; any folder so called is
    meant then, since taking too much for unknown costs nothing, and taking the unknown for gone does."""
    return not any(
        contains(place, path) if place.startswith("/") else f"/{place}/" in f"{path}/" for place in not_looked_at
    )


def present_files(shards: dict[str, ShardFields]) -> list[tuple[str, int, int]]:
    """(path, size in bytes, mtime in ns) of the shards that are there."""
    return [
        (path, size_bytes, mtime_ns)
        for path, (size_bytes, _promised, _rank, _role, mtime_ns) in shards.items()
        if size_bytes is not None and mtime_ns is not None
    ]


def what_changed(before: dict[str, ShardFields], after: dict[str, ShardFields]) -> str:
    """A sentence that names the first file that differs in presence, size or time; for the reason of a void."""
    old = {path: rest for path, *rest in present_files(before)}
    new = {path: rest for path, *rest in present_files(after)}
    differing = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    if not differing:
        return "the set of files changed"
    path = differing[0]
    more = f" (and {len(differing) - 1} more files)" if len(differing) > 1 else ""
    if path not in new:
        return f"{path} is gone{more}"
    if path not in old:
        return f"{path} was added{more}"
    if old[path][0] != new[path][0]:
        return f"{path} had {old[path][0]} bytes and has {new[path][0]}{more}"
    return f"{path} was written again at {_instant(new[path][1])}{more}"


def was_saved_again(before: dict[str, ShardFields], after: dict[str, ShardFields]) -> bool:
    """Whether every file was written anew, as a repeated save does. A change of only some of several files is no save:
    what was sealed before still says what those bytes should be."""
    old = set(present_files(before))
    return bool(old) and old.isdisjoint(present_files(after))


def _refusal(shard_map: ShardMap, root: str, paths: set[str]) -> Finding | None:
    """Why a checkpoint cannot be recorded; None where it can."""
    if not _is_inside(shard_map.path, root) or len(shard_map.path) > MAX_PATH_CHARACTERS:
        detail = f"the agent listed a path outside {root}, or one that is too long; it was left out"
        return finding("path_unsafe", path=clean(shard_map.path, MAX_PATH_CHARACTERS), detail=detail)
    if not is_name(shard_map.run):
        detail = "the run's name, taken from its folder, is empty, too long or has control characters"
        return finding("path_unsafe", path=shard_map.path, detail=detail, severity=Severity.WARNING)
    if shard_map.path in paths:
        return finding("duplicate_step", path=shard_map.path, detail="the agent listed this path twice")
    if len(shard_map.shards) > MAX_SHARDS:
        detail = f"it has {len(shard_map.shards)} files; at most {MAX_SHARDS} are recorded"
        return finding("path_unsafe", path=shard_map.path, detail=detail, severity=Severity.WARNING)
    return None


def _has_step(shard_map: ShardMap) -> bool:
    return shard_map.step is not None and 0 <= shard_map.step <= _MAX_INTEGER


def _without_step(shard_map: ShardMap) -> list[Finding]:
    """What is wrong with a checkpoint that has no row for it: as it was found, with the place in full."""
    found = [_placed(one, shard_map.path) for one in bounded(shard_map.findings, shard_map.path)]
    if found and shard_map.status is Status.UNREADABLE:
        return found
    cure = "Name its folder after the step (step-1200), or scan the folder above it."
    detail = "neither its name nor its metadata tells its step, so it is listed apart from those with a step"
    why = finding("step_mismatch", path=shard_map.path, detail=detail, cure=cure)
    return [*found, why]


def _placed(found: Finding, folder: str) -> Finding:
    return msgspec.structs.replace(found, path=posixpath.join(folder, found.path) if found.path else folder)


def _is_inside(path: str, root: str) -> bool:
    return _is_plain(path) and contains(root, path) and clean(path, len(path)) == path


def _is_plain(path: str) -> bool:
    """Without parts that lead elsewhere: keys of a bucket have no others either."""
    return ".." not in path.split("/") if is_bucket(path) else path == posixpath.normpath(path)


def _listed(shard_map: ShardMap, manifest: Manifest | None) -> Listed:
    return Listed(
        path=shard_map.path,
        run=shard_map.run,
        step=shard_map.step if shard_map.step is not None else -1,
        format=clean(shard_map.format, 32),
        world_size=small(shard_map.world_size),
        dp=small(shard_map.dp),
        tp=small(shard_map.tp),
        pp=small(shard_map.pp),
        ep=small(shard_map.ep),
        must_match=[clean(name, 16) for name in shard_map.must_match[:8]],
        status=shard_map.status.value,
        resumable=shard_map.resumable,
        reasons=[clean(reason, 500) for reason in shard_map.not_resumable_reasons[:20]],
        entries=shard_map.shards,
        findings=bounded(shard_map.findings, shard_map.path),
        newest_mtime_at=time_of(shard_map.newest_mtime_ns),
        middle_mtime_at=time_of(shard_map.middle_mtime_ns),
        total_bytes=min(shard_map.total_bytes, _MAX_INTEGER),
        manifest=manifest,
    )


def small(number: int | None) -> int | None:
    return number if number is not None and 0 <= number <= _MAX_SMALL_INTEGER else None


def time_of(mtime_ns: int | None) -> datetime | None:
    """UTC; None for times that no calendar holds."""
    try:
        return None if mtime_ns is None else datetime.fromtimestamp(mtime_ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _instant(mtime_ns: int) -> str:
    at = time_of(mtime_ns)
    return at.isoformat(timespec="seconds") if at else "an impossible time"
