"""Rank-sharded safetensors: one file per rank, and `checkpoint.json` written last as the commit marker.

The layout is defined in docs/formats.md. A family of `rank-00000-of-00004.safetensors` files without the marker is
read too; its names then say how many ranks there were, and it counts as uncommitted.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, reach
from muster_agent.formats.names import is_temporary, unsafe_reason
from muster_agent.formats.safetensors import (
    FORMAT,
    add_absent,
    add_shard,
    metadata_entry,
    other_files,
    read_json,
    read_shard,
)

MARKER_NAME = "checkpoint.json"
MARKER_FORMAT = "muster-ranked-safetensors"
MAX_MARKER_BYTES = 16 * 1024 * 1024
MAX_RANKS = 99_999
_RANK_NAME = re.compile(r"rank-(\d{5})-of-(\d{5})\.safetensors", re.ASCII)


class Marker(msgspec.Struct, frozen=True):
    """The commit marker: `files` maps each shard's name to its size in bytes."""

    format: str
    step: int
    world_size: int
    files: dict[str, int]


def is_rank_name(name: str) -> bool:
    return _RANK_NAME.fullmatch(name) is not None


def is_unfinished_rank_name(name: str) -> bool:
    """Whether a rank's file is being written under it: `rank-00000-of-00004.safetensors.tmp`."""
    return is_temporary(name) and is_rank_name(_final_name(name))


def _final_name(name: str) -> str:
    stem, ending, _ = name.partition(".safetensors")
    return stem + ending


def claims(folder: Folder) -> bool:
    names = folder.files.keys() | folder.blocked
    return MARKER_NAME in names or any(is_rank_name(name) or is_unfinished_rank_name(name) for name in names)


def read_ranked(folder: Folder, with_tensors: bool) -> Draft:
    """Judge a rank-sharded folder by its marker, or by its names where the marker is not there."""
    if MARKER_NAME in folder.files:
        return _by_marker(folder, with_tensors=with_tensors)
    draft = Draft(FORMAT, committed=None if MARKER_NAME in folder.blocked else False)
    ranks = _family(draft, folder)
    draft.world_size, draft.must_match = ranks, ("world_size",)
    for rank in range(ranks):
        name = f"rank-{rank:05d}-of-{ranks:05d}.safetensors"
        if name in folder.files:
            shard = read_shard(folder, name, with_tensors=with_tensors, rank=rank)
            add_shard(draft, shard, with_tensors=with_tensors)
        else:
            add_absent(draft, folder, name, f"rank {rank} of {ranks} has no file", rank=rank)
    draft.shards.extend(other_files(folder, []))
    return draft


def _family(draft: Draft, folder: Folder) -> int:
    """The world size that most rank files name; files of another world size are a finding. Where a save has only begun,
    the temporary names tell."""
    names = list(filter(is_rank_name, folder.files)) or map(_final_name, filter(is_unfinished_rank_name, folder.files))
    counts = Counter(int(match.group(2)) for match in map(_RANK_NAME.fullmatch, names) if match)
    if not counts:
        return 0
    ranks = max(counts, key=lambda size: (counts[size], size))
    if len(counts) > 1:
        said = ", ".join(str(size) for size in sorted(counts))
        detail = f"the file names speak of {said} ranks, and no {MARKER_NAME} says which save is the real one"
        draft.findings.append(finding("world_size_mismatch", path=folder.path, detail=detail))
    return min(ranks, MAX_RANKS)


def _by_marker(folder: Folder, *, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT, committed=True)
    draft.shards.append(metadata_entry(MARKER_NAME, folder.files[MARKER_NAME]))
    marker, problem = _read_marker(folder)
    if marker is None:
        draft.roles = None
        draft.findings.extend([problem] if problem else [])
        return draft
    draft.step, draft.world_size, draft.must_match = marker.step, marker.world_size, ("world_size",)
    for name in folder.ahead(sorted(marker.files)):
        _promised(draft, folder, name, marker.files[name], with_tensors=with_tensors)
    _check_world(draft, marker)
    for name in sorted(filter(is_rank_name, set(folder.files) - set(marker.files))):
        detail = f"{name} is not in {MARKER_NAME}; a save with another number of ranks left it"
        draft.findings.append(finding("shard_orphaned", path=name, detail=detail))
    draft.shards.extend(other_files(folder, [MARKER_NAME, *marker.files]))
    return draft


def _read_marker(folder: Folder) -> tuple[Marker | None, Finding | None]:
    document, problem = read_json(folder, MARKER_NAME, MAX_MARKER_BYTES)
    if problem is not None:
        return None, problem
    try:
        marker = msgspec.convert(document, Marker)
    except msgspec.ValidationError as error:
        detail = f"{MARKER_NAME} does not have the fields it must have: {error}"
        return None, finding("metadata_unreadable", path=MARKER_NAME, detail=detail)
    problem = _marker_problem(marker)
    return (None, problem) if problem else (marker, None)


def _marker_problem(marker: Marker) -> Finding | None:
    if marker.format != MARKER_FORMAT:
        detail = f"{MARKER_NAME} is of the format {marker.format[:80]!r}, which this version does not know"
        return finding("metadata_unreadable", path=MARKER_NAME, detail=detail)
    numbers = [marker.step, marker.world_size - 1, *marker.files.values()]
    if min(numbers) < 0 or marker.world_size > MAX_RANKS or not marker.files:
        detail = f"{MARKER_NAME} has a negative number, no files, or no ranks"
        return finding("metadata_unreadable", path=MARKER_NAME, detail=detail)
    for name in marker.files:
        reason = unsafe_reason(name)
        if reason:
            return finding("path_unsafe", path=MARKER_NAME, detail=f"the file name {name[:200]!r} {reason}")
    return None


def _promised(draft: Draft, folder: Folder, name: str, size_bytes: int, *, with_tensors: bool) -> None:
    match = _RANK_NAME.fullmatch(name)
    rank = int(match.group(1)) if match else None
    reach(folder, name)
    if name not in folder.files:
        detail = f"{MARKER_NAME} promises {name} with {size_bytes} bytes; it is not there"
        add_absent(draft, folder, name, detail, rank=rank, promised=size_bytes)
        return
    shard = read_shard(folder, name, with_tensors=with_tensors, rank=rank, promised_bytes=size_bytes)
    add_shard(draft, shard, with_tensors=with_tensors)
    seen_bytes = folder.files[name].size_bytes
    if seen_bytes == size_bytes or (shard.header.was_read and not shard.header.ok):
        return
    code = "shard_truncated" if seen_bytes < size_bytes else "shard_oversized"
    detail = f"{name} has {seen_bytes} bytes, {MARKER_NAME} promises {size_bytes}"
    first, last = sorted((seen_bytes, size_bytes))
    draft.findings.append(finding(code, path=name, detail=detail, begin_byte=first, end_byte=last))


def _check_world(draft: Draft, marker: Marker) -> None:
    named: set[Any] = {match.groups() for match in map(_RANK_NAME.fullmatch, marker.files) if match}
    sizes = {int(size) for _, size in named}
    ranks = {int(rank) for rank, _ in named}
    if not named:
        return
    if sizes != {marker.world_size}:
        said = ", ".join(str(size) for size in sorted(sizes))
        detail = f"{MARKER_NAME} says {marker.world_size} ranks, its file names say {said}"
        draft.findings.append(finding("world_size_mismatch", path=MARKER_NAME, detail=detail))
    elif absent := sorted(set(range(marker.world_size)) - ranks):
        detail = f"{MARKER_NAME} lists no file for {len(absent)} of {marker.world_size} ranks, the first is {absent[0]}"
        draft.findings.append(finding("shard_missing", path=MARKER_NAME, detail=detail))
