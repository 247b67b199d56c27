"""DCP's Hugging Face writer: safetensors files, one set per rank, whose headers say where each rank's part belongs.

There is no index and no marker in this layout; the folder that its consolidation makes is an ordinary indexed one.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any, NamedTuple

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.safetensors import ReadShard, add_absent, add_shard, other_files, read_shard

FORMAT = "dcp_hf"
SHARDING_KEY = "DCP_SHARDING_INFO"
_NAME = re.compile(r"shard-(\d{5})-model-(\d{5})-of-(\d{5})\.safetensors", re.ASCII)


class Box(NamedTuple):
    """A part of a tensor: where it begins in each dimension, and how far it reaches."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]


def is_own_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def claims(folder: Folder) -> bool:
    return any(map(is_own_name, folder.files.keys() | folder.blocked))


def read_dcp_hf(folder: Folder, with_tensors: bool) -> Draft:
    """Judge the rank shards: each valid, each file number there, and each tensor covered by its parts. Whether the last
    part of a tensor is missing cannot be told from the files alone, since they do not record the tensor's size."""
    draft = Draft(FORMAT)
    parts: dict[str, list[Box]] = defaultdict(list)
    numbers: dict[int, set[int]] = defaultdict(set)
    written: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for name in sorted(folder.files.keys() | folder.blocked):
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        rank, number, count = (int(group) for group in match.groups())
        written[rank - 1].add((number, count))
        numbers[count].add(number)
        if name not in folder.files:
            add_absent(draft, folder, name, "", rank=rank - 1)
            continue
        shard = read_shard(folder, name, with_tensors=True, rank=rank - 1)
        add_shard(draft, shard, with_tensors=with_tensors)
        draft.findings.extend(_take_boxes(parts, shard))
    draft.world_size = max(written) + 1 if written else None
    draft.findings.extend(_count_findings(numbers))
    if all(found.severity is not Severity.DAMAGE for found in draft.findings):
        draft.findings.extend(_coverage_findings(parts, folder.path))
        draft.findings.extend(_uneven_findings(written))
    draft.shards.extend(other_files(folder, []))
    return draft


def _take_boxes(parts: dict[str, list[Box]], shard: ReadShard) -> list[Finding]:
    if not shard.header.ok:
        return []
    try:
        offsets = _saved_offsets(shard.header.metadata.get(SHARDING_KEY, ""))
        for tensor in shard.header.tensors:
            parts[tensor.name].append(Box(offsets[tensor.name], tensor.shape))
    except (ValueError, KeyError, TypeError, RecursionError):
        detail = f"{shard.entry.path} does not say where its tensors belong ({SHARDING_KEY})"
        return [finding("metadata_unreadable", path=shard.entry.path, detail=detail)]
    return []


def _saved_offsets(text: str) -> dict[str, tuple[int, ...]]:
    info: Any = json.loads(text)
    found = {}
    for name, entry in info.items():
        offsets = entry["saved_offsets"]
        if not all(type(part) is int and part >= 0 for part in offsets):
            raise ValueError
        found[name] = tuple(offsets)
    return found


def _count_findings(numbers: dict[int, set[int]]) -> list[Finding]:
    found = []
    for count, have in sorted(numbers.items()):
        for number in sorted(set(range(1, count + 1)) - have)[:20]:
            path = f"shard-*-model-{number:05d}-of-{count:05d}.safetensors"
            detail = f"no rank left a file for part {number} of {count}"
            found.append(finding("shard_missing", path=path, detail=detail))
    return found


def _uneven_findings(written: dict[int, set[tuple[int, int]]]) -> list[Finding]:
    """Files that one rank lacks and others have: where all its tensors there are too small to be cut so often it had
    nothing to write, so this is no proof."""
    found = []
    for rank in sorted(written):
        for number, count in sorted(set.union(*written.values()) - written[rank]):
            name = f"shard-{rank + 1:05d}-model-{number:05d}-of-{count:05d}.safetensors"
            detail = (
                f"rank {rank} left no file for part {number} of {count}, as other ranks did: it had nothing to write, "
            )
            detail += "or the file, which may have held the last part of its tensors, is lost"
            cure = "Compare with another step of the run: if its ranks left this file, copy it from another placement."
            found.append(finding("shard_missing", path=name, detail=detail, severity=Severity.WARNING, cure=cure))
    return found[:20]


def _coverage_findings(parts: dict[str, list[Box]], path: str) -> list[Finding]:
    """The parts of each tensor must have the volume of the box around them."""
    found = []
    for name, boxes in sorted(parts.items()):
        unique = set(boxes)
        if len({len(box.offsets) for box in unique} | {len(box.shape) for box in unique}) != 1:
            detail = f"the parts of {name!r} have different numbers of dimensions"
            found.append(finding("metadata_unreadable", path=path, detail=detail, tensor=name))
            continue
        ends = [tuple(map(sum, zip(box.offsets, box.shape, strict=True))) for box in unique]
        need, have = _volume(map(max, zip(*ends, strict=True))), sum(_volume(box.shape) for box in unique)
        if have < need:
            detail = f"the parts of {name!r} have {have} of {need} elements: a rank's file is missing"
            found.append(finding("shard_missing", path=path, detail=detail, tensor=name))
        elif have > need:
            detail = f"the parts of {name!r} have {have} elements, the tensor has {need}"
            found.append(finding("ranges_overlap", path=path, detail=detail, tensor=name))
    return found[:100]


def _volume(sizes: Any) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
