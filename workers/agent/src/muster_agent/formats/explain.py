"""Which rule said what about one checkpoint, in words that a newcomer follows. Pure."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from muster_agent.formats.base import Finding, Role, Severity, ShardMap, Status
from muster_agent.formats.explain_words import words_of
from muster_agent.formats.names import counts_epochs_or_saves, step_of_file, step_of_name, step_of_unfinished
from muster_agent.formats.times import iso_time
from muster_agent.formats.verdict import COULD_NOT_LOOK, NOT_THERE

_SHOWN = 20
_IS_WORD = re.compile(r"[A-Za-z'-]+[,:]?", re.ASCII)
"""Anything else at the head of a sentence is a name from the storage."""


class Line(NamedTuple):
    """One sentence under a heading; sentences of one heading follow each other."""

    heading: str
    sentence: str


def explain(shard_map: ShardMap) -> list[Line]:
    """Everything that led to the verdict, in the order in which it was concluded."""
    parts: tuple[tuple[str, Iterable[str]], ...] = (
        ("Format", _format(shard_map)),
        ("Step", _step(shard_map)),
        ("Ranks", _ranks(shard_map)),
        ("Shards", _shards(shard_map)),
        ("Commit marker", _marker(shard_map)),
        ("Findings", _findings(shard_map)),
        ("Status", _status(shard_map)),
        ("Resumable", _resumable(shard_map)),
    )
    return [Line(heading, sentence) for heading, sentences in parts for sentence in sentences]


def _format(one: ShardMap) -> Iterator[str]:
    words = words_of(one.format)
    if one.status is Status.UNREADABLE and not one.shards:
        yield "Not known: the place could not be looked at."
        return
    yield f"{one.format}: {_with_article(words.name)}, recognised by {words.known_by}."


def _with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOaeio' else 'a'} {name}"


def _step(one: ShardMap) -> Iterator[str]:
    name = os.path.basename(one.path)
    named = step_of_name(name)
    named = named if named is not None else step_of_unfinished(name)
    named = step_of_file(name) if named is None and "." in name else named
    if one.step is None and named is not None:
        yield f"Not known: the number in the name {name} counts something else, or names a run that holds steps."
    elif one.step is None:
        yield f"Not known: the name {name} gives none by its whole form, and the state inside could not say."
    elif named is None:
        yield f"{one.step}, from the state inside: the name {name} gives none by its whole form."
    elif named == one.step:
        yield f"{one.step}, from the name {name}; nothing inside contradicts it."
    elif counts_epochs_or_saves(name):
        yield f"{one.step}, from the state inside; the name {name} counts epochs."
    else:
        yield f"{one.step}, from the state inside, which counts; the name {name} says {named}."


_DEGREES = (("dp", "data-parallel"), ("tp", "tensor-parallel"), ("pp", "pipeline"), ("ep", "expert-parallel"))


def _ranks(one: ShardMap) -> Iterator[str]:
    known = [f"{word} {value}" for name, word in _DEGREES if (value := getattr(one, name)) is not None]
    if one.world_size is not None:
        ranks = "1 rank" if one.world_size == 1 else f"{one.world_size} ranks"
        yield f"Saved by {ranks}{', as far as the files tell' if one.format in _LOWER_BOUND else ''}."
    if known:
        yield f"Parallel layout: {', '.join(known)}."
    if one.world_size is None and not known:
        yield "Not recorded in this format."
    if one.must_match:
        yield f"The job that resumes must have {as_many(one.must_match)}."


def as_many(names: Iterable[str]) -> str:
    """What must be equal, of `ShardMap.must_match`: `as many tensor-parallel ranks and as many pipeline stages`."""
    return " and ".join(f"as many {_COUNTED.get(name, name)}" for name in names)


_COUNTED = {
    "world_size": "ranks",
    "dp": "data-parallel ranks",
    "tp": "tensor-parallel ranks",
    "pp": "pipeline stages",
}
_LOWER_BOUND = frozenset({"dcp", "dcp_hf", "torchtitan"})


def _shards(one: ShardMap) -> Iterator[str]:
    if not one.shards:
        yield "None were found."
        return
    present = Counter(shard.role for shard in one.shards if shard.size_bytes is not None)
    absent = Counter(shard.role for shard in one.shards if shard.size_bytes is None)
    for role in Role:
        count = present[role] + absent[role]
        if count:
            yield f"{role.value}: {count} expected, {present[role]} there" + (
                f", {absent[role]} NOT THERE." if absent[role] else "."
            )
    short = [
        shard.path
        for shard in one.shards
        if None not in (shard.size_bytes, shard.promised_bytes) and shard.size_bytes != shard.promised_bytes
    ]
    if any(shard.role is Role.MODEL for shard in one.shards):
        yield "A file that holds several kinds of state is counted once, under the first of those in this list."
    if one.format == "deepspeed" and not any(shard.role is Role.OPTIMIZER for shard in one.shards):
        yield "No rank has an optimizer file of its own, as without ZeRO (stage 0); a job with ZeRO looks for one."
    if short:
        yield f"Of another size than the metadata promises: {_some(short)}."
    yield f"Bytes there: {one.total_bytes:,}. Newest change: {iso_time(one.newest_mtime_ns) or 'not known'}."


def _marker(one: ShardMap) -> Iterator[str]:
    words = words_of(one.format)
    if words.marker is None:
        yield f"This format writes none, so a checkpoint counts as whole when {words.settled_by}."
        return
    if one.status is Status.UNREADABLE:
        yield f"{_sentence_case(words.marker)}; whether it is there could not be looked at."
        return
    is_there = one.status not in (Status.UNCOMMITTED, Status.IN_PROGRESS) and not any(
        found.code == "metadata_missing" for found in one.findings
    )
    yield f"{_sentence_case(words.marker)}: {'there' if is_there else 'NOT THERE'}."
    yield f"It alone proves nothing: a checkpoint counts as whole when {words.settled_by}."


def _findings(one: ShardMap) -> Iterator[str]:
    if not one.findings:
        yield "None."
    order = list(Severity)
    for found in sorted(one.findings, key=lambda each: order.index(each.severity))[:_SHOWN]:
        yield f"{found.severity.value} {found.code}: {_located(found)}. What to do: {found.cure}"
    if len(one.findings) > _SHOWN:
        yield f"And {len(one.findings) - _SHOWN} more."


def _located(found: Finding) -> str:
    name = os.path.basename(found.path)
    detail = found.detail.rstrip(".")
    return detail if not name or name in detail else f"{name}: {detail}"


_RULES = {
    Status.COMPLETE: "complete: nothing that must be there is missing, nothing that is there is damaged, and nothing "
    "says that its save did not end.",
    Status.UNCOMMITTED: "uncommitted: every byte seems to be there, but the save never said that it had ended. Bytes "
    "that another rank had not written yet would look the same, so it is never chosen by itself.",
    Status.INCOMPLETE: "incomplete: something that must be there is not.",
    Status.IN_PROGRESS: "in_progress: it is not finished, and its newest change is so recent that a save may still be "
    "running. What is missing now is no damage yet.",
    Status.CORRUPT: "corrupt: a file is there and contradicts its own header, what the metadata says of it, or the "
    "digests that were recorded of its bytes.",
    Status.UNREADABLE: "unreadable: it could not be looked at. That says nothing about what is there: it is neither "
    "missing nor empty.",
    Status.ARCHIVED: "archived: it is whole by its sizes, but must be restored from the archive before it can be read.",
    Status.UNKNOWN: "unknown: it was not understood, so nothing is said about its bytes.",
}


_WHOLE_BUT_UNSAFE = (
    "complete: all that must be there is there, and nothing says that its save did not end. The damage named above "
    "does not lie in lost bytes, but it must not be loaded."
)


def _status(one: ShardMap) -> Iterator[str]:
    is_unsafe = one.status is Status.COMPLETE and any(found.severity is Severity.DAMAGE for found in one.findings)
    yield _sentence_case(_WHOLE_BUT_UNSAFE if is_unsafe else _RULES[one.status])
    deciding = [found for found in one.findings if _decided(found, one.status)]
    if deciding:
        yield f"Decided by: {_some([f'{found.code} ({_located(found)})' for found in deciding], 3)}."


def _decided(found: Finding, status: Status) -> bool:
    if status is Status.UNREADABLE:
        return found.code in COULD_NOT_LOOK and found.severity is not Severity.NOTE
    if status is Status.INCOMPLETE:
        return found.code in NOT_THERE and found.severity is Severity.DAMAGE
    if status is Status.CORRUPT:
        return found.severity is Severity.DAMAGE and found.code not in COULD_NOT_LOOK | NOT_THERE
    return found.code in ("uncommitted", "in_progress", "archived")


def _resumable(one: ShardMap) -> Iterator[str]:
    if one.resumable:
        yield "Yes: it holds all that training needs to go on."
        return
    yield "No."
    for reason in one.not_resumable_reasons:
        yield f"{_sentence_case(reason)}."


def _sentence_case(text: str) -> str:
    """`text` as a sentence begins. A name from the storage stays as it is."""
    return text[:1].upper() + text[1:] if _IS_WORD.fullmatch(text.partition(" ")[0]) else text


def _some(names: list[str], limit: int = 6) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
