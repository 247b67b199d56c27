"""Levanter's folders of step N before it used OCDBT: a zarr folder for each array of the state, and `metadata.json`
with the step and the time, which is written when all arrays are committed. With OCDBT they read as Orbax's do.
"""

from __future__ import annotations

from typing import Any

from muster_agent.formats.base import Finding, Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.orbax_tree import role_of_param
from muster_agent.formats.orbax_zarr import ZarrItem
from muster_agent.formats.safetensors import metadata_entry, other_files, read_json
from muster_agent.formats.zarr import METADATA_NAMES

FORMAT = "levanter"
METADATA_NAME = "metadata.json"
_RANDOM_KEY = "training_key"
_STATES = frozenset({"model", "optimizer_state", "opt_state", _RANDOM_KEY})
_MAX_BYTES = 64 * 1024
_MAX_DEPTH = 16
_MAX_LISTED = 50


def claims(folder: Folder) -> bool:
    """By what `metadata.json` says; without one, by the folders of its state with arrays of zarr in them."""
    if not _STATES.intersection(folder.folders):
        return False
    if METADATA_NAME in folder.files:
        return _record(folder) is not None
    own = _STATES.intersection(folder.folders)
    is_alike = "model" in own and len(own) > 1 and not folder.files
    return is_alike and any(_holds_arrays(folder.sub(name), 3) for name in sorted(own))


def _holds_arrays(folder: Folder, depth: int) -> bool:
    if any(name in folder.files for name in METADATA_NAMES):
        return True
    return depth > 0 and any(_holds_arrays(folder.sub(name), depth - 1) for name in folder.folders[:4])


def _record(folder: Folder) -> dict[str, Any] | None:
    """`metadata.json` where it is Levanter's, or cannot be read."""
    document, problem = read_json(folder, METADATA_NAME, _MAX_BYTES)
    if problem is not None:
        return {}
    is_own = isinstance(document, dict) and type(document.get("step")) is int and "timestamp" in document
    return document if is_own else None


def owns(folder: Folder) -> list[str]:
    """Arrays may be named like anything."""
    return folder.folders


def read(folder: Folder, with_tensors: bool) -> Draft:
    is_committed = METADATA_NAME in folder.files or METADATA_NAME in folder.blocked
    draft = Draft(FORMAT, committed=is_committed, marker=METADATA_NAME)
    if METADATA_NAME in folder.files:
        draft.shards.append(metadata_entry(METADATA_NAME, folder.files[METADATA_NAME]))
        document, problem = read_json(folder, METADATA_NAME, _MAX_BYTES)
        draft.findings.extend([problem] if problem else [])
        step = document.get("step") if isinstance(document, dict) else None
        draft.step = step if type(step) is int and 0 <= step < 1 << 63 else None
    unlisted: set[str] = set()
    for name in folder.folders:
        _take_below(draft, folder, folder.sub(name), name, unlisted, _MAX_DEPTH)
    arrays = ZarrItem(folder, "", frozenset(unlisted))
    arrays.read(draft, with_tensors)
    draft.findings.extend(_troubles(arrays))
    if draft.roles is not None:
        draft.roles |= {Role.RNG if name.startswith(_RANDOM_KEY) else role_of_param(name) for name in arrays.found}
    if not arrays.found and not unlisted:
        detail = "there is no array of its state"
        draft.findings.append(finding("shard_missing", path="model", detail=detail))
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _troubles(arrays: ZarrItem) -> list[Finding]:
    found = []
    for name, array in arrays.found.items():
        if array.problem is not None:
            detail = f"the array {name!r}: {array.problem}"
            found.append(finding("metadata_unreadable", path=f"{name}/.zarray", detail=detail, tensor=name))
    return found[:_MAX_LISTED]


def _take_below(draft: Draft, folder: Folder, inside: Folder, at: str, unlisted: set[str], depth: int) -> None:
    """Take the files of a sub-folder, and of those in it, into the folder's own, with their paths."""
    if not inside.listed and not inside.gone:
        unlisted.add(f"{at}/")
    draft.findings.extend(finding(one.code, path=f"{at}/{one.path}", detail=one.detail) for one in inside.findings)
    folder.files.update({f"{at}/{name}": seen for name, seen in inside.files.items()})
    folder.blocked.update(f"{at}/{name}" for name in inside.blocked)
    for name in inside.folders if depth else ():
        _take_below(draft, folder, inside.sub(name), f"{at}/{name}", unlisted, depth - 1)
