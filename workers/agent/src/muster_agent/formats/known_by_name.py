"""Checkpoints that are known by name only: a link leads to another disk, or may not be followed, or not be looked at.

They are listed as unreadable. Left out, the newest step of a run could be missing without a word, and a run whose steps
are all links would look as if it had never saved.
"""

from __future__ import annotations

import os
from functools import partial

from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.checkpoint import could_not_look
from muster_agent.formats.child import Children
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import step_of_file, step_of_name
from muster_agent.formats.pointers import is_pointer
from muster_agent.formats.scan_reading import Task
from muster_agent.formats.verdict import AgeLimit

_FILE_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".tar", ".pkl", ".nemo")


def unread_tasks(folder: Folder) -> dict[str, Task]:
    """By their names in `folder`, the checkpoints that could not be looked at."""
    found = {one.path: one for one in folder.findings if one.path in folder.blocked}
    names = (name for name in sorted(folder.blocked) if name in found and not is_pointer(folder, name))
    return {name: _task(folder, name, found[name]) for name in names if _step(name) is not None}


def _step(name: str) -> int | None:
    step = step_of_name(name)
    return step_of_file(name) if step is None and name.endswith(_FILE_SUFFIXES) else step


def _task(folder: Folder, name: str, found: Finding) -> Task:
    path = os.path.join(folder.path, name)
    return Task(path, folder.path, _step(name), lambda: folder, partial(_read, path, found), folder)


def _read(path: str, found: Finding, _folder: Folder, age_limit: AgeLimit, _children: Children) -> ShardMap:
    return could_not_look(path, found, age_limit)
