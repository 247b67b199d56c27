"""Two histories of training in one folder: the step goes back while time goes on. Pure.

A second run into the same folder, or one that went on from an older step, leaves checkpoints that are newer by number
and older by the storage's clock. To resume from those would continue another training, so the decision never does it
unasked. Times that only show how files were copied are no history: copies follow each other without a pause. Neither
is a copy under a name that is no step.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from muster_agent.decide.model import Candidate
from muster_agent.formats.names import names_a_step
from muster_agent.formats.times import duration

PAUSE_SECONDS = 60.0
SLOW_COPY_BYTES_PER_SECOND = 100e6
"""A pause shorter than copying the bytes at this rate takes may be the copying itself."""


class SavePoint(NamedTuple):
    """One checkpoint's place in time: seconds that only need to be comparable with each other."""

    path: str
    step: int
    saved_seconds: float
    total_bytes: int


def lineages(points: Sequence[SavePoint]) -> list[list[SavePoint]]:
    """The histories among the checkpoints of one folder and one format, oldest first, each in order of time; one where
    the steps only ever rise."""
    found: list[list[SavePoint]] = []
    for point in sorted(points, key=lambda one: (one.saved_seconds, one.step)):
        if not found or _begins_another(found[-1], point):
            found.append([])
        found[-1].append(point)
    return found


def _begins_another(history: Sequence[SavePoint], point: SavePoint) -> bool:
    newest = history[-1]
    pause_seconds = point.saved_seconds - newest.saved_seconds
    could_be_copying = PAUSE_SECONDS + point.total_bytes / SLOW_COPY_BYTES_PER_SECOND
    return point.step < max(one.step for one in history) and pause_seconds > could_be_copying


def reasons_by_lineage(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Why checkpoints of older histories are not chosen, by path. Steps that the current one has reached again count
    too: they were not saved by it."""
    reasons: dict[str, str] = {}
    groups: dict[tuple[str, str], list[SavePoint]] = defaultdict(list)
    for one in candidates:
        age_seconds = one.age_seconds if one.files_age_seconds is None else one.files_age_seconds
        if one.step is not None and age_seconds is not None and names_a_step(os.path.basename(one.path)):
            point = SavePoint(one.path, one.step, -age_seconds, one.total_bytes)
            groups[os.path.dirname(one.path), one.format].append(point)
    for points in groups.values():
        *older, current = lineages(points)
        for history in older:
            reasons.update(_reasons(history, current))
    return reasons


def _reasons(history: Sequence[SavePoint], current: Sequence[SavePoint]) -> dict[str, str]:
    """An older history's steps below all of the current one may be where that one began, so they stay candidates."""
    first = current[0]
    return {
        point.path: f"it belongs to an older history of training: step {first.step} was saved "
        f"{duration(first.saved_seconds - point.saved_seconds)} after it; --step {point.step} chooses it all the same"
        for point in history
        if point.step >= first.step
    }
