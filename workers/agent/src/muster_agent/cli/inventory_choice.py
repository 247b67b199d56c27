"""Which of the listed checkpoints are asked for, and which of them a finding about their folder belongs to. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.names import folder_of


class Only(StrEnum):
    BROKEN = "broken"
    RESUMABLE = "resumable"


def is_broken(shard_map: ShardMap) -> bool:
    """Whether damage was seen. What could not be looked at, or whose save may still be running, is not broken."""
    if shard_map.status in (Status.CORRUPT, Status.INCOMPLETE):
        return True
    return any(found.severity is Severity.DAMAGE for found in shard_map.findings)


def chosen(checkpoints: Sequence[ShardMap], only: Only | None) -> tuple[ShardMap, ...]:
    """Those that are asked for, in the same order."""
    if only is Only.BROKEN:
        return tuple(filter(is_broken, checkpoints))
    return tuple(one for one in checkpoints if only is None or one.resumable)


def with_folder_findings(checkpoints: Sequence[ShardMap], findings: Sequence[Finding]) -> tuple[ShardMap, ...]:
    """The same checkpoints; what is about a folder or a pointer in it is added, by its absolute path, to the newest one
    of that folder, or else of the nearest folder above or below it."""
    added: dict[str, list[Finding]] = {}
    for found in findings:
        owner = _owner(checkpoints, found.path)
        if owner is not None:
            added.setdefault(owner.path, []).append(found)
    return tuple(
        msgspec.structs.replace(one, findings=(*one.findings, *added[one.path])) if one.path in added else one
        for one in checkpoints
    )


def _owner(checkpoints: Sequence[ShardMap], place: str) -> ShardMap | None:
    return min(checkpoints, key=lambda one: (_distance(folder_of(one.path), place), -(one.step or 0)), default=None)


def _distance(folder: str, place: str) -> tuple[int, int]:
    """How far the folder is from the one that the place lies in: a folder above or below before any other."""
    own, other = folder.split("/"), os.path.dirname(place).split("/")
    shared = len(os.path.commonprefix([own, other]))
    up, down = len(other) - shared, len(own) - shared
    return (1 if up and down else 0), up + down
