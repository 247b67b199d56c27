"""State in a checkpoint's sub-folders that no reader looked at. What was not looked at is never called complete."""

from __future__ import annotations

import os
from collections.abc import Iterator

from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import is_set_aside, is_temporary, step_of_name

_FREE_FORMATS = frozenset({"torch_save", "safetensors", "parts"})
"""Formats without a rule of what else belongs to a checkpoint."""
_STATE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".distcp", ".pkl")
_MAX_DEPTH = 4
_MAX_FOLDERS = 64


def take_unread(draft: Draft, folder: Folder) -> None:
    """Say that nothing can be concluded where files that no reader looked at, in sub-folders of a step's folder, hold
    more bytes than those that one did."""
    if draft.format not in _FREE_FORMATS or not folder.folders or step_of_name(os.path.basename(folder.path)) is None:
        return
    if any(name.endswith(".safetensors.index.json") for name in folder.files):
        return  # an index says what belongs to it; writers leave the ranks' own files, from which it was made, below
    if draft.committed is False:
        return  # it is not called complete anyway, and what is wrong with it must not be hidden by this
    known = {shard.path for shard in draft.shards}
    unread = [(path, size) for path, size in _state_files(folder, "", _MAX_DEPTH) if path not in known]
    unread_bytes, read_bytes = sum(size for _, size in unread), sum(shard.size_bytes or 0 for shard in draft.shards)
    if unread_bytes <= read_bytes:
        return
    draft.undecided = draft.undecided or (
        f"{len(unread)} files in its sub-folders, such as {unread[0][0]}, were not understood, and hold {unread_bytes} "
        f"bytes; what was read holds {read_bytes}"
    )
    draft.findings.append(finding("format_unknown", path=unread[0][0], detail=draft.undecided))


def _state_files(folder: Folder, under: str, depth: int) -> Iterator[tuple[str, int]]:
    for name in folder.folders[:_MAX_FOLDERS] if depth else ():
        if name in folder.links or is_temporary(name) or is_set_aside(name) or (not under and step_of_name(name)):
            continue
        inside = folder.sub(name)
        for file, seen in inside.files.items():
            if file.endswith(_STATE_SUFFIXES):
                yield f"{under}{name}/{file}", seen.size_bytes
        yield from _state_files(inside, f"{under}{name}/", depth - 1)
