"""How fast this node can read a place at all: the figure that a reload's rate is held against."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import is_bucket, place_of
from muster_agent.jobs.ceiling_sources import MIB, Files, Source, largest_files, largest_objects
from muster_agent.jobs.chunks import Discard
from muster_agent.jobs.control import JobControl
from muster_agent.probes import fio
from muster_agent.protocol.results import CeilingReport, CeilingTry
from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.plan import plan_reads, whole_shards
from muster_agent.reload.reader import ReadRun
from muster_agent.storage.throttle import Throttle

SECONDS_PER_TRY = 3.0
SOUND_BYTES = 256 * MIB
"""Less than this says little: it is over before the storage is busy."""
MOST_CACHED_RATIO = 0.01


class Setting(NamedTuple):
    """How one try reads."""

    reader: str
    block_bytes: int
    depth: int


SETTINGS = tuple(Setting("muster", block * MIB, depth) for block, depth in ((1, 16), (4, 1), (4, 8), (4, 16), (8, 8)))
OBJECT_SETTINGS = tuple(Setting("muster", block * MIB, depth) for block, depth in ((4, 1), (4, 8), (4, 32), (16, 8)))
FIO_SETTINGS = tuple(
    Setting(f"fio {engine}", 4 * MIB, depth) for engine, depth in zip(fio.ENGINES, (1, 16), strict=True)
)


class _TimeUp(Exception):
    """The try has had its time."""


class _Limited(JobControl):
    """Ends a try when its time is over, and the work when the outer control says so."""

    def __init__(self, outer: JobControl, seconds: float) -> None:
        super().__init__()
        self._outer, self._ends_at = outer, time.monotonic() + seconds

    def check(self) -> None:
        self._outer.check()
        if time.monotonic() > self._ends_at:
            raise _TimeUp


def measure_ceiling(
    path: str,
    *,
    seconds_per_try: float = SECONDS_PER_TRY,
    with_fio: bool = True,
    control: JobControl | None = None,
    store: ObjectStore | None = None,
) -> CeilingReport:
    """Read the largest files under `path` in several ways, each from cold and for at most `seconds_per_try`, and report
    the best. Nothing is written. `store` is the client of a path in a bucket. Raises NothingToRead, Cancelled, and
    OSError where `path` cannot be looked at."""
    control, path = control or JobControl(), place_of(path)
    with_fio = with_fio and store is None
    source: Source = Files(largest_files(path)) if store is None else largest_objects(path, store, control.check)
    own = SETTINGS if store is None else OBJECT_SETTINGS
    settings = (*own, *(FIO_SETTINGS if with_fio and fio.is_installed() else ()))
    tries = []
    for number, setting in enumerate(settings):
        control.check()
        tries.append(_one(setting, source, seconds_per_try, control))
        control.progress("ceiling", number + 1, len(settings))
    return _report(path, tries, sum(source.sizes_bytes), with_fio=with_fio)


def _one(setting: Setting, source: Source, seconds: float, control: JobControl) -> CeilingTry:
    cached = source.make_cold()
    made = CeilingTry(
        reader=setting.reader, block_bytes=setting.block_bytes, depth=setting.depth, cached_ratio_before=cached
    )
    if setting.reader == "muster":
        return _with_own_reader(made, source, seconds, control)
    engine = setting.reader.partition(" ")[2]
    rate = fio.read_fio(
        source.paths, engine=engine, block_bytes=setting.block_bytes, depth=setting.depth, seconds=seconds
    )
    if isinstance(rate, str):
        return msgspec.structs.replace(made, reason=rate)
    return _timed(made, rate.read_bytes, rate.seconds, "direct")


def read_with_own(setting: Setting, source: Source, seconds: float, control: JobControl) -> CeilingTry:
    """The built-in reader over `source` once, for at most `seconds`."""
    made = CeilingTry(reader=setting.reader, block_bytes=setting.block_bytes, depth=setting.depth)
    return _with_own_reader(made, source, seconds, control)


def _with_own_reader(made: CeilingTry, source: Source, seconds: float, control: JobControl) -> CeilingTry:
    ring = BufferRing(made.depth, made.block_bytes)
    with contextlib.closing(ring), source.reads() as open_file:
        run = ReadRun(
            plan=plan_reads(whole_shards(source.sizes_bytes), made.block_bytes),
            open_shard=open_file,
            consumer=Discard(),
            ring=ring,
            control=_Limited(control, seconds),
            throttle=Throttle(None),
            readers=made.depth,
        )
        began = time.monotonic()
        with contextlib.suppress(_TimeUp):
            run.run()
        elapsed = time.monotonic() - began
    totals = run.totals
    if totals.errors:
        error = next(iter(totals.errors.values()))
        return msgspec.structs.replace(made, reason=f"a file could not be read: {error.strerror or error}")
    word = "ranged GETs" if not source.paths else "direct" if totals.direct_bytes else "buffered"
    return _timed(made, totals.read_bytes, elapsed, word)


def _timed(made: CeilingTry, read_bytes: int, seconds: float, path_taken: str) -> CeilingTry:
    return msgspec.structs.replace(
        made, read_bytes=read_bytes, seconds=seconds, bytes_per_second=read_bytes / seconds, path_taken=path_taken
    )


def _report(path: str, tries: Sequence[CeilingTry], total_bytes: int, *, with_fio: bool) -> CeilingReport:
    timed = [one for one in tries if one.bytes_per_second is not None]
    cold = [one for one in timed if one.cached_ratio_before is None or one.cached_ratio_before <= MOST_CACHED_RATIO]
    best = max(cold, key=lambda one: one.bytes_per_second or 0.0, default=None)
    notes = []
    if timed and not cold:
        notes.append("the kernel kept the files in memory, so every rate is the memory's; the storage was not measured")
    if total_bytes < SOUND_BYTES:
        notes.append(f"only {total_bytes / MIB:.0f} MiB lie here: too little to keep storage busy, expect a low figure")
    if best is not None and best.cached_ratio_before is None:
        notes.append("how much was cached before is not known here, so the storage's own cache may have served it")
    if is_bucket(path):
        notes.append("what the store itself keeps in memory cannot be seen from here")
    if with_fio and not fio.is_installed():
        notes.append("fio is not installed; the built-in reader alone was used")
    return CeilingReport(
        path=path,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        bytes_per_second=best.bytes_per_second if best else None,
        method=method_of(best) if best else "",
        tries=tuple(tries),
        notes=tuple(notes),
    )


def method_of(one: CeilingTry) -> str:
    """A try's method in few words: `muster 4 MiB x 16, direct`."""
    return f"{one.reader} {one.block_bytes // MIB} MiB x {one.depth}, {one.path_taken}"
