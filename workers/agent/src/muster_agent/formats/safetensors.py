"""Files of safetensors as shards of a checkpoint: what every format that holds some of them needs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from muster_agent.formats.base import Finding, Role, ShardEntry, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, first_role, role_of, roles_of
from muster_agent.formats.folder import FileSeen, Folder, trouble
from muster_agent.formats.names import is_temporary
from muster_agent.formats.safetensors_header import Header, read_header

FORMAT = "safetensors"
MAX_INDEX_BYTES = 64 * 1024 * 1024
MAX_JSON_VALUES = 4_000_000
"""Commas and brackets; an index of a million tensors has one of each for every tensor."""


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


def decode_json(data: bytes) -> Any:
    """The document. Raises ValueError for what is none, and for so many values that they would take gigabytes."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise ValueError(f"it has more than {MAX_JSON_VALUES} values")
    return msgspec.json.decode(data)


def read_json(folder: Folder, name: str, limit_bytes: int = MAX_INDEX_BYTES) -> tuple[Any, Finding | None]:
    """The JSON document in `name`, or the finding that says why there is none."""
    path = os.path.join(folder.path, name)
    if folder.files[name].size_bytes > limit_bytes:
        return None, finding("metadata_unreadable", path=name, detail=f"{name} is larger than {limit_bytes} bytes")
    try:
        return decode_json(folder.read(name, limit_bytes)), None
    except OSError as error:
        return None, finding(trouble(error, path).code, path=name, detail=f"{name} could not be read: {error.strerror}")
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return None, finding("metadata_unreadable", path=name, detail=f"{name} is not valid JSON: {error}")


def add_absent(
    draft: Draft,
    folder: Folder,
    name: str,
    detail: str,
    *,
    rank: int | None = None,
    promised: int | None = None,
    cure: str | None = None,
) -> None:
    """A promised file that is not among the folder's readable files: missing, unless it could not be looked at, or
    something else lies in its place."""
    draft.shards.append(ShardEntry(path=name, size_bytes=None, promised_bytes=promised, rank=rank, role=Role.MODEL))
    if name not in folder.blocked and folder.listed:
        other = "folder" if name in folder.folders else folder.special.get(name)
        detail = f"{name} is a {other}, not a file with bytes in it" if other else detail
        draft.findings.append(finding("shard_missing", path=name, detail=detail, cure=cure))
