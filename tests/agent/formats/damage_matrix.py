"""Every real sample under tests/data, damaged in every way, one file at a time, and which look finds and names it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from muster_agent.formats.base import Finding, Severity, ShardMap, Status
from muster_agent.formats.checkpoint import absolute_path, read_checkpoint
from muster_agent.formats.walk import inventory
from muster_agent.jobs.own_sums import check_own_sums
from muster_agent.jobs.seal import seal
from muster_agent.jobs.verify import verify
from muster_agent.manifest.model import Manifest

from tests.agent.formats.damage import damage

IN_PLACE = ("truncate", "zero", "empty", "delete", "extend")
EXCHANGES = ("swap", "stale")
KINDS = (*IN_PLACE, *EXCHANGES)


class Look(IntEnum):
    """What names the damage, the cheapest first."""

    SCAN = 0
    """`muster inventory`."""
    EXPLAIN = 1
    """`muster explain`, which opens every file."""
    SUMS = 2
    """`muster verify` of a checkpoint that was never sealed: the check sums that its format carries."""
    SEAL = 3
    """`muster verify` against the manifest."""
    NONE = 4


class Case(NamedTuple):
    """`other` is the file whose bytes take this one's place (`swap`: and the other way round)."""

    checkpoint: str
    file: str
    kind: str
    other: str = ""


class Seen(NamedTuple):
    """`named` is the first look that says which file it is; `is_noticed`: a scan says that something is amiss."""

    named: Look
    is_noticed: bool


class Sample:
    """A writable copy of a sample. All paths of checkpoints are absolute, those of files relative to their own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.before = inventory(place)
        self.whole = {
            one.path: one
            for one in self.before.checkpoints
            if one.status is Status.COMPLETE and not any(f.severity is Severity.DAMAGE for f in one.findings)
        }
        self._explained: dict[str, set[Finding]] = {}
        self._sealed: dict[str, Manifest | None] = {}

    @cached_property
    def known(self) -> set[Finding]:
        return set(_all_findings(self.before.checkpoints, self.before.findings))

    def cases(self) -> Iterator[Case]:
        """In a fixed order."""
        for path, shard_map in sorted(self.whole.items()):
            files = sorted(shard.path for shard in shard_map.shards if shard.size_bytes is not None)
            for file in files:
                for kind in IN_PLACE:
                    if self._is_damage(shard_map, file, kind):
                        yield Case(path, file, kind)
            yield from self._exchanges(shard_map, files)

    def _is_damage(self, shard_map: ShardMap, file: str, kind: str) -> bool:
        """An empty file cannot lose bytes, and of a checkpoint that is one file nothing is left to ask once that is
        gone: only who remembers it can miss it."""
        size_bytes = os.stat(absolute_path(shard_map, file)).st_size
        return len(shard_map.shards) > 1 if kind == "delete" else kind == "extend" or size_bytes > 0

    def _exchanges(self, shard_map: ShardMap, files: list[str]) -> Iterator[Case]:
        data = {file: Path(absolute_path(shard_map, file)).read_bytes() for file in files}
        for index, file in enumerate(files):
            alike = (one for one in files[index + 1 :] if Path(one).suffix == Path(file).suffix)
            other = next((one for one in alike if data[one] != data[file]), None)
            if other is not None:
                yield Case(shard_map.path, file, "swap", other)
        for beside in self._steps_beside(shard_map):
            for file in files:
                place = os.path.join(beside, file)
                if os.path.isfile(place) and Path(place).read_bytes() != data[file]:
                    yield Case(shard_map.path, file, "stale", place)

    def _steps_beside(self, shard_map: ShardMap) -> list[str]:
        """The next lower step of the same run and format, which a file may have been left by."""
        lower = [
            one
            for one in self.whole.values()
            if os.path.dirname(one.path) == os.path.dirname(shard_map.path) and os.path.isdir(one.path)
            if one.format == shard_map.format and (one.step or 0) < (shard_map.step or 0)
        ]
        return [max(lower, key=lambda one: one.step or 0).path] if lower else []

    def look(self, case: Case, seed: int) -> Seen | None:
        """What is seen of the file once it is damaged; None where that changes no byte. The sample is as before when
        this returns."""
        self._prepare(case.checkpoint)
        with self._damaged(case, seed) as is_changed:
            return self._seen(case) if is_changed else None

    def _seen(self, case: Case) -> Seen:
        now = inventory(self.place)
        found = set(_all_findings(now.checkpoints, now.findings)) - self.known
        before, after = self.whole[case.checkpoint], {one.path: one for one in now.checkpoints}.get(case.checkpoint)
        is_noticed = (
            bool(found) or after is None or (after.status, after.resumable) != (before.status, before.resumable)
        )
        if _names(found, case):
            return Seen(Look.SCAN, is_noticed)
        return Seen(
            next((look for look, told in self._closer_looks(case) if _names(told, case)), Look.NONE), is_noticed
        )

    def _prepare(self, path: str) -> None:
        if path not in self._sealed:
            self._explained[path] = set(read_checkpoint(path).findings)
            self._sealed[path] = seal(path, write_beside=False).manifest

    @contextmanager
    def _damaged(self, case: Case, seed: int) -> Iterator[bool]:
        """Whether any byte is another one inside of the block."""
        shard_map = self.whole[case.checkpoint]
        names = [case.file, case.other] if case.kind == "swap" else [case.file]
        places = [Path(absolute_path(shard_map, name)) for name in names]
        kept = {place: (place.read_bytes(), place.stat()) for place in places}
        try:
            if case.kind in IN_PLACE:
                damage(places[0], case.kind, seed)
            else:
                source = places[1] if case.kind == "swap" else Path(case.other)
                data = source.read_bytes()
                if case.kind == "swap":
                    _write(places[1], kept[places[0]][0], kept[places[1]][1])
                _write(places[0], data, kept[places[0]][1])
            yield any(not place.exists() or place.read_bytes() != data for place, (data, _) in kept.items())
        finally:
            for place, (data, seen) in kept.items():
                _write(place, data, seen)

    def _closer_looks(self, case: Case) -> Iterator[tuple[Look, Iterable[Finding]]]:
        yield Look.EXPLAIN, set(read_checkpoint(case.checkpoint).findings) - self._explained[case.checkpoint]
        yield Look.SUMS, check_own_sums(case.checkpoint).findings
        manifest = self._sealed[case.checkpoint]
        if manifest is not None:
            yield Look.SEAL, verify(case.checkpoint, manifest).findings


def _all_findings(maps: Iterable[ShardMap], own: Iterable[Finding]) -> Iterator[Finding]:
    yield from own
    for one in maps:
        yield from one.findings


def _names(found: Iterable[Finding], case: Case) -> bool:
    """Whether any says which file it is, by its name or its path; of two that were exchanged either one will do."""
    names = {os.path.basename(case.file), *([os.path.basename(case.other)] if case.kind == "swap" else [])}
    return any(name in one.path or name in one.detail for one in found for name in names)


def _write(place: Path, data: bytes, seen: os.stat_result) -> None:
    with suppress(FileNotFoundError):
        if place.read_bytes() == data:
            return
    place.write_bytes(data)
    os.utime(place, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def chosen(cases: list[Case], count: int, seed: int) -> list[Case]:
    """So many of the cases, of each kind where there are any."""
    chance = random.Random(seed)
    by_kind = {kind: [case for case in cases if case.kind == kind] for kind in KINDS}
    picked = [chance.sample(some, min(len(some), max(1, count // len(KINDS)))) for some in by_kind.values() if some]
    return [case for some in picked for case in some]
