"""Orbax checkpoints (also of MaxText): a step folder with one folder for each item, or one item by itself.

A step is renamed to its final name, or marked by `commit_success.txt` where renaming is not one act (buckets). A folder
that still has its temporary name is a save that runs or was abandoned, whatever it holds.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from muster_agent.formats.base import Finding, Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import step_of_name, unsafe_reason
from muster_agent.formats.ocdbt import MANIFEST_NAME
from muster_agent.formats.orbax_items import Item, read_item
from muster_agent.formats.orbax_names import (
    COMMIT_NAME,
    STEP_METADATA_NAME,
    TEMPORARY_MARK,
    TREE_NAME,
    is_temporary_step,
    step_of_folder,
)
from muster_agent.formats.safetensors import metadata_entry, read_json

FORMAT = "orbax"
_ITEM_FOLDERS = frozenset({"default", "state", "items", "params", "train_state", "model"})
_OWN_FOLDERS = frozenset({"d", "array_metadatas"})
_MAX_DEPTH = 8
_SIBLINGS_LOOKED_AT = 8
_MAX_COMMIT_BYTES = 8192
_JSON_NAME = "metadata"
_COMMIT_TEXT = "Checkpoint commit was successful"
_METADATA_NAMES = frozenset({COMMIT_NAME, STEP_METADATA_NAME, TREE_NAME, "_sharding", MANIFEST_NAME, "metadata"})


def claims(folder: Folder) -> bool:
    """By Orbax's own names; for older steps, which have none, by an item inside."""
    names = folder.files.keys() | folder.blocked
    if TEMPORARY_MARK in os.path.basename(folder.path) or MANIFEST_NAME in names:
        return True
    if TREE_NAME in names or any(name.startswith("ocdbt.process_") for name in folder.folders):
        return True
    if STEP_METADATA_NAME in names:
        return not any(step_of_name(name) is not None for name in folder.folders)
    items = _ITEM_FOLDERS.intersection(folder.folders) if names <= {COMMIT_NAME} else ()
    return any(_is_item(folder.sub(name)) for name in sorted(items))


def _is_item(folder: Folder) -> bool:
    names = folder.files.keys() | folder.blocked
    return TREE_NAME in names or MANIFEST_NAME in names or any(n.startswith("ocdbt.process_") for n in folder.folders)


def owns(folder: Folder) -> list[str]:
    """Items may be named like steps, and arrays like anything."""
    return folder.folders


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge a step folder or a single item: its commit, and each item's files against what its own metadata needs."""
    draft = Draft(FORMAT)
    unlisted = _take_files_below(draft, folder)
    draft.step = step_of_folder(os.path.basename(folder.path))
    if any(TEMPORARY_MARK in part for part in folder.path.split("/")):
        _take_temporary(draft, folder)
        return draft
    record = _step_record(draft, folder)
    _check_commit(draft, folder, record)
    processes: set[int] = set()
    items = _items(folder, record, unlisted)
    if not items:
        detail = "the step holds no item, only what stands beside items"
        draft.findings.append(finding("metadata_missing", path=folder.path, detail=detail))
    for item in items:
        if TEMPORARY_MARK in item.at:
            _take_temporary_item(draft, item)
            continue
        facts = read_item(draft, item, with_tensors)
        processes |= facts.processes
        _compare_step(draft, item, facts.step)
    draft.world_size = len(processes) or None
    listed = {shard.path for shard in draft.shards}
    draft.shards.extend(_entries(folder, skip=listed))
    return draft


def _take_files_below(draft: Draft, folder: Folder) -> frozenset[str]:
    """Take the files of all sub-folders into the folder's own, with their paths. The sub-folders that could not be
    listed, with a `/` at the end."""
    unlisted = set()
    waiting = [(name + "/", folder.sub(name), 1) for name in folder.folders]
    while waiting:
        at, inside, depth = waiting.pop()
        if not inside.listed and not inside.gone:
            unlisted.add(at)
        draft.findings.extend(_below(found, at) for found in inside.findings)
        folder.files.update({at + name: seen for name, seen in inside.files.items()})
        folder.blocked.update(at + name for name in inside.blocked)
        if depth < _MAX_DEPTH:
            waiting.extend((f"{at}{name}/", inside.sub(name), depth + 1) for name in inside.folders)
    return frozenset(unlisted)


def _below(found: Finding, at: str) -> Finding:
    path = found.path if found.path.startswith("/") or "://" in found.path else at + found.path
    return finding(found.code, path=path, detail=found.detail, severity=found.severity, cure=found.cure)


def _entries(folder: Folder, skip: set[str]) -> list[ShardEntry]:
    """Entries for the files that no item has spoken for."""
    entries = []
    for name, seen in sorted(folder.files.items()):
        if name in skip:
            continue
        if name.rsplit("/", 1)[-1] in _METADATA_NAMES:
            entries.append(metadata_entry(name, seen))
        else:
            entries.append(ShardEntry(path=name, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.OTHER))
    return entries


# -- commit ------------------------------------------------------------------------------------------------------------
class StepRecord(NamedTuple):
    """What `_CHECKPOINT_METADATA` says. `handlers` maps item names to the handlers that wrote them; of a checkpoint
    that is one item, the empty name. `is_final` is None where it says nothing of the commit."""

    handlers: dict[str, str]
    is_final: bool | None


def _step_record(draft: Draft, folder: Folder) -> StepRecord | None:
    if STEP_METADATA_NAME not in folder.files:
        return None
    document, problem = read_json(folder, STEP_METADATA_NAME)
    if problem is None and not _is_record(document):
        detail = f"{STEP_METADATA_NAME} is not a record of a step"
        problem = finding("metadata_unreadable", path=STEP_METADATA_NAME, detail=detail)
    if problem is not None:
        draft.findings.append(problem)
        return None
    return StepRecord(_handlers(document), _is_final(document))


def _is_record(document: object) -> bool:
    return isinstance(document, dict) and (not document or not _RECORD_KEYS.isdisjoint(document))


_RECORD_KEYS = frozenset(
    {"item_handlers", "init_timestamp_nsecs", "commit_timestamp_nsecs", "custom_metadata", "custom"}
)


def _handlers(document: dict[str, Any]) -> dict[str, str]:
    handlers = document.get("item_handlers")
    if isinstance(handlers, str):
        return {"": handlers}
    if not isinstance(handlers, dict):
        return {}
    return {name: str(handler) for name, handler in handlers.items() if "/" not in name and not unsafe_reason(name)}


def _is_final(document: dict[str, Any]) -> bool | None:
    if "commit_timestamp_nsecs" not in document:
        return None
    return document["commit_timestamp_nsecs"] is not None


def _check_commit(draft: Draft, folder: Folder, record: StepRecord | None) -> None:
    """Whether the save was finalized: by its own record, and by the marker where this place uses one."""
    if record is not None and record.is_final is False:
        draft.committed = False
        detail = f"{STEP_METADATA_NAME} has no time of commit: the save was never finalized"
        draft.findings.append(finding("metadata_missing", path=folder.path, detail=detail))
        return
    if COMMIT_NAME in folder.files or COMMIT_NAME in folder.blocked:
        draft.committed = True
        _check_marker(draft, folder)
        if STEP_METADATA_NAME not in folder.files and _should_have_record(folder):
            detail = f"there is no {STEP_METADATA_NAME}, and the version of Orbax that saved this writes one"
            draft.findings.append(_warn("metadata_missing", STEP_METADATA_NAME, detail))
        return
    marked_items = [name for name in folder.files if name.endswith("/" + COMMIT_NAME)]
    if "://" in folder.path or marked_items or _siblings_have(folder, COMMIT_NAME):
        draft.committed = False
        detail = f"there is no {COMMIT_NAME}, and steps in this place are given one when their save ends"
        draft.findings.append(_warn("metadata_missing", COMMIT_NAME, detail))
        return
    draft.committed = True if record is not None and record.is_final else None


def _should_have_record(folder: Folder) -> bool:
    if _is_item(folder) or STEP_METADATA_NAME in folder.blocked:
        return False
    current = any("/array_metadatas/" in name for name in folder.files)
    return current or _siblings_have(folder, STEP_METADATA_NAME)


def _warn(code: str, path: str, detail: str) -> Finding:
    return finding(code, path=path, detail=detail, severity=Severity.WARNING)


def _check_marker(draft: Draft, folder: Folder) -> None:
    """Loaders only ask whether the marker is there; what is wrong with its text, or with those of items, is told."""
    marked = sorted(name for name in folder.files if name.rsplit("/", 1)[-1] == COMMIT_NAME)
    for name in marked:
        try:
            text = folder.read(name, _MAX_COMMIT_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        if not text.startswith(_COMMIT_TEXT):
            detail = f"{name} does not hold what Orbax writes into it; its being there still counts as the commit"
            draft.findings.append(_warn("metadata_unreadable", name, detail))
            continue
        # Of an item the marker names the step's folder too, which is what it must not be another one's.
        place = os.path.join(folder.path, name).split("/")[-3 if "/" in name else -2 : -1]
        parts = [one.split(TEMPORARY_MARK)[0] for one in text.rstrip().rstrip("/").split("/")[-len(place) :]]
        own, named = "/".join(place), "/".join(parts)
        if named != own:
            detail = f"{name} was written for a folder called {named[:80]!r}, and this one is {own!r}"
            draft.findings.append(finding("step_mismatch", path=name, detail=detail, severity=Severity.NOTE))
    items = [name for name in folder.folders if name not in _OWN_FOLDERS and TEMPORARY_MARK not in name]
    unmarked = [name for name in items if f"{name}/{COMMIT_NAME}" not in folder.files]
    if len(unmarked) < len(items):
        for name in unmarked:
            detail = f"item {name!r} has no {COMMIT_NAME}, and other items have one"
            draft.findings.append(_warn("metadata_missing", f"{name}/{COMMIT_NAME}", detail))


def _siblings_have(folder: Folder, name: str) -> bool:
    """Whether a step beside this one has such a file. The nearest few tell."""
    step = step_of_folder(os.path.basename(folder.path))
    if step is None:
        return False
    parent = folder.tree.look(os.path.dirname(folder.path), folder.root)
    own = os.path.basename(folder.path)
    steps = [
        (abs(other - step), one)
        for one in parent.folders
        if one != own and TEMPORARY_MARK not in one and (other := step_of_folder(one)) is not None
    ]
    return any(name in parent.sub(one).files for _, one in sorted(steps)[:_SIBLINGS_LOOKED_AT])


# -- saves that did not end --------------------------------------------------------------------------------------------
def _take_temporary(draft: Draft, folder: Folder) -> None:
    draft.committed = False
    draft.roles = None
    detail = "the folder has the temporary name that a save gives it until it ends"
    draft.findings.append(finding("metadata_missing", path=folder.path, detail=detail))
    draft.findings.append(finding("temporary_left", path=folder.path, detail=f"{detail}; it is never loaded"))
    draft.shards.extend(_entries(folder, skip=set()))


def _take_temporary_item(draft: Draft, item: Item) -> None:
    draft.committed = False
    detail = f"{item.title} has the temporary name that a save gives it until it ends"
    draft.findings.append(finding("metadata_missing", path=item.at[:-1], detail=detail))
    draft.findings.append(finding("temporary_left", path=item.at[:-1], detail=detail))


# -- items -------------------------------------------------------------------------------------------------------------
def _items(folder: Folder, record: StepRecord | None, unlisted: frozenset[str]) -> list[Item]:
    """The items that the step's record names and those that lie there; the folder itself where it is one."""
    handlers = record.handlers if record is not None else {}
    is_current = record is not None or any("array_metadatas/" in name for name in folder.files)
    if "" in handlers or _is_item(folder):
        return [Item(folder, "", handlers.get("", ""), unlisted, is_current)]
    final = {name for name in folder.folders if not is_temporary_step(name) and name not in _OWN_FOLDERS}
    temporary = {name.split(TEMPORARY_MARK)[0] for name in final if TEMPORARY_MARK in name}
    names = final | (handlers.keys() - temporary)
    return [Item(folder, f"{name}/", handlers.get(name, ""), unlisted, is_current) for name in sorted(names)]


def _compare_step(draft: Draft, item: Item, inside: int | None) -> None:
    """The folder's name is what Orbax restores by; a counter inside may count something else, or be one ahead."""
    if inside is None:
        return
    if draft.step is None:
        draft.step = inside
    elif abs(inside - draft.step) > 1:
        detail = f"the name says step {draft.step}, and {item.title} holds step {inside}"
        path = f"{item.at}{_JSON_NAME}" if item.has(_JSON_NAME) else item.at or "."
        draft.findings.append(finding("step_mismatch", path=path, detail=detail, severity=Severity.NOTE))
