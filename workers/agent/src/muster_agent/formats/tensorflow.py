"""TensorFlow checkpoints, of `tf.train.Checkpoint` and of `Saver`: `ckpt-3.index`, which is written last, and its data
files `ckpt-3.data-00000-of-00002`. Several of them share a folder with the text file `checkpoint`, their pointer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from muster_agent.formats.base import Role, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors import add_absent, metadata_entry
from muster_agent.formats.tf_index import MAX_INDEX_BYTES, Entry, Index, IndexRefused, ends_as_index, parse_index

FORMAT = "tensorflow"
_DATA = re.compile(r"(?P<prefix>.+)\.data-(?P<shard>\d{5})-of-(?P<count>\d{5})", re.ASCII | re.DOTALL)
_INDEX, _GRAPH = ".index", ".meta"
_STEP_IN_NAME = re.compile(r"(?:.*[-_.])?(\d{1,18})", re.ASCII | re.DOTALL)
_OPTIMIZER = re.compile(
    r"(?:^|/)optimizers?(?:/|$)|/\.OPTIMIZER_SLOT/|^beta[12]_power$"
    r"|/(?:Adam\w*|adam_[mv]|Momentum|RMSProp|Adagrad|Adadelta|Ftrl|LAMB\w*)(?:_\d+)?$"
)
_TRAINED_BY_OPTIMIZER = "optimizer/_trainable_variables/"
"""Keras 3 names the weights by the way that leads to them through the optimizer."""
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_STEPS = ("global_step", "step", "iteration", "optimizer/_iterations", "optimizer/iter")
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MAX_COUNT = 100_000
_MAX_LISTED = 200


def families(folder: Folder) -> list[Family]:
    """Each prefix with an index, or with data files of which the index is not there."""
    groups: dict[str, set[str]] = defaultdict(set)
    for match in filter(None, map(_DATA.fullmatch, folder.files)):
        groups[match["prefix"]].add(match[0])
    for name in folder.files:
        prefix = name.removesuffix(_INDEX)
        if prefix != name and (prefix in groups or _is_index(folder, name)):
            groups[prefix].add(name)
    for prefix, names in groups.items():
        names.update({f"{prefix}{_GRAPH}"} & folder.files.keys())
    return [Family(f"{prefix}.{{part}}", _number(prefix), frozenset(groups[prefix])) for prefix in sorted(groups)]


def _is_index(folder: Folder, name: str) -> bool:
    size_bytes = folder.files[name].size_bytes
    try:
        with folder.open(name) as opened:
            return ends_as_index(opened.pread(8, max(size_bytes - 8, 0)))
    except OSError:
        return False


def _number(prefix: str) -> int | None:
    match = _STEP_IN_NAME.fullmatch(prefix)
    return int(match[1]) if match else None


def read_family(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    """Every data file must be there and as long as the tensors in it need."""
    prefix = family.pattern.removesuffix(".{part}")
    draft = Draft(FORMAT, committed=f"{prefix}{_INDEX}" in folder.files)
    index = _read_index(draft, folder, f"{prefix}{_INDEX}")
    ends = _ends(index.entries if index else ())
    for shard, name in _data_names(folder, family, prefix, index):
        _add_data(draft, folder, name, shard, ends.get(shard, 0) if index else None)
    if f"{prefix}{_GRAPH}" in folder.files:
        seen = folder.files[f"{prefix}{_GRAPH}"]
        draft.shards.append(ShardEntry(path=f"{prefix}{_GRAPH}", size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns))
    if index is None:
        draft.roles = None
        return draft
    draft.roles = {_role_of(entry.name) for entry in index.entries} - {Role.OTHER}
    count = max(index.shard_count, 1)
    if with_tensors:
        draft.tensors.extend(
            _range(entry, f"{prefix}.data-{entry.shard:05d}-of-{count:05d}")
            for entry in index.entries
            if not entry.sliced and entry.shard < count
        )
    _take_step(draft, folder, prefix, index)
    return draft


def _read_index(draft: Draft, folder: Folder, name: str) -> Index | None:
    if name not in folder.files:
        if name not in folder.blocked:
            detail = f"there is no {name}: it is written last, so the save did not end"
            draft.findings.append(finding("metadata_missing", path=name, detail=detail))
        return None
    draft.shards.append(metadata_entry(name, folder.files[name]))
    try:
        if folder.files[name].size_bytes > MAX_INDEX_BYTES:
            raise IndexRefused(f"it is larger than {MAX_INDEX_BYTES} bytes")
        return parse_index(folder.read(name, MAX_INDEX_BYTES))
    except IndexRefused as error:
        detail = f"{name} cannot be read: {error.reason}"
        draft.findings.append(finding("metadata_unreadable", path=name, detail=detail))
    except OSError as error:
        draft.findings.append(
            finding("listing_failed", path=name, detail=f"{name} could not be read: {error.strerror}")
        )
    return None


def _data_names(folder: Folder, family: Family, prefix: str, index: Index | None) -> list[tuple[int, str]]:
    """Shard number and name of each data file that must be there, else of those that are."""
    if index is not None:
        count = min(index.shard_count, _MAX_COUNT)
        return [(shard, f"{prefix}.data-{shard:05d}-of-{index.shard_count:05d}") for shard in range(count)]
    matches = filter(None, map(_DATA.fullmatch, sorted(family.files)))
    return [(int(match["shard"]), match[0]) for match in matches]


def _ends(entries: Sequence[Entry]) -> dict[int, int]:
    """How many bytes each data file must have."""
    ends: dict[int, int] = defaultdict(int)
    for entry in entries:
        ends[entry.shard] = max(ends[entry.shard], entry.offset + entry.size)
    return ends


def _add_data(draft: Draft, folder: Folder, name: str, shard: int, promised: int | None) -> None:
    seen = folder.files.get(name)
    if seen is None:
        if len(draft.findings) < _MAX_LISTED:
            add_absent(
                draft, folder, name, f"the index places tensors in {name}, which is not there", promised=promised
            )
        return
    entry = ShardEntry(
        path=name,
        size_bytes=seen.size_bytes,
        promised_bytes=promised,
        rank=shard,
        role=Role.MODEL,
        mtime_ns=seen.mtime_ns,
    )
    draft.shards.append(entry)
    if promised is not None and seen.size_bytes != promised:
        code = "shard_truncated" if seen.size_bytes < promised else "shard_oversized"
        code = "shard_empty" if not seen.size_bytes else code
        detail = f"{name} has {seen.size_bytes} bytes, and its tensors end at byte {promised}"
        draft.findings.append(finding(code, path=name, detail=detail))


def _role_of(name: str) -> Role:
    if name == _OBJECT_GRAPH or name.removesuffix(_VALUE) in ("save_counter", *_STEPS):
        return Role.OTHER
    if _TRAINED_BY_OPTIMIZER in name:
        return Role.MODEL
    return Role.OPTIMIZER if _OPTIMIZER.search(name.removesuffix(_VALUE)) else Role.MODEL


def _range(entry: Entry, shard: str) -> TensorRange:
    return TensorRange(
        name=entry.name,
        shard=shard,
        offset_bytes=entry.offset,
        length_bytes=entry.size,
        dtype=entry.dtype,
        shape=entry.shape,
        role=_role_of(entry.name),
    )


def _take_step(draft: Draft, folder: Folder, prefix: str, index: Index) -> None:
    """From a counter inside. In the name of a `tf.train.Checkpoint` stands the number of the save."""
    held = {entry.name.removesuffix(_VALUE): entry for entry in index.entries if entry.shape == () and not entry.sliced}
    counts = (_integer(folder, prefix, index, held[name]) for name in _STEPS if name in held)
    draft.step = next((count for count in counts if count is not None), None)
    draft.number_is_no_step = draft.step is not None and any(entry.name == _OBJECT_GRAPH for entry in index.entries)


def _integer(folder: Folder, prefix: str, index: Index, entry: Entry) -> int | None:
    if entry.dtype not in ("int32", "int64") or entry.size not in (4, 8):
        return None
    name = f"{prefix}.data-{entry.shard:05d}-of-{index.shard_count:05d}"
    try:
        with folder.open(name) as opened:
            raw = opened.pread(entry.size, entry.offset) if name in folder.files else b""
    except OSError:
        return None
    number = int.from_bytes(raw, "little", signed=True)
    return number if len(raw) == entry.size and number >= 0 else None
