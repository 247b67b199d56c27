"""T5X's own checkpoints: the file `checkpoint` (flax's msgpack), a zarr folder for each array that it refers to, and
the state of the data set, in a folder that is renamed from `checkpoint_N.tmp-TIME` when all is written.

tensorstore leaves out a chunk that holds nothing but zeros, so that a whole array without chunks may be one of zeros.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from muster_agent.formats.base import Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.msgpack_bounded import Extension, MsgpackRefused, parse_msgpack
from muster_agent.formats.names import unsafe_reason
from muster_agent.formats.nested import take_folder_findings
from muster_agent.formats.safetensors import add_absent, metadata_entry, other_files
from muster_agent.formats.zarr import METADATA_NAME, is_array, read_array

FORMAT = "t5x"
STATE_NAME = "checkpoint"
_HEADS = (b"\x82\xa7version", b"\x82\xa9optimizer")
"""A map of two with those keys, as flax writes it."""
_ARRAY = re.compile(r"(?:target|state|param_states|flax_mutables)\..+", re.ASCII)
_DATA_SET = re.compile(r"train_ds-(\d{1,6})-of-(\d{1,6})(?:\.index|\.data-\d{5}-of-\d{5})?", re.ASCII)
_MAX_STATE_BYTES = 256 * 1024 * 1024
_MAX_ABSENT = 200
_MAX_VALUES = 1_000_000
_ARRAY_EXTENSIONS = (1, 3)
"""Of an array, and of a number of one of numpy's types."""
_SCALARS = {"int32": 4, "int64": 8, "uint32": 4}


def claims(folder: Folder) -> bool:
    if STATE_NAME not in folder.files:
        return False
    arrays = [name for name in folder.folders if _ARRAY.fullmatch(name)]
    if arrays and is_array(folder.sub(arrays[0])):
        return True
    try:
        return folder.read(STATE_NAME, 12).startswith(_HEADS)
    except OSError:
        return False


def owns(folder: Folder) -> list[str]:
    """Arrays may be named like anything."""
    return folder.folders


def read(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT)
    draft.shards.append(metadata_entry(STATE_NAME, folder.files[STATE_NAME]))
    tree = _tree(draft, folder)
    for name in folder.folders:
        inside = folder.sub(name)
        if is_array(inside):
            inner = read_array(inside, with_tensors, name=name, role=_role_of(name), absent=Severity.NOTE)
            _weigh_absent(inner)
            take_folder_findings(inner, inside)
            nest(draft, inner, name)
    if tree is not None:
        _check_arrays(draft, folder, tree)
        _take_roles(draft, tree)
        draft.step = _step(tree)
    _take_data_sets(draft, folder)
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _role_of(array: str) -> Role:
    return Role.MODEL if array.startswith(("target.", "flax_mutables.")) else Role.OPTIMIZER


def _weigh_absent(array: Draft) -> None:
    """Weights of which some chunks are there and others are not have lost these: trained weights are no zeros."""
    has_chunks = any(shard.role is Role.MODEL and shard.size_bytes for shard in array.shards)
    if array.roles == {Role.MODEL} and has_chunks:
        array.findings = [
            msgspec.structs.replace(one, severity=Severity.DAMAGE) if one.code == "shard_missing" else one
            for one in array.findings
        ]


# -- what `checkpoint` says --------------------------------------------------------------------------------------------
def _tree(draft: Draft, folder: Folder) -> dict[Any, Any] | None:
    size_bytes = folder.files[STATE_NAME].size_bytes
    if not size_bytes:
        draft.findings.append(finding("shard_empty", path=STATE_NAME, detail=f"{STATE_NAME} has 0 bytes"))
        return None
    if size_bytes > _MAX_STATE_BYTES:
        draft.undecided = f"{STATE_NAME} has {size_bytes} bytes, more than Muster reads"
        return None
    try:
        tree = parse_msgpack(folder.read(STATE_NAME, _MAX_STATE_BYTES))
        inner = tree.get("optimizer") if isinstance(tree, dict) else None
        if isinstance(inner, dict):
            return inner
        detail = f"{STATE_NAME} holds no tree of training state"
    except OSError as error:
        detail = f"{STATE_NAME} could not be read: {error.strerror}"
        draft.findings.append(
            finding(trouble(error, f"{folder.path}/{STATE_NAME}").code, path=STATE_NAME, detail=detail)
        )
        return None
    except MsgpackRefused as refused:
        detail = f"{STATE_NAME} cannot be used: {refused.reason}"
    draft.roles = None
    draft.findings.append(finding("metadata_unreadable", path=STATE_NAME, detail=detail))
    return None


def _specs(tree: Any) -> Iterator[str]:
    """The folders of all arrays that the tree refers to."""
    waiting, left = [tree], _MAX_VALUES
    while waiting and left:
        value, left = waiting.pop(), left - 1
        if not isinstance(value, dict):
            continue
        if value.get("driver") == "zarr":
            store = value.get("kvstore")
            path = store.get("path") if isinstance(store, dict) else None
            path = value.get("path") if not isinstance(path, str) else path
            if isinstance(path, str):
                yield path.strip("/")
            continue
        waiting.extend(value.values())


def _check_arrays(draft: Draft, folder: Folder, tree: dict[Any, Any]) -> None:
    named = {path.rpartition("/")[2] if path.startswith("/") else path for path in _specs(tree)}
    lost = 0
    for name in sorted(named):
        if (reason := unsafe_reason(name)) is not None or "/" in name:
            detail = f"the name {ascii(name[:200])} of an array {reason or 'is that of no folder beside it'}"
            draft.findings.append(finding("path_unsafe", path=STATE_NAME, detail=detail))
        elif name not in folder.folders and name not in folder.blocked and lost < _MAX_ABSENT:
            lost += 1
            add_absent(
                draft,
                folder,
                f"{name}/{METADATA_NAME}",
                f"{STATE_NAME} refers to the array {name!r}, which is not there",
            )
        elif name in folder.folders and not is_array(folder.sub(name)) and folder.sub(name).listed:
            detail = f"the array {name!r} has no {METADATA_NAME}, which describes it"
            draft.findings.append(finding("metadata_missing", path=f"{name}/{METADATA_NAME}", detail=detail))


def _take_roles(draft: Draft, tree: dict[Any, Any]) -> None:
    state = tree.get("state")
    if draft.roles is None:
        return
    if tree.get("target"):
        draft.roles.add(Role.MODEL)
    if isinstance(state, dict) and state.get("param_states"):
        draft.roles.add(Role.OPTIMIZER)


def _step(tree: dict[Any, Any]) -> int | None:
    state = tree.get("state")
    value = state.get("step") if isinstance(state, dict) else None
    if isinstance(value, Extension) and value.kind in _ARRAY_EXTENSIONS:
        try:
            shape, kind, raw = parse_msgpack(value.data)
        except (MsgpackRefused, ValueError, TypeError):
            return None
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else kind
        if shape not in ([], [1]) or not isinstance(raw, bytes) or _SCALARS.get(kind) != len(raw):
            return None
        value = int.from_bytes(raw, "little", signed=True)
    return value if type(value) is int and 0 <= value < 1 << 62 else None


# -- the data set ------------------------------------------------------------------------------------------------------
def _take_data_sets(draft: Draft, folder: Folder) -> None:
    matches = [match for match in map(_DATA_SET.fullmatch, sorted(folder.files)) if match]
    for match in matches:
        seen = folder.files[match[0]]
        draft.shards.append(
            ShardEntry(
                path=match[0],
                size_bytes=seen.size_bytes,
                rank=int(match[1]),
                mtime_ns=seen.mtime_ns,
                role=Role.DATALOADER,
            )
        )
    counts = {int(match[2]) for match in matches}
    if matches and draft.roles is not None:
        draft.roles.add(Role.DATALOADER)
    if len(counts) != 1:
        return
    count, have = counts.pop(), {int(match[1]) for match in matches}
    for number in [number for number in range(min(count, 100_000)) if number not in have][:_MAX_ABSENT]:
        name = f"train_ds-{number:03d}-of-{count:03d}"
        add_absent(draft, folder, name, f"host {number} of {count} left no {name}", rank=number)
