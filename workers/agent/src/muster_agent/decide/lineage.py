"""Two histories of training in one folder: the step goes back while time goes on. Pure.

A second run into the same folder, or one that went on from an older step, leaves checkpoints that are newer by number
and older by the storage's clock. To resume from those would continue another training, so the decision never does it
unasked. Times that only show how files were copied are no history: copies follow each other without a pause, or in the
order of their names. Neither is a copy under a name that is no step, nor one old step put back. Where that cannot be
told, the highest step counts, and the doubt is said.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
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


class Lineages(NamedTuple):
    """The histories among the checkpoints of one folder and one format, oldest first, each in order of time. `doubtful`
    are steps saved after higher ones, of which nothing but the time says that they are another training's."""

    certain: list[list[SavePoint]]
    doubtful: list[SavePoint]


def lineages(points: Sequence[SavePoint]) -> Lineages:
    """Time alone is no order: a copy or a restore writes old steps anew. So another history only begins where the later
    steps rise as a training's do, and not in the order in which a copy goes through names."""
    certain: list[list[SavePoint]] = []
    doubtful: list[SavePoint] = []
    is_in_name_order = _is_in_name_order(points)
    for part in _parts(points):
        if not certain or not is_in_name_order and _is_another_training(certain[-1], part):
            certain.append(part)
        else:
            doubtful.extend(part)
    return Lineages(certain, doubtful)


def _parts(points: Sequence[SavePoint]) -> list[list[SavePoint]]:
    """In order of time, cut where the step goes back after a pause that no copying explains."""
    found: list[list[SavePoint]] = []
    for point in sorted(points, key=lambda one: (one.saved_seconds, one.step)):
        newest = found[-1][-1] if found else point
        goes_back = bool(found) and point.step < max(one.step for one in found[-1])
        if not found or (goes_back and _is_pause(newest, point)):
            found.append([])
        found[-1].append(point)
    return found


def _is_pause(before: SavePoint, after: SavePoint) -> bool:
    could_be_copying = PAUSE_SECONDS + after.total_bytes / SLOW_COPY_BYTES_PER_SECOND
    return after.saved_seconds - before.saved_seconds > could_be_copying


def _is_in_name_order(points: Sequence[SavePoint]) -> bool:
    """As `cp -r` and archives go through a folder; steps of one length lie in that order anyway."""
    by_time = sorted(points, key=lambda one: (one.saved_seconds, one.step))
    return [one.path for one in by_time] == sorted(one.path for one in points)


def _is_another_training(history: Sequence[SavePoint], part: Sequence[SavePoint]) -> bool:
    """Whether the steps of `part` below the history's highest are a training's own: several, each higher than the one
    before it and behind a pause, and no faster than the history itself went, where that is known."""
    highest = max(one.step for one in history)
    lower = [one for one in part if one.step < highest]
    rises = all(one.step < other.step and _is_pause(one, other) for one, other in pairwise(lower))
    if len(lower) < _FEWEST or not rises or not _stands_apart(history, lower):
        return False
    usual, pace = _seconds_per_step(history), _seconds_per_step(lower)
    if usual is None or pace is None:
        return len(lower) > _FEWEST
    return pace * _FASTER >= usual


def _stands_apart(history: Sequence[SavePoint], lower: Sequence[SavePoint]) -> bool:
    """Whether more time lies before the lower steps than between them: a copy, in whatever order, goes on evenly."""
    longest = max(after.saved_seconds - before.saved_seconds for before, after in pairwise(lower))
    return lower[0].saved_seconds - history[-1].saved_seconds > _APART * longest


_APART = 2.0
_FEWEST = 2
"""Steps that make a history where its pace can be held against the older one's; one more where it cannot."""
_FASTER = 4.0


def _seconds_per_step(points: Sequence[SavePoint]) -> float | None:
    first, last = points[0], points[-1]
    if last.step <= first.step:
        return None
    return (last.saved_seconds - first.saved_seconds) / (last.step - first.step)


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
        *older, current = lineages(points).certain
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
