"""Checkpoints whose parts are folders: what a part's own reader says, taken into the whole."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from muster_agent.formats.base import Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import is_temporary

MAX_DEPTH = 4
"""Levels of folders that are listed without being understood."""


def read_nested(
    draft: Draft, folder: Folder, name: str, read: Callable[[Folder, bool], Draft], *, with_tensors: bool
) -> Draft:
    """Read the sub-folder `name` of `folder` and take its shards, tensors, roles and findings into `draft`. What it
    says of commit, step and layout is in the draft returned, for the caller to weigh."""
    inside = folder.sub(name)
    inner = read(inside, with_tensors)
    take_folder_findings(inner, inside)
    nest(draft, inner, name)
    return inner


def list_nested(draft: Draft, folder: Folder, name: str, *, depth: int = MAX_DEPTH) -> None:
    """Take the files under the sub-folder `name` into `draft` as they lie: part of the checkpoint, not inspected."""
    inside = folder.sub(name)
    for file, seen in sorted(inside.files.items()):
        if not is_temporary(file):
            entry = ShardEntry(
                path=f"{name}/{file}", size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.OTHER
            )
            draft.shards.append(entry)
    deeper = Draft(draft.format)
    for one in inside.folders if depth > 0 else ():
        if one not in inside.links:
            list_nested(deeper, inside, one, depth=depth - 1)
    nest(draft, deeper, name)


def take_folder_findings(draft: Draft, folder: Folder) -> None:
    """Trouble with a file that belongs to the checkpoint, or a folder of such files, counts; with any other it is worth
    knowing only."""
    promised = {shard.path for shard in draft.shards} if folder.findings else set()
    promised |= {path.partition("/")[0] for path in promised}
    for found in folder.findings:
        matters = found.path in promised or not draft.shards or found.path.endswith((".metadata", ".json"))
        draft.findings.append(found if matters else msgspec.structs.replace(found, severity=Severity.NOTE))
    for name in sorted(filter(is_temporary, folder.files)):
        if name != ".metadata.tmp":
            detail = f"{name} ({folder.files[name].size_bytes} bytes) was never given its final name"
            draft.findings.append(finding("temporary_left", path=name, detail=detail))
