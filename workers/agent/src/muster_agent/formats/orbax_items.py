"""One item of an Orbax step: a tree of arrays (OCDBT or zarr folders), a JSON document, or another handler's files."""

from __future__ import annotations

import re
from typing import NamedTuple

from muster_agent.formats.base import Finding, Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, first_role
from muster_agent.formats.folder import Folder
from muster_agent.formats.ocdbt import MANIFEST_NAME, Database, read_database
from muster_agent.formats.orbax_arrays import Arrays, ArraySeen
from muster_agent.formats.orbax_names import COMMIT_NAME, TREE_NAME
from muster_agent.formats.orbax_tree import Tree, parse_tree, role_of_param
from muster_agent.formats.orbax_zarr import ZarrItem
from muster_agent.formats.safetensors import read_json

_PROCESS_TREE = re.compile(r"ocdbt\.process_(\d{1,9})/", re.ASCII)
_PROCESS_FILE = re.compile(r"array_metadatas/process_(\d{1,9})", re.ASCII)
_GRAIN_FILE = re.compile(r"process_(\d{1,9})-of-(\d{1,9})\.json", re.ASCII)
_JSON_NAME = "metadata"
_OLD_TREE_NAME = "checkpoint"
_SHARDING_NAME = "_sharding"
_MAX_LISTED = 50
SIDE_TREE_NODES = 2_000
"""Nodes of the processes' own trees that a look reads in all. The merged tree alone says what a restart needs."""


class Item(NamedTuple):
    """`at` is the item's path below the checkpoint with a `/` at its end, empty where the checkpoint is the item.
    `unlisted` are the paths of sub-folders that could not be listed."""

    folder: Folder
    at: str
    handler: str
    unlisted: frozenset[str]
    is_current: bool
    """Written by a version of Orbax that gives every tree of arrays a `_METADATA`."""

    @property
    def title(self) -> str:
        return f"item {self.at[:-1]!r}" if self.at else "the checkpoint"

    def names(self) -> list[str]:
        """The files of the item, relative to it."""
        start = len(self.at)
        return [name[start:] for name in self.folder.files if name.startswith(self.at)]

    def has(self, name: str) -> bool:
        return self.at + name in self.folder.files

    def is_hidden(self, name: str) -> bool:
        path = self.at + name
        return path in self.folder.blocked or any(path.startswith(one) for one in self.unlisted)


class ItemFacts(NamedTuple):
    """What an item adds to its checkpoint's: the processes that wrote it, and the step that its state holds."""

    processes: set[int]
    step: int | None


def read_item(draft: Draft, item: Item, with_tensors: bool) -> ItemFacts:
    """Judge one item and take what it says into the draft: its files become shards."""
    names = item.names()
    processes = {int(m.group(1)) for m in map(_PROCESS_TREE.match, names) if m}
    processes |= {int(m.group(1)) for m in map(_PROCESS_FILE.fullmatch, names) if m}
    if not names:
        if not item.unlisted:
            detail = f"{item.title} is empty or not there"
            draft.findings.append(finding("metadata_missing", path=item.at + TREE_NAME, detail=detail))
        return ItemFacts(processes, None)
    if _is_tree(item, names):
        return ItemFacts(processes, _read_tree(draft, item, names, with_tensors))
    if "json" in item.handler.lower() or set(names) - {COMMIT_NAME} == {_JSON_NAME}:
        return ItemFacts(processes, _read_json_item(draft, item))
    _read_other(draft, item, names)
    return ItemFacts(processes, None)


def _is_tree(item: Item, names: list[str]) -> bool:
    handler = item.handler.lower()
    marks = (TREE_NAME, MANIFEST_NAME, _SHARDING_NAME)
    return (
        any(word in handler for word in ("pytree", "py_tree", "standardcheckpoint"))
        or any(mark in names for mark in marks)
        or any(_PROCESS_TREE.match(name) or name.endswith("/.zarray") for name in names)
    )


# -- a tree of arrays --------------------------------------------------------------------------------------------------
def _read_tree(draft: Draft, item: Item, names: list[str], with_tensors: bool) -> int | None:
    tree = _tree(draft, item)
    _take_roles(draft, tree)
    _check_side_files(draft, item, names, tree)
    uses_ocdbt = (
        item.has(MANIFEST_NAME) or any(map(_PROCESS_TREE.match, names)) or any(name.startswith("d/") for name in names)
    )
    if tree is not None and tree.uses_ocdbt is not None:
        uses_ocdbt = tree.uses_ocdbt
    if uses_ocdbt:
        return _read_ocdbt(draft, item, tree, with_tensors)
    zarr = ZarrItem(item.folder, item.at, item.unlisted, stores_all=tree is not None and tree.stores_all)
    zarr.read(draft, with_tensors)
    _check_arrays(draft, item, tree, zarr.found, in_folders=True)
    return zarr.integer("step")


def _take_roles(draft: Draft, tree: Tree | None) -> None:
    if tree is None:
        draft.roles = None
    elif draft.roles is not None:
        draft.roles |= {role_of_param(name) for name in tree.names}


def _tree(draft: Draft, item: Item) -> Tree | None:
    path = item.at + TREE_NAME
    if not item.has(TREE_NAME):
        if item.is_current and not item.is_hidden(TREE_NAME):
            detail = f"{item.title} has no {TREE_NAME}, which says what its tree of values is"
            draft.findings.append(finding("metadata_missing", path=path, detail=detail))
        return None
    document, problem = read_json(item.folder, path)
    if problem is None:
        try:
            return parse_tree(document)
        except ValueError as error:
            problem = finding("metadata_unreadable", path=path, detail=f"{path} cannot be used: {error}")
    draft.findings.append(problem)
    return None


def _read_ocdbt(draft: Draft, item: Item, tree: Tree | None, with_tensors: bool) -> int | None:
    database = Database(item.folder, item.at, item.unlisted)
    arrays = Arrays(database, with_tensors)
    read_database(database, arrays.take)
    draft.findings.extend(database.findings)
    draft.undecided = draft.undecided or database.too_large
    if not database.findings and not database.is_partly_hidden:
        draft.findings.extend(arrays.head_findings(item.folder))
        _check_arrays(draft, item, tree, arrays.found, in_folders=False)
    _check_process_trees(draft, item, database)
    if with_tensors:
        draft.tensors.extend(arrays.typed_tensors())
    for name, end in database.needed.items():
        roles = {role_of_param(param) for param in arrays.roles_in(name)}
        _add_shard(draft, item, name, first_role(roles, default=Role.METADATA), end)
    return arrays.integer("step") if not database.findings and not database.is_partly_hidden else None


def _add_shard(draft: Draft, item: Item, name: str, role: Role, promised: int | None) -> None:
    seen = item.folder.files.get(name)
    match = _PROCESS_TREE.search(name)
    draft.shards.append(
        ShardEntry(
            path=name,
            size_bytes=seen.size_bytes if seen else None,
            promised_bytes=promised if seen is None or seen.size_bytes < (promised or 0) else None,
            rank=int(match.group(1)) if match else None,
            role=role,
            mtime_ns=seen.mtime_ns if seen else None,
        )
    )


def _check_process_trees(draft: Draft, item: Item, merged: Database) -> None:
    """Each process's own tree, from which the merged one was made: no restart reads it, so damage is a warning."""
    starts = sorted({match.group() for match in map(_PROCESS_TREE.match, item.names()) if match})
    known = {(found.code, found.path) for found in merged.findings}
    left = SIDE_TREE_NODES
    for start in starts:
        if left <= 0:
            return
        side = Database(item.folder, item.at + start, item.unlisted, severity=Severity.WARNING)
        read_database(side, lambda _ref, _entry: None, every_version=True)
        left -= side.nodes + 1
        for found in side.findings:
            if (found.code, found.path) not in known:
                known.add((found.code, found.path))
                draft.findings.append(_of_side_tree(found))


def _of_side_tree(found: Finding) -> Finding:
    cure = "Loading reads the merged tree and does not need it; look at the storage before the next save."
    detail = f"{found.detail} (one process's own tree; loading does not use it)"
    return finding(
        found.code,
        path=found.path,
        detail=detail,
        cure=cure,
        severity=found.severity,
        begin_byte=found.begin_byte,
        end_byte=found.end_byte,
    )


def _check_arrays(
    draft: Draft, item: Item, tree: Tree | None, found: dict[str, ArraySeen], *, in_folders: bool
) -> None:
    """Every array of the tree is there with all its chunks. Those in folders of their own are told of by their files,
    and there each missing chunk has been told of already."""
    problems = []
    lost = sorted(tree.arrays - found.keys()) if tree is not None and len(found) < len(tree.arrays) else []
    for name in lost[:_MAX_LISTED]:
        code = "metadata_missing" if in_folders else "ranges_gap"
        problems.append((code, name, f"the array {name!r} is in {TREE_NAME}, and its description is not there"))
    for name, array in found.items():
        if array.problem is not None:
            problems.append(("metadata_unreadable", name, f"the array {name!r}: {array.problem}"))
        elif array.grid is None:
            problems.append(("metadata_missing", name, f"the array {name!r} has chunks, but no description"))
        elif not in_folders and tree is not None and tree.stores_all and array.chunks < array.grid.chunk_count:
            detail = f"the array {name!r} has {array.chunks} of {array.grid.chunk_count} chunks"
            problems.append(("ranges_gap", name, detail))
    for code, name, detail in problems[:_MAX_LISTED]:
        path = f"{item.at}{name}/.zarray" if in_folders else item.at + TREE_NAME
        if path not in item.folder.blocked and not item.is_hidden(f"{name}/"):
            draft.findings.append(finding(code, path=path, detail=detail, tensor=name))


# -- files beside the arrays -------------------------------------------------------------------------------------------
def _check_side_files(draft: Draft, item: Item, names: list[str], tree: Tree | None) -> None:
    """JSON that a restart can do without, but that was written whole."""
    for name in names:
        if name == _SHARDING_NAME or _PROCESS_FILE.fullmatch(name):
            document, problem = read_json(item.folder, item.at + name)
            if (
                problem is None
                and isinstance(document, dict)
                and ("array_metadatas" in document) is (name == _SHARDING_NAME)
            ):
                detail = f"{item.at + name} holds another file's content"
                problem = finding("metadata_unreadable", path=item.at + name, detail=detail)
            if problem is not None:
                draft.findings.append(_as_warning(problem))
    described = {int(m.group(1)) for m in map(_PROCESS_FILE.fullmatch, names) if m}
    if tree is None or not (described or tree.describes_arrays):
        return
    wrote = {int(m.group(1)) for m in map(_PROCESS_TREE.match, names) if m}
    expected = wrote | set(range(min(max(described, default=0), 100_000))) | {0}
    for process in sorted(expected - described)[:_MAX_LISTED]:
        if item.is_hidden(f"array_metadatas/process_{process}"):
            continue
        path = f"{item.at}array_metadatas/process_{process}"
        detail = f"process {process} left no description of its arrays, as the others did"
        draft.findings.append(finding("shard_missing", path=path, detail=detail, severity=Severity.WARNING))
    if tree.arrays and not item.has(_SHARDING_NAME) and not item.is_hidden(_SHARDING_NAME):
        detail = "there is no record of how the arrays were spread over devices: loading needs to be told"
        path = item.at + _SHARDING_NAME
        draft.findings.append(finding("shard_missing", path=path, detail=detail, severity=Severity.NOTE))


def _as_warning(problem: Finding) -> Finding:
    return finding(problem.code, path=problem.path, detail=problem.detail, severity=Severity.WARNING)


# -- other items -------------------------------------------------------------------------------------------------------
def _read_json_item(draft: Draft, item: Item) -> int | None:
    path = item.at + _JSON_NAME
    if not item.has(_JSON_NAME):
        if not item.is_hidden(_JSON_NAME):
            detail = f"{item.title} is a JSON document, and its file is not there"
            draft.findings.append(finding("metadata_missing", path=path, detail=detail))
        return None
    document, problem = read_json(item.folder, path)
    if problem is not None:
        draft.findings.append(problem)
        return None
    if not isinstance(document, dict):
        return None
    if draft.roles is not None:
        roles = {role_of_param(name) for name in document}
        draft.roles |= roles - {Role.MODEL, Role.OPTIMIZER}
    step = document.get("step")
    return step if type(step) is int and step >= 0 else None


def _read_other(draft: Draft, item: Item, names: list[str]) -> None:
    """Items of handlers that are not known: an input pipeline's state of each process has its number in its name."""
    if draft.roles is not None:
        role = role_of_param(item.at[:-1])
        is_input = item.at == "iter/" or any(map(_GRAIN_FILE.fullmatch, names))
        draft.roles |= {Role.DATALOADER} if is_input else {role} - {Role.MODEL}
    numbers: dict[int, set[int]] = {}
    for match in filter(None, map(_GRAIN_FILE.fullmatch, names)):
        numbers.setdefault(int(match.group(2)), set()).add(int(match.group(1)))
        _, problem = read_json(item.folder, item.at + match.group())
        draft.findings.extend([problem] if problem else [])
    for count, have in sorted(numbers.items()):
        for number in sorted(set(range(min(count, 100_000))) - have)[:_MAX_LISTED]:
            path = f"{item.at}process_{number}-of-{count}.json"
            detail = f"process {number} of {count} left no state of its input pipeline"
            draft.findings.append(finding("shard_missing", path=path, detail=detail))
