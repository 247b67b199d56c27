"""torchsnapshot: `.snapshot_metadata` is written last and is the commit marker; it says in which bytes of which file
each tensor and object lies.

Its text is JSON, which is also YAML; the YAML of versions before 0.1 is not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from muster_agent.formats.base import Finding, Role, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_plan import DTYPE_BITS
from muster_agent.formats.draft import Draft, first_role, role_of
from muster_agent.formats.folder import Folder, reach
from muster_agent.formats.names import unsafe_reason
from muster_agent.formats.safetensors import add_absent, metadata_entry, read_json
from muster_agent.formats.torch_archive import add_torch_shard

FORMAT = "torchsnapshot"
COMMIT_NAME = ".snapshot_metadata"
_MAX_METADATA_BYTES = 256 * 1024 * 1024
_MAX_LISTED = 100
_LAYOUT = frozenset({"batched", "sharded", "replicated"})
_STEP_PATHS = ("progress/step", "step", "global_step", "iteration", "progress/steps", "train_state/step")


class _Entry(NamedTuple):
    """One range of a file. `end` is None where the whole file belongs to it, and `needs` then its size, if known."""

    name: str
    location: str
    begin: int
    end: int | None
    needs: int | None
    dtype: str
    shape: tuple[int, ...]
    is_saved_object: bool


class _Unclear(Exception):
    """An entry is not as torchsnapshot writes it."""


def claims(folder: Folder) -> bool:
    names = folder.files.keys() | folder.blocked
    return COMMIT_NAME in names or _lacks_only_its_marker(folder)


def _lacks_only_its_marker(folder: Folder) -> bool:
    """Folders of ranks and of shared data, and nothing else: a snapshot that was never committed."""
    kinds = set(folder.folders)
    shared, ranks = kinds & _LAYOUT, {name for name in kinds if name.isdecimal()}
    return not folder.files and bool(shared) and bool(ranks) and kinds == shared | ranks


def owns(folder: Folder) -> list[str]:
    """The folders of ranks, which are named as steps might be."""
    return [name for name in folder.folders if name.isdecimal()]


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Each file that the metadata names, with its size held against the ranges that lie in it."""
    draft = Draft(FORMAT, committed=COMMIT_NAME in folder.files, marker=COMMIT_NAME)
    if not draft.committed:
        draft.roles = None
        if COMMIT_NAME not in folder.blocked:
            detail = f"there is data, but no {COMMIT_NAME}: it is written last, so the save did not end"
            draft.findings.append(finding("metadata_missing", path=folder.path, detail=detail))
        return draft
    draft.shards.append(metadata_entry(COMMIT_NAME, folder.files[COMMIT_NAME]))
    document = _document(draft, folder)
    if document is None:
        draft.roles = None
        return draft
    try:
        entries = list(_entries(document["manifest"]))
    except _Unclear as error:
        draft.findings.append(_unreadable(f"{COMMIT_NAME} has an entry that is not understood: {error}"))
        draft.roles = None
        return draft
    _read_files(draft, folder, entries)
    draft.step = _step(document["manifest"])
    world = document.get("world_size")
    draft.world_size = world if type(world) is int and 0 < world < 1 << 31 else None
    draft.roles = {role_of(_path(name)) for name in document["manifest"]}
    if with_tensors:
        draft.tensors.extend(_ranges(folder, entries))
    return draft


def _document(draft: Draft, folder: Folder) -> dict[str, Any] | None:
    document, problem = read_json(folder, COMMIT_NAME, _MAX_METADATA_BYTES)
    if problem is not None and problem.code == "metadata_unreadable" and _is_yaml(folder):
        draft.undecided = f"{COMMIT_NAME} is YAML, as torchsnapshot wrote before 0.1; this version reads its JSON only"
        draft.findings.append(finding("format_unknown", path=COMMIT_NAME, detail=draft.undecided))
        return None
    if problem is None and not (isinstance(document, dict) and isinstance(document.get("manifest"), dict)):
        problem = _unreadable(f"{COMMIT_NAME} has no manifest")
    if problem is not None:
        draft.findings.append(problem)
        return None
    read: dict[str, Any] = document
    return read


def _is_yaml(folder: Folder) -> bool:
    try:
        return folder.read(COMMIT_NAME, 64).lstrip().startswith((b"manifest:", b"version:", b"world_size:"))
    except OSError:
        return False


def _unreadable(detail: str) -> Finding:
    return finding("metadata_unreadable", path=COMMIT_NAME, detail=detail)


# -- entries -----------------------------------------------------------------------------------------------------------
def _entries(manifest: dict[str, Any]) -> Iterator[_Entry]:
    """Every range of a file that the manifest names, once. Numbers and texts are in the manifest itself."""
    for name, entry in manifest.items():
        if not isinstance(entry, dict):
            raise _Unclear(repr(name[:100]))
        if "location" in entry:
            yield _entry(name, entry)
        for parts in (entry.get("shards"), entry.get("chunks")):
            for part in parts if isinstance(parts, list) else ():
                tensor = part.get("tensor") if isinstance(part, dict) else None
                if not isinstance(tensor, dict):
                    raise _Unclear(repr(name[:100]))
                yield _entry(name, tensor)


def _entry(name: str, entry: dict[str, Any]) -> _Entry:
    location, shape, extent = entry.get("location"), entry.get("shape", []), entry.get("byte_range")
    if not isinstance(location, str) or not _are_sizes(shape) or not (extent is None or _is_range(extent)):
        raise _Unclear(repr(name[:100]))
    dtype = str(entry.get("dtype", "object")).removeprefix("torch.")
    needs = None
    if entry.get("serializer") == "buffer_protocol" and dtype in DTYPE_BITS:
        needs = DTYPE_BITS[dtype] // 8
        for size in shape:
            needs *= size
    begin, end = extent or (0, None)
    if end is not None and needs is not None and end - begin != needs:
        raise _Unclear(f"{name[:100]!r} has {needs} bytes and a range of {end - begin}")
    saved = entry.get("serializer") == "torch_save" and extent is None
    return _Entry(_path(name), location, begin, end, needs, dtype, tuple(shape), saved)


def _are_sizes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 64
        and all(type(size) is int and 0 <= size < 1 << 60 for size in value)
    )


def _is_range(value: Any) -> bool:
    return _are_sizes(value) and len(value) == 2 and value[0] <= value[1]


def _path(name: str) -> str:
    """The name without the rank in front of it."""
    rank, _, path = name.partition("/")
    return path if rank.isdecimal() and path else name


def _step(manifest: dict[str, Any]) -> int | None:
    for path in _STEP_PATHS:
        entry = manifest.get(f"0/{path}")
        text = entry.get("serialized_value") if isinstance(entry, dict) and entry.get("type") == "int" else None
        if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 19:
            return int(text)
    return None


# -- files -------------------------------------------------------------------------------------------------------------
def _read_files(draft: Draft, folder: Folder, entries: list[_Entry]) -> None:
    by_file: dict[str, list[_Entry]] = defaultdict(list)
    for entry in entries:
        by_file[entry.location].append(entry)
    for location, held in sorted(by_file.items()):
        if len(draft.findings) >= _MAX_LISTED:
            break
        reason = unsafe_reason(location)
        if reason is not None:
            detail = f"the file name {location[:200]!r} {reason}"
            draft.findings.append(finding("path_unsafe", path=COMMIT_NAME, detail=detail))
            continue
        reach(folder, location)
        if any(entry.is_saved_object for entry in held) and location in folder.files:
            add_torch_shard(draft, folder, location, rank=_rank(location), role=_role(held), values=True)
        else:
            _add_raw(draft, folder, location, held)


def _add_raw(draft: Draft, folder: Folder, location: str, held: list[_Entry]) -> None:
    rank = _rank(location)
    needs = max(entry.end if entry.end is not None else entry.needs or 0 for entry in held)
    if location not in folder.files:
        add_absent(draft, folder, location, f"{location} is in {COMMIT_NAME}, but not there", rank=rank, promised=needs)
        return
    seen = folder.files[location]
    draft.shards.append(
        ShardEntry(
            path=location,
            size_bytes=seen.size_bytes,
            promised_bytes=needs,
            rank=rank,
            role=_role(held),
            mtime_ns=seen.mtime_ns,
        )
    )
    if seen.size_bytes < needs:
        code = "shard_truncated" if seen.size_bytes else "shard_empty"
        detail = f"{location} has {seen.size_bytes} bytes, {COMMIT_NAME} places tensors in {needs}"
        draft.findings.append(finding(code, path=location, detail=detail, begin_byte=seen.size_bytes, end_byte=needs))
    elif seen.size_bytes > needs and needs:
        detail = f"{location} has {seen.size_bytes} bytes, {COMMIT_NAME} describes {needs}"
        draft.findings.append(finding("shard_oversized", path=location, detail=detail, begin_byte=needs))


def _rank(location: str) -> int | None:
    first = location.partition("/")[0]
    return int(first) if first.isdecimal() and len(first) < 7 else None


def _role(held: list[_Entry]) -> Role:
    return first_role({role_of(entry.name) for entry in held})


def _ranges(folder: Folder, entries: list[_Entry]) -> Iterator[TensorRange]:
    for entry in entries:
        seen = folder.files.get(entry.location)
        end = entry.end if entry.end is not None else seen.size_bytes if seen else None
        if end is not None and seen is not None:
            yield TensorRange(
                name=entry.name,
                shard=entry.location,
                offset_bytes=entry.begin,
                length_bytes=end - entry.begin,
                dtype=entry.dtype,
                shape=entry.shape,
                role=role_of(entry.name),
            )
