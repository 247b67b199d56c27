"""An inventory as a person reads it: a table by run, then what is wrong and what to do. Pure."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

from muster_agent.cli.output import human_bytes
from muster_agent.formats.base import Finding, Severity, ShardMap
from muster_agent.formats.checkpoint import state_shards
from muster_agent.formats.times import duration
from muster_agent.formats.walk import Inventory

_HEADINGS = ("step", "status", "resume", "format", "ranks", "shards", "size", "changed", "name")
_RIGHT = {"step", "ranks", "shards", "size", "changed"}
_SEVERITIES = list(Severity)
_NAMED = 6
_SHOWN = 3


def inventory_lines(found: Inventory, path: str, now_unix_seconds: float) -> Iterator[str]:
    """The lines of the whole report."""
    if not found.checkpoints:
        yield f"No checkpoints under {path}."
    by_folder: dict[str, list[ShardMap]] = defaultdict(list)
    for shard_map in found.checkpoints:
        by_folder[os.path.dirname(shard_map.path)].append(shard_map)
    for folder, shard_maps in sorted(by_folder.items()):
        yield from _run_lines(folder, shard_maps, now_unix_seconds)
    if found.findings:
        yield "About the folder itself:"
        yield from _finding_lines([(one.path, one) for one in found.findings])


def _run_lines(folder: str, shard_maps: Sequence[ShardMap], now_unix_seconds: float) -> Iterator[str]:
    run = shard_maps[0].run
    good = sum(one.resumable for one in shard_maps)
    count = len(shard_maps)
    yield f"Run {run} in {folder}: {count} checkpoint{'s' * (count != 1)}, {good} to resume from"
    yield ""
    yield from _table([_row(one, now_unix_seconds) for one in shard_maps])
    yield ""
    named = [(_name(one), found) for one in shard_maps for found in one.findings]
    if named:
        yield from _finding_lines(named)
        yield ""


def _name(shard_map: ShardMap) -> str:
    return os.path.basename(shard_map.path)


def _row(one: ShardMap, now_unix_seconds: float) -> tuple[str, ...]:
    age = None if one.newest_mtime_ns is None else max(0.0, now_unix_seconds - one.newest_mtime_ns / 1e9)
    return (
        "?" if one.step is None else str(one.step),
        one.status.value,
        "yes" if one.resumable else "no",
        one.format,
        "-" if one.world_size is None else str(one.world_size),
        str(state_shards(one)),
        human_bytes(one.total_bytes),
        "-" if age is None else f"{duration(age)} ago",
        _name(one),
    )


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in [_HEADINGS, *rows]) for column in range(len(_HEADINGS))]
    for row in [_HEADINGS, *rows]:
        cells = (
            cell.rjust(width) if heading in _RIGHT else cell.ljust(width)
            for cell, width, heading in zip(row, widths, _HEADINGS, strict=True)
        )
        yield ("  " + "  ".join(cells)).rstrip()


def _finding_lines(named: Sequence[tuple[str, Finding]]) -> Iterator[str]:
    """Findings with one code and one cure are said once, worst first, with where they were seen."""
    groups: dict[tuple[int, str, str], list[tuple[str, Finding]]] = defaultdict(list)
    for name, found in named:
        groups[_SEVERITIES.index(found.severity), found.code, found.cure].append((name, found))
    for (severity, code, cure), members in sorted(groups.items(), key=lambda item: item[0][:2]):
        names = list(dict.fromkeys(name for name, _ in members))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"  {_SEVERITIES[severity].value} {code}: {', '.join(names[:_NAMED])}{more}"
        details = list(dict.fromkeys(found.detail for _, found in members))
        for detail in details[:_SHOWN]:
            yield f"      {detail}"
        if len(details) > _SHOWN:
            yield f"      and {len(details) - _SHOWN} more of this kind"
        yield f"      what to do: {cure}"
