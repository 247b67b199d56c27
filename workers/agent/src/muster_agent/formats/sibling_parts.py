"""A step that lacks a folder which every other step of its run has: one of several writers did not save its part. Pure.

Only of steps that are made of such folders, so that nothing else would tell. A folder that came into use later, that
was given another name, or that holds by-products of some steps is no alarm.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import msgspec

from muster_agent.decide.model import Pointer
from muster_agent.formats.base import Role, Severity, ShardMap, Status
from muster_agent.formats.codes import finding
from muster_agent.formats.names import is_temporary, names_a_step, step_of_name
from muster_agent.formats.verdict import AgeLimit

_BY_PRODUCTS = re.compile(
    r"(?:eval|valid|test|sample|generat|log|run|tensorboard|wandb|metric|image|media|plot|debug|profil|trace|export|hf"
    r"|huggingface|hf_model|merged|result|report|code|config)s?(?:[-_].*|ation.*|uation.*|ions?|ed|er|ing)?",
    re.ASCII,
)
"""Names of folders that a job leaves in some of its steps, and that no restart reads."""

_BESIDE = frozenset({Role.OTHER, Role.METADATA})


def parts_of(one: ShardMap) -> frozenset[str]:
    """Sub-folders with shards, numbers aside, since some hold the step or a rank."""
    heads = {path.split("/", 1)[0] for path in [shard.path for shard in one.shards] if "/" in path}
    return frozenset(map(without_numbers, heads))


@lru_cache(maxsize=65_536)
def without_numbers(name: str) -> str:
    """The name with `N` for each number in it. The same names come back in every step of a run."""
    return re.sub(r"\d+", "N", name)


def is_made_of_parts(one: ShardMap) -> bool:
    """Whether all its state lies in sub-folders."""
    has_state = False
    for shard in one.shards:
        if shard.role not in _BESIDE:
            if "/" not in shard.path:
                return False
            has_state = True
    return has_state


def without_parts(shard_maps: Iterable[ShardMap], age_limit: AgeLimit) -> list[ShardMap]:
    """The same checkpoints in the same order; one that lacks a part is incomplete, or, while young, in progress."""
    listed = list(shard_maps)
    groups: dict[tuple[str, str], list[ShardMap]] = defaultdict(list)
    for one in listed:
        if one.status is Status.COMPLETE and _is_step(one) and is_made_of_parts(one):
            groups[os.path.dirname(one.path), one.format].append(one)
    lacking: dict[str, list[str]] = {}
    for group in groups.values():
        how_many = Counter(part for one in group for part in parts_of(one))
        first = min(map(_number, group))
        for one in group:
            if _number(one) != first and (gone := _gone(one, how_many, len(group))):
                lacking[one.path] = gone
    return [_lesser(one, lacking[one.path], age_limit) if one.path in lacking else one for one in listed]


def _is_step(one: ShardMap) -> bool:
    name = os.path.basename(one.path)
    return one.step is not None and names_a_step(name) and not is_temporary(name)


def _number(one: ShardMap) -> int:
    """The step by its name: what is inside a part may count otherwise."""
    named = step_of_name(os.path.basename(one.path))
    return (one.step or 0) if named is None else named


def _gone(one: ShardMap, how_many: Counter[str], steps: int) -> list[str]:
    """What all others have, where nothing that only this one has may stand in for it."""
    mine = parts_of(one)
    if any(how_many[part] == 1 for part in mine):
        return []
    gone = (part for part, count in how_many.items() if count == steps - 1 and part not in mine)
    return sorted(part for part in gone if not _BY_PRODUCTS.fullmatch(part.lower()))


def _lesser(one: ShardMap, gone: Sequence[str], age_limit: AgeLimit) -> ShardMap:
    detail = "every other step of this run has the folder {name}, and this one has not"
    recent = age_limit.is_recent(one.newest_mtime_ns)
    severity = Severity.NOTE if recent else None
    found = [finding("shard_missing", path=name, detail=detail.format(name=name), severity=severity) for name in gone]
    reason = f"it lacks {', '.join(gone)}, which every other step of its run has"
    return msgspec.structs.replace(
        one,
        status=Status.IN_PROGRESS if recent else Status.INCOMPLETE,
        resumable=False,
        not_resumable_reasons=(*one.not_resumable_reasons, reason),
        findings=(*one.findings, *found),
    )


LEAST_OLDER = 3


def lost_lately(have: Sequence[frozenset[str]]) -> tuple[int, list[str]]:
    """What every older step has and none of the newest: the number of older steps, and the names. `have` are the names
    in each step, oldest first. Two steps or more must lack them, but not more than have them, and nothing that only
    those have may stand in for them: a change made on purpose soon is the rule, and no alarm."""
    for older in range(len(have) - 2, max(LEAST_OLDER, -(-len(have) // 2)) - 1, -1):
        before, after = have[:older], have[older:]
        if frozenset.intersection(*after) - frozenset.union(*before):
            continue
        gone = frozenset.intersection(*before) - frozenset.union(*after)
        names = sorted(name for name in gone if not _BY_PRODUCTS.fullmatch(name.lower()))
        if names:
            return older, names
    return 0, []


Enough = Callable[[ShardMap, Sequence[Pointer]], bool]


def with_a_second(enough: Enough) -> Enough:
    """As `enough`, but a step made of parts settles nothing before another of its folder was seen to compare it to."""
    seen: set[str] = set()

    def both(found: ShardMap, pointers: Sequence[Pointer]) -> bool:
        folder = os.path.dirname(found.path)
        is_enough = enough(found, pointers)
        if not is_enough or not is_made_of_parts(found) or folder in seen:
            return is_enough
        seen.add(folder)
        return False

    return both
