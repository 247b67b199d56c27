"""The safetensors format: one file, a set of files with an index, and what a name family alone says."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from muster_agent.formats.base import Finding, Role, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, first_role, role_of, roles_of
from muster_agent.formats.folder import FileSeen, Folder, reach, trouble
from muster_agent.formats.names import is_temporary, unsafe_reason
from muster_agent.formats.safetensors_header import Header, read_header

FORMAT = "safetensors"
INDEX_SUFFIX = ".safetensors.index.json"
_UNREAD_SUFFIXES = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
MAX_INDEX_BYTES = 64 * 1024 * 1024
_OF_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors", re.ASCII)


class ReadShard(NamedTuple):
    entry: ShardEntry
    header: Header
    roles: set[Role]


def read_shard(
    folder: Folder, name: str, *, with_tensors: bool, rank: int | None = None, promised_bytes: int | None = None
) -> ReadShard:
    """Read the header of the file `name` of `folder`; its entry has the role of the first role its tensors have."""
    seen = folder.files[name]
    header = read_header(os.path.join(folder.path, name), name, with_tensors=with_tensors, tree=folder.tree)
    roles = _roles(name, header)
    role = first_role(roles, default=Role.OTHER if header.ok else Role.MODEL)
    entry = ShardEntry(
        path=name,
        size_bytes=seen.size_bytes,
        promised_bytes=promised_bytes,
        rank=rank,
        role=role,
        mtime_ns=seen.mtime_ns,
    )
    return ReadShard(entry, header, roles)


def _roles(name: str, header: Header) -> set[Role]:
    """Roles of the tensors; `optimizer.safetensors` says by its file name what tensors without a prefix are."""
    roles = roles_of(header.names)
    by_name = role_of(name)
    return {by_name} if roles == {Role.MODEL} and by_name is not Role.MODEL else roles


def add_shard(draft: Draft, shard: ReadShard, *, with_tensors: bool) -> None:
    """Take a shard's entry, findings, roles and (where wanted) tensor ranges into the draft."""
    draft.shards.append(shard.entry)
    draft.findings.extend(shard.header.findings)
    if draft.roles is not None:
        draft.roles |= shard.roles
    if shard.header.unknown_dtypes:
        names = ", ".join(sorted(shard.header.unknown_dtypes))
        draft.undecided = f"{shard.entry.path} uses data types that this version does not know ({names[:80]})"
    if with_tensors:
        draft.tensors.extend(_ranges(shard.entry.path, shard.header))


def _ranges(shard: str, header: Header) -> Iterable[TensorRange]:
    for tensor in header.tensors:
        yield TensorRange(
            name=tensor.name,
            shard=shard,
            offset_bytes=tensor.begin,
            length_bytes=tensor.end - tensor.begin,
            dtype=tensor.dtype,
            shape=tensor.shape,
            role=role_of(tensor.name),
        )


def other_files(folder: Folder, taken: Iterable[str]) -> list[ShardEntry]:
    """Entries for the files beside the shards (configuration, tokenizer): part of the checkpoint, not inspected."""
    skip = set(taken)
    return [
        ShardEntry(path=name, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.OTHER)
        for name, seen in sorted(folder.files.items())
        if name not in skip and not name.endswith(".safetensors") and not is_temporary(name)
    ]


def metadata_entry(name: str, seen: FileSeen) -> ShardEntry:
    return ShardEntry(path=name, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.METADATA)


def read_json(folder: Folder, name: str, limit_bytes: int = MAX_INDEX_BYTES) -> tuple[Any, Finding | None]:
    """The JSON document in `name`, or the finding that says why there is none."""
    path = os.path.join(folder.path, name)
    if folder.files[name].size_bytes > limit_bytes:
        return None, finding("metadata_unreadable", path=name, detail=f"{name} is larger than {limit_bytes} bytes")
    try:
        return msgspec.json.decode(folder.read(name, limit_bytes)), None
    except OSError as error:
        return None, finding(trouble(error, path).code, path=name, detail=f"{name} could not be read: {error.strerror}")
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return None, finding("metadata_unreadable", path=name, detail=f"{name} is not valid JSON: {error}")


def claims(folder: Folder) -> bool:
    names = folder.files.keys() | folder.blocked
    return "model.safetensors" in names or any(is_indexed_name(name) or is_numbered_name(name) for name in names)


def claims_file(_folder: Folder, name: str) -> bool:
    return name.endswith(".safetensors")


def read_folder(folder: Folder, with_tensors: bool) -> Draft:
    """A folder of safetensors files: by its index, by the numbers in the names, or as they lie."""
    index = next((name for name in sorted(folder.files) if is_indexed_name(name)), None)
    if index is not None:
        return read_indexed(folder, index, with_tensors=with_tensors)
    if any(map(is_numbered_name, folder.files)):
        return read_unindexed(folder, with_tensors=with_tensors)
    return read_loose(folder, with_tensors)


def read_single(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """A checkpoint that is the one file `name`, whatever else lies in its folder."""
    draft = Draft(FORMAT)
    add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
    return draft


def read_loose(folder: Folder, with_tensors: bool) -> Draft:
    """A folder of safetensors files that no index ties together (`model.safetensors`, `optimizer.safetensors`)."""
    draft = Draft(FORMAT)
    for name in sorted(folder.files):
        if name.endswith(".safetensors"):
            add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
    draft.shards.extend(other_files(folder, []))
    unread = sorted(name for name in folder.files if name.endswith(_UNREAD_SUFFIXES))
    if unread:
        draft.roles = None
        draft.undecided = (
            f"{len(unread)} files beside it, such as {unread[0]}, are of a format not read by this version"
        )
    return draft


def read_indexed(folder: Folder, index_name: str, *, with_tensors: bool) -> Draft:
    """A checkpoint whose index maps each tensor to its file. The index is written last, so it is the commit marker."""
    draft = Draft(FORMAT, committed=True)
    draft.shards.append(metadata_entry(index_name, folder.files[index_name]))
    document, problem = read_json(folder, index_name)
    if problem is None:
        problem = _index_problem(document, index_name)
    if problem is not None:
        draft.findings.append(problem)
        draft.roles = None
        return draft
    weight_map: dict[str, str] = document["weight_map"]
    headers = _read_mapped(draft, folder, weight_map, with_tensors=with_tensors)
    _check_map(draft, weight_map, headers)
    _check_total(draft, document, headers, index_name)
    _check_of_count(draft, set(weight_map.values()), index_name)
    _note_strangers(draft, folder, set(weight_map.values()))
    draft.shards.extend(other_files(folder, [index_name, *headers]))
    return draft


def _index_problem(document: Any, name: str) -> Finding | None:
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        return finding("metadata_unreadable", path=name, detail=f"{name} has no weight_map")
    for shard in weight_map.values():
        reason = unsafe_reason(shard)
        if reason:
            return finding("path_unsafe", path=name, detail=f"the file name {str(shard)[:200]!r} {reason}")
    return None


def _read_mapped(
    draft: Draft, folder: Folder, weight_map: dict[str, str], *, with_tensors: bool
) -> dict[str, ReadShard]:
    shards = {}
    for name in sorted(set(weight_map.values())):
        reach(folder, name)
        if name in folder.files:
            shards[name] = read_shard(folder, name, with_tensors=with_tensors)
            add_shard(draft, shards[name], with_tensors=with_tensors)
        else:
            add_absent(draft, folder, name, f"{name} is in the index, but not in the folder")
    return shards


def add_absent(
    draft: Draft, folder: Folder, name: str, detail: str, *, rank: int | None = None, promised: int | None = None
) -> None:
    """A promised file that is not among the folder's readable files: missing, unless it could not be looked at."""
    draft.shards.append(ShardEntry(path=name, size_bytes=None, promised_bytes=promised, rank=rank, role=Role.MODEL))
    if name not in folder.blocked and folder.listed:
        draft.findings.append(finding("shard_missing", path=name, detail=detail))


def _check_map(draft: Draft, weight_map: dict[str, str], shards: dict[str, ReadShard]) -> None:
    held = {name: set(shard.header.names) for name, shard in shards.items()}
    absent: dict[str, list[str]] = defaultdict(list)
    for tensor, name in weight_map.items():
        if name in held and shards[name].header.ok and tensor not in held[name]:
            absent[name].append(tensor)
    for name, tensors in absent.items():
        detail = f"{len(tensors)} tensors that the index places in {name} are not in it, the first is {tensors[0]!r}"
        draft.findings.append(finding("ranges_gap", path=name, detail=detail, tensor=tensors[0]))


def _check_total(draft: Draft, document: dict[str, Any], shards: dict[str, ReadShard], index_name: str) -> None:
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    whole = all(shard.size_bytes is not None for shard in draft.shards) and all(s.header.ok for s in shards.values())
    tensor_bytes = sum(shard.header.tensor_bytes for shard in shards.values())
    if isinstance(total, (int, float)) and whole and total != tensor_bytes:
        detail = f"total_size is {total}, the tensors have {tensor_bytes} bytes"
        draft.findings.append(finding("size_total_mismatch", path=index_name, detail=detail))


def _check_of_count(draft: Draft, names: set[str], index_name: str) -> None:
    """`-of-00003` in the names promises three files, whatever the index says."""
    counts = {int(match.group(3)) for match in map(_OF_NAME.fullmatch, names) if match}
    if counts and counts != {len(names)}:
        said = ", ".join(str(count) for count in sorted(counts))
        detail = f"the file names promise {said} files, the index uses {len(names)}"
        draft.findings.append(finding("shard_missing", path=index_name, detail=detail))


def _note_strangers(draft: Draft, folder: Folder, used: set[str]) -> None:
    for name in sorted(set(folder.files) - used):
        if _OF_NAME.fullmatch(name):
            detail = f"{name} is not in the index; a save with another number of files left it"
            draft.findings.append(finding("shard_orphaned", path=name, detail=detail))
        elif name == "model.safetensors":
            detail = "there is an index and also model.safetensors: loaders differ in which they read"
            draft.findings.append(finding("shard_orphaned", path=name, detail=detail, cure="Remove the wrong one."))


def read_unindexed(folder: Folder, *, with_tensors: bool) -> Draft:
    """Files named `-00001-of-00002` without their index: it is written last, so the save did not end."""
    draft = Draft(FORMAT, committed=False)
    families: dict[tuple[str, int], set[int]] = defaultdict(set)
    for match in filter(None, map(_OF_NAME.fullmatch, folder.files)):
        families[match.group(1), int(match.group(3))].add(int(match.group(2)))
    for (stem, count), numbers in sorted(families.items()):
        for number in range(1, min(count, 99_999) + 1):
            name = f"{stem}-{number:05d}-of-{count:05d}.safetensors"
            if number in numbers:
                shard = read_shard(folder, name, with_tensors=with_tensors)
                add_shard(draft, shard, with_tensors=with_tensors)
            elif len(draft.findings) < 200:
                add_absent(draft, folder, name, f"the names of its siblings promise {name}, which is not there")
    draft.shards.extend(other_files(folder, []))
    return draft


def is_indexed_name(name: str) -> bool:
    return name.endswith(INDEX_SUFFIX)


def is_numbered_name(name: str) -> bool:
    return _OF_NAME.fullmatch(name) is not None
