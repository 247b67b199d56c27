"""What only shows when the checkpoints of one folder are held against each other. Pure.

Everything here is a warning: each checkpoint may be whole by itself, and still not be the one to go on from.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from muster_agent.decide.lineage import SavePoint, lineages
from muster_agent.formats.base import Finding, Role, Severity, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.names import is_temporary, is_word_for_last, names_a_step, step_of_name
from muster_agent.formats.sibling_parts import lost_lately, parts_of, without_numbers
from muster_agent.formats.times import duration
from muster_agent.formats.verdict import LEAST_GRACE_SECONDS, grace_seconds_for

SHRUNK_RATIO = 0.95
SHRUNK_RATIO_COMPRESSED = 0.8
"""How small a checkpoint may be against the steps around it; formats that compress vary with the values."""
_COMPRESSING = frozenset({"orbax", "t5x", "megatron_zarr"})
_STATE = frozenset({Role.MODEL, Role.OPTIMIZER, Role.RNG, Role.DATALOADER})
_KINDS = _STATE | {Role.SCHEDULER}
_SIZED = frozenset({Role.MODEL, Role.OPTIMIZER, Role.OTHER})
GENERATION_GAP_SECONDS = 3600.0
_CONVERTED = re.compile(
    r"(.+)[-_.](?:universal|unsharded|hf|huggingface|merged|consolidated|converted|export(?:ed)?|fp32|fp16|bf16|ema|last)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_KEPT = re.compile(r"(?:^|[-_.])(?:best|final)(?:[-_.]|$)", re.ASCII | re.IGNORECASE)
"""What is kept under such a word is a copy of a step, or its last one, on purpose."""
_LONGEST_SAVE_SECONDS = 6 * 3600.0
_SHOWN = 3


def compare(shard_maps: Iterable[ShardMap]) -> list[ShardMap]:
    """The same checkpoints, each with what its neighbours say of it, in the same order."""
    listed = list(shard_maps)
    folders: dict[str, list[ShardMap]] = defaultdict(list)
    for one in listed:
        folders[os.path.dirname(one.path)].append(one)
    found: dict[str, list[Finding]] = defaultdict(list)
    for beside in folders.values():
        for rule in _RULES:
            for path, each in rule(beside):
                found[path].append(each)
    return [
        msgspec.structs.replace(one, findings=(*one.findings, *found[one.path])) if one.path in found else one
        for one in listed
    ]


def unique_bytes(shard_maps: Iterable[ShardMap]) -> int:
    """Bytes on the storage: a file with several names (hard links, or links to one place) counts once."""
    seen: set[str] = set()
    total_bytes = 0
    for one in shard_maps:
        for shard in one.shards:
            if shard.shared_file is None or shard.shared_file not in seen:
                total_bytes += shard.size_bytes or 0
            if shard.shared_file is not None:
                seen.add(shard.shared_file)
    return total_bytes


def grace_seconds_by_folder(shard_maps: Iterable[ShardMap]) -> dict[str, float]:
    """For folders whose saves take so long that one may still be running after the usual grace period."""
    taken: dict[str, list[float]] = defaultdict(list)
    for one in shard_maps:
        times = [shard.mtime_ns for shard in one.shards if shard.mtime_ns is not None and shard.shared_file is None]
        if one.status is Status.COMPLETE and times:
            seconds = (max(times) - min(times)) / 1e9
            taken[os.path.dirname(one.path)].extend([seconds] if seconds < _LONGEST_SAVE_SECONDS else [])
    graces = {folder: grace_seconds_for(seconds) for folder, seconds in taken.items()}
    return {folder: seconds for folder, seconds in graces.items() if seconds > LEAST_GRACE_SECONDS}


Kind = tuple[Role, str]
Found = Iterator[tuple[str, Finding]]


# -- two checkpoints of one step ---------------------------------------------------------------------------------------
def _duplicates(beside: Sequence[ShardMap]) -> Found:
    """Of one format: a conversion of a step lies beside it on purpose, and so does the best or the final one. What a
    save left unfinished is no step yet."""
    steps: dict[tuple[str, int], list[ShardMap]] = defaultdict(list)
    names = {os.path.basename(one.path) for one in beside}
    for one in beside:
        name = os.path.basename(one.path)
        is_meant = is_word_for_last(name) or _KEPT.search(name) is not None or _is_conversion(name, names)
        if one.step is not None and not (is_temporary(name) or is_meant):
            steps[one.format, one.step].append(one)
    for (_, step), same in steps.items():
        for one in same:
            others = sorted(os.path.basename(other.path) for other in same if other is not one)
            if others:
                claims = "claims" if len(others) == 1 else "claim"
                detail = f"{_some(others)} in the same folder {claims} step {step} too{_how_alike(one, same)}"
                yield one.path, finding("duplicate_step", path=one.path, detail=detail)


def _is_conversion(name: str, names: Collection[str]) -> bool:
    stem, dot, ending = name.rpartition(".") if name.endswith(".ckpt") else (name, "", "")
    match = _CONVERTED.fullmatch(stem)
    return match is not None and f"{match[1]}{dot}{ending}" in names


def _how_alike(one: ShardMap, same: Sequence[ShardMap]) -> str:
    others = [other for other in same if other is not one]
    mine = {shard.shared_file for shard in one.shards if shard.shared_file}
    if mine and any(mine == {shard.shared_file for shard in other.shards if shard.shared_file} for other in others):
        return ": the same files under two names (hard links), stored once"
    if all(step_of_name(os.path.basename(other.path)) == one.step for other in others) and len(others) == 1:
        named = step_of_name(os.path.basename(one.path))
        return ": the names differ only in how the step is written" if named == one.step else ""
    return ""


# -- two histories -----------------------------------------------------------------------------------------------------
def _second_lineages(beside: Sequence[ShardMap]) -> Found:
    groups: dict[str, list[SavePoint]] = defaultdict(list)
    for one in beside:
        middle_ns = one.middle_mtime_ns
        if one.step is not None and middle_ns is not None and names_a_step(os.path.basename(one.path)):
            groups[one.format].append(SavePoint(one.path, one.step, middle_ns / 1e9, one.total_bytes))
    for points in groups.values():
        found = lineages(points)
        *older, current = found.certain
        for history in older:
            yield from _told_apart(history, current)
        yield from _doubted(found.doubtful, current)


def _told_apart(history: Sequence[SavePoint], current: Sequence[SavePoint]) -> Found:
    first = current[0]
    stale = [point for point in history if point.step >= first.step]
    for point in stale:
        detail = (
            f"step {first.step} was saved {duration(first.saved_seconds - point.saved_seconds)} after step {point.step}"
            ": the step went back while time went on, so this one belongs to an older history of training"
        )
        yield point.path, finding("second_lineage", path=point.path, detail=detail)
    if stale:
        steps = _some([str(point.step) for point in stale])
        detail = f"this is the history saved last; beside it lie steps of an older one: {steps}"
        yield first.path, finding("second_lineage", path=first.path, detail=detail)


def _doubted(doubtful: Sequence[SavePoint], current: Sequence[SavePoint]) -> Found:
    """Said of the higher steps, which stay the ones to go on from, and of the lower ones."""
    higher = [point for point in current if any(other.step < point.step for other in doubtful)]
    for point in higher:
        steps = _some([str(other.step) for other in doubtful if other.step < point.step])
        yield point.path, finding("second_lineage", path=point.path, detail=f"saved before {steps}: {_UNDECIDED}")
    for point in doubtful if higher else ():
        yield point.path, finding("second_lineage", path=point.path, detail=f"saved after higher steps: {_UNDECIDED}")


_UNDECIDED = (
    "that may be a copy, a step put back, or a second training that began lower; the highest step counts, "
    "and --step chooses another"
)


# -- a step that holds less --------------------------------------------------------------------------------------------
def _shrunk(beside: Sequence[ShardMap]) -> Found:
    groups: dict[str, list[ShardMap]] = defaultdict(list)
    names = {os.path.basename(one.path) for one in beside}
    for one in beside:
        name = os.path.basename(one.path)
        is_own_step = not is_word_for_last(name) and not _is_conversion(name, names)
        if one.resumable and one.step is not None and is_own_step:
            groups[one.format].append(one)
    for group in groups.values():
        group.sort(key=lambda one: (one.step or 0, one.path))
        kinds = [_kinds(one) for one in group]
        held = [_Held(one.step, parts_of(one), _state_bytes(one)) for one in group]
        ratio = SHRUNK_RATIO_COMPRESSED if group[0].format in _COMPRESSING else SHRUNK_RATIO
        how_many = Counter(kind for each in kinds for kind in each)
        for index, one in enumerate(group[1:], 1):
            around = held[index - 1 : index] + held[index + 1 : index + 2]
            detail = _without_kinds(kinds[index], how_many, len(group)) or _less_than(held[index], around, ratio)
            if detail:
                yield one.path, finding("state_shrank", path=one.path, detail=detail)
        yield from _lost_lately(group, kinds, held)


class _Held(NamedTuple):
    """What one step holds: worked out once, since each is compared with those around it."""

    step: int | None
    parts: frozenset[str]
    state_bytes: int


def _lost_lately(group: Sequence[ShardMap], kinds: Sequence[frozenset[Kind]], held: Sequence[_Held]) -> Found:
    """A writer that failed at every one of the newest saves: held against each other they look alike."""
    have = [one.parts | {name for _, name in own} for one, own in zip(held, kinds, strict=True)]
    older, names = lost_lately(have)
    for one in group[older:] if names else ():
        detail = f"all {older} older steps here have {_some(names)}, and the {len(group) - older} newest have not"
        yield one.path, finding("state_shrank", path=one.path, detail=detail)


def _less_than(one: _Held, around: Sequence[_Held], ratio: float) -> str | None:
    """Against the step before, and the one after where there is one: what stays small was made smaller on purpose."""
    before, mine = around[0], one.state_bytes
    gone = frozenset.intersection(*(other.parts for other in around)) - one.parts
    if gone:
        return f"step {before.step} has {_some(sorted(gone))}, and this one has not"
    if all(mine < ratio * other.state_bytes for other in around):
        return f"its state has {mine:,} bytes, and that of step {before.step} has {before.state_bytes:,}"
    return None


def _without_kinds(mine: frozenset[Kind], how_many: Counter[Kind], steps: int) -> str | None:
    """Files of a kind that every other step has, where nothing new stands in for them."""
    if any(how_many[kind] == 1 for kind in mine):
        return None
    gone = sorted(name for (role, name), count in how_many.items() if count == steps - 1 and (role, name) not in mine)
    return f"every other step here has {_some(gone)}, and this one has not" if gone else None


def _kinds(one: ShardMap) -> frozenset[Kind]:
    """Role and name of the files of state that lie in the folder itself. Numbers in it are left aside, but for formats
    where they never hold the step."""
    own_name = str if one.format in _NUMBERS_ARE_PARTS else without_numbers
    state = [shard for shard in one.shards if shard.role in _KINDS and "/" not in shard.path]
    return frozenset([(shard.role, own_name(shard.path)) for shard in state])


_NUMBERS_ARE_PARTS = frozenset({"accelerate"})
"""`random_states_1.pkl` is rank 1's, and `scheduler_1.bin` the second scheduler's."""


def _state_bytes(one: ShardMap) -> int:
    return sum([shard.size_bytes or 0 for shard in one.shards if shard.role in _SIZED])


# -- files of an earlier save in the same folder -----------------------------------------------------------------------
def _generations(beside: Sequence[ShardMap]) -> Found:
    for one in beside:
        left = _left_over(one) if one.status is Status.COMPLETE else []
        if left:
            detail = f"{_some(left)}: saved long before the other files here, so left by an earlier save"
            yield (
                one.path,
                finding(
                    "world_size_mismatch", path=one.path, detail=detail, severity=Severity.WARNING, cure=_OLD_FILES
                ),
            )


_OLD_FILES = "Check that the files belong to this save; save each step into a folder of its own."


def _left_over(one: ShardMap) -> list[str]:
    """State files behind a pause in the times that no single save has: an hour, and ten times what the rest took. Files
    with several names are kept from step to step on purpose."""
    times = [shard.mtime_ns for shard in one.shards if shard.mtime_ns]
    if not times or (max(times) - min(times)) / 1e9 <= GENERATION_GAP_SECONDS:
        return []  # as nearly always, and told by one pass
    own = [shard for shard in one.shards if shard.role in _STATE and shard.mtime_ns and shard.shared_file is None]
    times = [shard.mtime_ns or 0 for shard in own]
    if not own or (max(times) - min(times)) / 1e9 <= GENERATION_GAP_SECONDS:
        return []
    own.sort(key=lambda shard: shard.mtime_ns or 0)
    for index in range(1, len(own) // 2 + len(own) % 2):
        before, after = own[index - 1].mtime_ns or 0, own[index].mtime_ns or 0
        rest_seconds = ((own[-1].mtime_ns or 0) - after) / 1e9
        if (after - before) / 1e9 > max(GENERATION_GAP_SECONDS, 10 * rest_seconds):
            return [shard.path for shard in own[:index]]
    return []


_RULES = (_duplicates, _second_lineages, _shrunk, _generations)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
