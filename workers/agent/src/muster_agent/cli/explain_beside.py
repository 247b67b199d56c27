"""What the other steps of its folder say of one checkpoint, where looking at them is cheap."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from muster_agent.formats import siblings
from muster_agent.formats.base import ShardMap
from muster_agent.formats.checkpoint import GRACE_SECONDS
from muster_agent.formats.folder import POSIX
from muster_agent.formats.names import names_a_step
from muster_agent.formats.rules import Rule, rules_at
from muster_agent.formats.sibling_parts import without_parts
from muster_agent.formats.verdict import AgeLimit
from muster_agent.formats.walk import RootUnreadable, inventory

MOST_STEPS = 32
"""A folder of more is left to `muster inventory`."""
_MOST_NAMES = 4096


def rules_beside(place: str) -> tuple[Rule, ...]:
    """The path rules of the folder that holds the checkpoint at `place`."""
    return rules_at(POSIX, os.path.dirname(place))[0]


def compared(own: ShardMap) -> tuple[ShardMap, str]:
    """The checkpoint with what the steps beside it say of it, and a sentence that tells what was compared."""
    parent = os.path.dirname(own.path)
    names = _steps_in(parent) if os.path.isdir(own.path) else None
    if names is None or len(names) > MOST_STEPS:
        hint = f"`muster inventory {parent}` compares it with the steps beside it"
        return own, f"Only this checkpoint was looked at; {hint}."
    others = [one for name in names for one in _read(os.path.join(parent, name)) if one.path != own.path]
    if not others:
        return own, "There is no other step in its folder to compare it with."
    judged = siblings.compare(without_parts([own, *others], AgeLimit(time.time(), GRACE_SECONDS)))
    return judged[0], f"Compared with the {len(others)} other steps in {parent}."


def _steps_in(folder: str) -> list[str] | None:
    """Names of the sub-folders that are named like steps; None where there are too many names to look through."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries):
                if count >= _MOST_NAMES:
                    return None
                if names_a_step(entry.name) and entry.is_dir(follow_symlinks=False):
                    found.append(entry.name)
    except OSError:
        return None
    return found


def _read(place: str) -> Iterator[ShardMap]:
    """The checkpoint at `place`; none where the folder only holds others."""
    try:
        found = inventory(place, rules=rules_beside(place)).checkpoints
    except RootUnreadable:
        return
    yield from (one for one in found if one.path == place)
