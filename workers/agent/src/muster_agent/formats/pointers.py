"""The framework's own note of its latest checkpoint: a small text file, or a link named `last` or `latest`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from muster_agent.decide.model import Pointer
from muster_agent.formats.base import Finding, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import step_of_file, step_of_name

BINDING_NAMES = frozenset({"latest_checkpointed_iteration.txt", "dlrover_latest.txt"})
"""Written after all ranks finished, so a newer step beside them is not one to resume from."""
_TEXT_NAMES = BINDING_NAMES | {"latest", "last", "latest_step.txt", "latest.txt"}
_LINK_NAMES = frozenset({"latest", "last", "current", "last.ckpt", "latest.ckpt", "last.safetensors"})
_MAX_TEXT_BYTES = 4096


def is_pointer_name(name: str) -> bool:
    return name in _TEXT_NAMES or name in _LINK_NAMES


def read_pointer(folder: Folder, name: str) -> tuple[Pointer | None, Finding | None]:
    """What the pointer says; a finding where it says nothing that can be understood. Neither for a file that only has
    a pointer's name (a copy called `last.ckpt`)."""
    path = os.path.join(folder.path, name)
    if name in folder.links:
        return _read_link(path)
    if name not in _TEXT_NAMES:
        return None, None
    text, problem = _read_text(path)
    if problem is not None:
        return None, problem
    if text == "release":
        return None, None
    target = os.path.basename(text.rstrip("/"))
    step = step_of_name(target)
    if step is None and target not in folder.folders:
        detail = f"{name} says {text[:80]!r}, which is no step" if text else f"{name} is empty"
        return None, finding("pointer_unreadable", path=path, detail=detail)
    return Pointer(path=path, step=step, binding=name in BINDING_NAMES), None


def _read_link(path: str) -> tuple[Pointer | None, Finding | None]:
    target = os.path.basename(os.path.realpath(path))
    if not os.path.exists(path):
        detail = f"the link points to {os.readlink(path)!r}, which is not there"
        return None, finding("pointer_dangling", path=path, detail=detail)
    step = step_of_name(target)
    return Pointer(path=path, step=step if step is not None else step_of_file(target)), None


def _read_text(path: str) -> tuple[str, Finding | None]:
    try:
        with open(path, "rb") as stream:
            return stream.read(_MAX_TEXT_BYTES).decode("ascii").strip(), None
    except OSError as error:
        detail = f"it could not be read: {error.strerror}"
        return "", finding("pointer_unreadable", path=path, detail=detail, cure="Give this user read access to it.")
    except UnicodeDecodeError:
        return "", finding("pointer_unreadable", path=path, detail="it is not plain text")


def pointer_findings(pointers: Sequence[Pointer], checkpoints: Sequence[ShardMap]) -> list[Finding]:
    """Pointers that name what is not there, and pointers behind the newest complete step beside them."""
    found = []
    for pointer in pointers:
        beside = [item for item in checkpoints if os.path.dirname(item.path) == os.path.dirname(pointer.path)]
        steps = {item.step for item in beside}
        if pointer.step is None:
            continue
        if pointer.step not in steps:
            detail = f"it names step {pointer.step}, and no checkpoint of that step lies beside it"
            found.append(finding("pointer_dangling", path=pointer.path, detail=detail))
            continue
        newest = max((item.step or 0 for item in beside if item.status is Status.COMPLETE), default=pointer.step)
        if newest > pointer.step:
            detail = f"it names step {pointer.step}, but step {newest} is complete"
            found.append(finding("pointer_stale", path=pointer.path, detail=detail))
    return found
