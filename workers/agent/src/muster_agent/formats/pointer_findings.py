"""What is wrong with the framework's pointers, held against the checkpoints that lie beside them. Pure."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence

from muster_agent.decide.frameworks import ALWAYS_WRITTEN, OTHER_STATE_NAMES, AlwaysWritten, is_named, number_of
from muster_agent.decide.model import Pointer
from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.places import lies_in

_BROKEN = (Status.INCOMPLETE, Status.CORRUPT, Status.UNCOMMITTED)
_SURELY_GARBAGE = 1000
"""A pointer this many times beyond the newest step is no step that was ever saved."""


def pointer_findings(pointers: Sequence[Pointer], checkpoints: Sequence[ShardMap], root: str = "/") -> list[Finding]:
    """Pointers that name what is not there or not whole, pointers behind the newest step to resume from, and folders
    without the pointer that their framework always writes, where they lie under the absolute `root`: nobody looked at
    the others."""
    beside: dict[str, list[ShardMap]] = defaultdict(list)
    for one in checkpoints:
        beside[os.path.dirname(one.path)].append(one)
    found = [
        one
        for pointer in pointers
        if pointer.problem is None
        for one in _about(pointer, beside[os.path.dirname(pointer.path)])
    ]
    found.extend(_ranks_that_differ(pointers))
    pointed = {os.path.dirname(one.path) for one in pointers if os.path.basename(one.path) not in OTHER_STATE_NAMES}
    for folder in sorted(beside.keys() - pointed):
        if lies_in(folder, root):
            found.extend(_missing(folder, beside[folder]))
    return found


def _about(pointer: Pointer, beside: Sequence[ShardMap]) -> Iterable[Finding]:
    named = next((one for one in beside if _is_named(one, pointer)), None)
    if named is None:
        yield from _dangling(pointer, beside)
        return
    name = os.path.basename(pointer.path)
    if named.status in _BROKEN:
        detail = f"{name} names {os.path.basename(named.path)}, which is {named.status.value}"
        yield finding("pointer_dangling", path=pointer.path, detail=detail, severity=Severity.WARNING)
    elif named.status is Status.IN_PROGRESS:
        detail = f"{name} names {os.path.basename(named.path)}, whose save seems to be still running"
        yield finding("pointer_dangling", path=pointer.path, detail=detail, severity=Severity.NOTE)
    newest = max((one.step or 0 for one in beside if one.resumable), default=0)
    if name not in OTHER_STATE_NAMES and newest > (named.step or 0):
        said = f"step {named.step}" if named.step is not None else os.path.basename(named.path)
        yield finding("pointer_stale", path=pointer.path, detail=f"{name} names {said}, but step {newest} is complete")


def _is_named(one: ShardMap, pointer: Pointer) -> bool:
    if pointer.target is not None:
        return is_named(one.path, pointer.target)
    return pointer.step is not None and number_of(one.path, one.step) == pointer.step


def _dangling(pointer: Pointer, beside: Sequence[ShardMap]) -> Iterable[Finding]:
    if pointer.step is None:
        return
    name = os.path.basename(pointer.path)
    detail = f"{name} names step {pointer.step}, and no checkpoint of that step lies beside it"
    inside = [os.path.basename(one.path) for one in beside if one.step == pointer.step]
    newest = max((one.step or 0 for one in beside), default=0)
    if inside:
        detail += f" by that name, though {inside[0]} holds the state of that step"
    elif newest and pointer.step > _SURELY_GARBAGE * newest:
        detail += f"; the newest is step {newest}, so the number looks like garbage: ranks may have disagreed"
    yield finding("pointer_dangling", path=pointer.path, detail=detail)


def _ranks_that_differ(pointers: Sequence[Pointer]) -> Iterable[Finding]:
    """Each rank's own link must name the same step."""
    groups: dict[str, list[Pointer]] = defaultdict(list)
    for one in pointers:
        head, ranked, rest = one.path.rpartition("rank")
        if ranked and rest[:1].isdigit() and one.step is not None:
            groups[head].append(one)
    for group in groups.values():
        steps = sorted({one.step for one in group if one.step is not None})
        if len(steps) > 1:
            detail = f"the ranks' links name different steps: {', '.join(map(str, steps[:6]))}"
            yield finding("pointer_stale", path=group[0].path, detail=detail)


def _missing(folder: str, beside: Sequence[ShardMap]) -> Iterable[Finding]:
    for written in ALWAYS_WRITTEN:
        own = [one.step for one in beside if one.resumable and _is_by(one, written) and one.step is not None]
        if own and os.path.basename(folder) != "non_persistent":
            detail = f"{written.pointer} is not there, though step {max(own)} is complete: {written.without_it}"
            yield finding("pointer_missing", path=os.path.join(folder, written.pointer), detail=detail)
            return


def _is_by(one: ShardMap, written: AlwaysWritten) -> bool:
    return one.format in written.formats and written.folder_name.fullmatch(os.path.basename(one.path)) is not None
