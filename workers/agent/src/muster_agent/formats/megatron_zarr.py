"""Megatron-Core's older `zarr` layout: a folder per tensor, a folder of files per object in parts, and `common.pt`.

No list says which tensors there must be. What is there is held against its own description; `metadata.json` is
written last and is the commit marker.
"""

from __future__ import annotations

import re

import msgspec

from muster_agent.formats.base import Role, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, role_of
from muster_agent.formats.folder import Folder
from muster_agent.formats.megatron_common import COMMON_NAME, MARKER_NAME, take_state, take_unfinished
from muster_agent.formats.megatron_dist import backend_of, take_marker
from muster_agent.formats.megatron_loader import take_loader_files
from muster_agent.formats.nested import list_nested, read_nested
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.safetensors import other_files
from muster_agent.formats.sharded_objects import group_findings
from muster_agent.formats.torch_archive import add_torch_shard, tensor_ranges
from muster_agent.formats.zarr import METADATA_NAME, is_array, read_array

FORMAT = "megatron_zarr"
_PART_FILE = re.compile(r"shard_[\d.]+_[\d.]+\.pt", re.ASCII)
_CHUNK_FILE = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_FILE_NAMES = frozenset({COMMON_NAME, MARKER_NAME})
"""Any other name that could not be looked at may be the folder of a tensor."""
_MAX_KEY_DEPTH = 4
"""A key with `/` in it is a path of folders."""


def claims(folder: Folder) -> bool:
    if MARKER_NAME in folder.files and backend_of(folder) == "zarr":
        return True
    begun = COMMON_NAME in folder.files or COMMON_NAME in folder.blocked
    return begun and any(is_array(folder.sub(name)) for name in folder.folders)


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge the folder of one iteration."""
    draft = Draft(FORMAT, committed=True)
    take_marker(draft, folder, is_needed=True)
    take_unfinished(draft, folder)
    roots: dict[str, str] = {}
    if COMMON_NAME in folder.files:
        loaded = add_torch_shard(draft, folder, COMMON_NAME, role=Role.SCHEDULER, values=True)
        take_state(draft, folder, loaded.value if loaded else None)
        roots.update({COMMON_NAME: loaded.file.root} if loaded else {})
    elif COMMON_NAME not in folder.blocked:
        detail = f"{COMMON_NAME}, the state that all ranks share, is not there"
        draft.findings.append(finding("shard_missing", path=COMMON_NAME, detail=detail))
    take_loader_files(draft, folder)
    for name in folder.folders:
        if not name.startswith("mp_rank_"):
            _take_key(draft, folder, name, name, with_tensors, roots)
    draft.findings.extend(misplaced_findings(roots))
    for name in sorted(folder.blocked - _FILE_NAMES):
        draft.shards.append(ShardEntry(path=f"{name}/{METADATA_NAME}", size_bytes=None, role=role_of(name)))
    if draft.committed and not any(shard.role is Role.MODEL for shard in draft.shards):
        detail = f"{MARKER_NAME} says that the save ended, but no tensor is here"
        draft.findings.append(finding("shard_missing", path=folder.path, detail=detail))
    draft.shards.extend(other_files(folder, [shard.path for shard in draft.shards]))
    return draft


def _take_key(draft: Draft, folder: Folder, name: str, key: str, with_tensors: bool, roots: dict[str, str]) -> None:
    """Take what lies under `key`: an array, an object in parts, or further keys. Puts the folder inside each zip into
    `roots`, by the file's path."""
    inside = folder.sub(name)
    if is_array(inside):
        role = role_of(key)
        read_nested(draft, folder, name, lambda f, w: read_array(f, w, name=key, role=role), with_tensors=with_tensors)
    elif any(map(_PART_FILE.fullmatch, inside.files.keys() | inside.blocked)):
        read_nested(draft, folder, name, lambda f, w: _read_object(f, w, key, roots), with_tensors=with_tensors)
    elif inside.folders and key.count("/") < _MAX_KEY_DEPTH:
        read_nested(draft, folder, name, lambda f, w: _read_keys(f, w, key, roots), with_tensors=with_tensors)
    else:
        _take_undescribed(draft, folder, name)


def _read_keys(folder: Folder, with_tensors: bool, key: str, roots: dict[str, str]) -> Draft:
    draft = Draft(FORMAT)
    for name in folder.folders:
        _take_key(draft, folder, name, f"{key}/{name}", with_tensors, roots)
    return draft


def _take_undescribed(draft: Draft, folder: Folder, name: str) -> None:
    """A folder without a description is a key of which the array or the object is not there, or something else."""
    inside = folder.sub(name)
    list_nested(draft, folder, name)
    draft.findings.extend(found for found in inside.findings if not inside.listed)
    is_key = not inside.files or any(map(_CHUNK_FILE.fullmatch, inside.files))
    if inside.listed and not inside.blocked and is_key and not inside.folders:
        detail = f"{name} has no {METADATA_NAME}, so nothing tells which chunks it needs"
        draft.findings.append(finding("metadata_missing", path=f"{name}/{METADATA_NAME}", detail=detail))


def _read_object(folder: Folder, with_tensors: bool, key: str, roots: dict[str, str]) -> Draft:
    """An object that every rank saved a part of, each in a file of its own."""
    role, replace = role_of(key), msgspec.structs.replace
    draft = Draft(FORMAT, roles={role})
    names = sorted(filter(_PART_FILE.fullmatch, folder.files))
    for name in names:
        loaded = add_torch_shard(draft, folder, name, role=role, values=with_tensors)
        roots.update({f"{key}/{name}": loaded.file.root} if loaded else {})
        ranges = tensor_ranges(loaded, name) if with_tensors and loaded else []
        draft.tensors.extend(replace(one, name=f"{key}.{one.name}", role=role) for one in ranges)
    known = {*names, *filter(_PART_FILE.fullmatch, folder.blocked)}
    draft.findings.extend(group_findings(f"{key}/{name.removesuffix('.pt')}" for name in known))
    return draft
