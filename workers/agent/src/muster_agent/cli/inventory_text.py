"""An inventory as a person reads it: a table by run, then what is wrong and what to do. Pure."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from muster_agent.cli.colour import Paint, plain
from muster_agent.cli.inventory_choice import is_broken
from muster_agent.cli.output import human_bytes, one_line
from muster_agent.decide.evidence import names_a_place, sentence
from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.checkpoint import state_shards
from muster_agent.formats.names import folder_of
from muster_agent.formats.places import place_of
from muster_agent.formats.siblings import unique_bytes
from muster_agent.formats.times import duration
from muster_agent.formats.walk import Inventory
from muster_agent.protocol.trust import Trust

_HEADINGS = ("step", "status", "resume", "proof", "format", "ranks", "shards", "size", "changed", "name")
_RIGHT = {"step", "ranks", "shards", "size", "changed"}
_SEVERITIES = list(Severity)
_NAMED = 6
_SHOWN = 3
_SKEW_SECONDS = 60
_MEANING = {
    Status.COMPLETE: "good",
    Status.CORRUPT: "bad",
    Status.INCOMPLETE: "bad",
    Status.UNCOMMITTED: "doubt",
    Status.IN_PROGRESS: "doubt",
    Status.UNREADABLE: "doubt",
    Status.ARCHIVED: "doubt",
    Status.UNKNOWN: "quiet",
}
_SEVERITY_MEANING = {Severity.DAMAGE: "bad", Severity.WARNING: "doubt", Severity.NOTE: "quiet"}


def inventory_lines(
    found: Inventory,
    path: str,
    now_unix_seconds: float,
    paint: Paint = plain,
    trust: Mapping[str, Trust] = MappingProxyType({}),
    wanted: str = "",
) -> Iterator[str]:
    """The lines of the whole report, fit to print: what comes from the disk cannot begin a line or move the cursor.
    `trust` is what is proven of the bytes of some, by path; `wanted` is the word for those that were asked for."""
    if not found.checkpoints:
        yield one_line(f"No {wanted}checkpoints under {path}.")
    by_folder: dict[str, list[ShardMap]] = defaultdict(list)
    for shard_map in found.checkpoints:
        by_folder[folder_of(shard_map.path)].append(shard_map)
    for folder, shard_maps in sorted(by_folder.items()):
        yield from _run_lines(folder, shard_maps, now_unix_seconds, paint, trust)
    if found.findings:
        yield "About the folder itself:"
        yield from _finding_lines([(_within(one.path, path), one) for one in found.findings], paint)
    if len(by_folder) > 1:
        yield _summary(found.checkpoints, len(by_folder))
    if any(not one.resumable for one in found.checkpoints):
        yield paint("`muster explain PATH` tells for one checkpoint which rule said what.", "quiet")


def summary_lines(checkpoints: Sequence[ShardMap], paint: Paint = plain) -> Iterator[str]:
    """One line per run: how many are broken, how many can be resumed from, and the newest of those."""
    by_folder: dict[str, list[ShardMap]] = defaultdict(list)
    for shard_map in checkpoints:
        by_folder[folder_of(shard_map.path)].append(shard_map)
    for folder, shard_maps in sorted(by_folder.items()):
        broken = sum(map(is_broken, shard_maps))
        unread = sum(one.status is Status.UNREADABLE for one in shard_maps)
        parts = [_counted(shard_maps), f"{broken} broken", *([f"{unread} not readable"] if unread else [])]
        yield paint(one_line(f"{folder}: {', '.join(parts)}"), "bad" if broken else "doubt" if unread else "good")
    if not by_folder:
        yield "No such checkpoints."


def _run_lines(
    folder: str, shard_maps: Sequence[ShardMap], now_unix_seconds: float, paint: Paint, trust: Mapping[str, Trust]
) -> Iterator[str]:
    yield paint(one_line(f"Run {shard_maps[0].run} in {folder}: {_counted(shard_maps)}"), "heading")
    yield ""
    yield from _table(shard_maps, now_unix_seconds, paint, trust)
    yield ""
    named = [(_name(one), found) for one in shard_maps for found in one.findings]
    if named:
        yield from _finding_lines(named, paint)
        yield ""


def _counted(shard_maps: Sequence[ShardMap]) -> str:
    good = [one for one in shard_maps if one.resumable]
    steps = [one.step for one in good if one.step is not None]
    newest = f", the newest at step {max(steps)}" if steps else ""
    return f"{_many(len(shard_maps), 'checkpoint')}, {len(good)} to resume from{newest}{_shared(shard_maps)}"


def _shared(shard_maps: Sequence[ShardMap]) -> str:
    """Sizes in the table add up to more than lies on the storage where files have several names."""
    stored_bytes, shown_bytes = unique_bytes(shard_maps), sum(one.total_bytes for one in shard_maps)
    return f"; {human_bytes(stored_bytes)} stored (hard links counted once)" if stored_bytes < shown_bytes else ""


def _summary(shard_maps: Sequence[ShardMap], folders: int) -> str:
    counts = Counter(one.status for one in shard_maps)
    words = ", ".join(f"{counts[status]} {status.value}" for status in Status if counts[status])
    size = human_bytes(unique_bytes(shard_maps))
    return f"In all {_many(len(shard_maps), 'checkpoint')} in {_many(folders, 'folder')}, {size}: {words}."


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _name(shard_map: ShardMap) -> str:
    return os.path.basename(shard_map.path)


def _within(place: str, root: str) -> str:
    """The place as seen from the folder that was asked for."""
    top = f"{place_of(root).rstrip('/')}/"
    return place.removeprefix(top)


def _row(one: ShardMap, now_unix_seconds: float, trust: Trust | None) -> tuple[str, ...]:
    age = None if one.newest_mtime_ns is None else now_unix_seconds - one.newest_mtime_ns / 1e9
    return (
        "?" if one.step is None else str(one.step),
        one.status.value,
        "yes" if one.resumable else "no",
        "-" if trust is None or trust.rung < Trust.SEALED.rung else trust.value,
        one_line(one.format),
        "-" if one.world_size is None else str(one.world_size),
        str(state_shards(one)),
        human_bytes(one.total_bytes),
        "-" if age is None else _said_age(age),
        one_line(_name(one)),
    )


def _said_age(seconds: float) -> str:
    """Clocks of two hosts are never quite equal; further ahead is worth seeing."""
    return f"{duration(max(seconds, 0.0))} ago" if seconds > -_SKEW_SECONDS else f"in {duration(-seconds)}"


def _table(
    shard_maps: Sequence[ShardMap], now_unix_seconds: float, paint: Paint, trust: Mapping[str, Trust]
) -> Iterator[str]:
    rows = [_row(one, now_unix_seconds, trust.get(one.path)) for one in shard_maps]
    widths = [max(len(row[column]) for row in [_HEADINGS, *rows]) for column in range(len(_HEADINGS))]
    yield paint("  " + "  ".join(_aligned(_HEADINGS, widths)).rstrip(), "quiet")
    for one, row in zip(shard_maps, rows, strict=True):
        cells = _aligned(row, widths)
        cells[1] = paint(cells[1], _MEANING[one.status])
        cells[2] = paint(cells[2], "good" if one.resumable else "quiet")
        yield ("  " + "  ".join(cells)).rstrip()


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        cell.rjust(width) if heading in _RIGHT else cell.ljust(width)
        for cell, width, heading in zip(row, widths, _HEADINGS, strict=True)
    ]


def _finding_lines(named: Sequence[tuple[str, Finding]], paint: Paint) -> Iterator[str]:
    """Findings with one code and one cure are said once, worst first, with where they were seen."""
    groups: dict[tuple[int, str, str], list[tuple[str, Finding]]] = defaultdict(list)
    for name, found in named:
        groups[_SEVERITIES.index(found.severity), found.code, found.cure].append((name, found))
    for (index, code, cure), members in sorted(groups.items(), key=lambda item: item[0][:2]):
        severity = _SEVERITIES[index]
        names = list(dict.fromkeys(name for name, _ in members))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        where = one_line(f"{', '.join(names[:_NAMED])}{more}")
        yield f"  {paint(severity.value, _SEVERITY_MEANING[severity])} {code}: {where}"
        details = list(dict.fromkeys(_detail(found) for _, found in members))
        for detail in details[:_SHOWN]:
            yield one_line(f"      {detail}")
        if len(details) > _SHOWN:
            yield f"      and {len(details) - _SHOWN} more of this kind"
        yield one_line(f"      what to do: {cure}")


def _detail(found: Finding) -> str:
    """The line above names the checkpoint; a file of it is named here."""
    return found.detail if names_a_place(found) else sentence(found)
