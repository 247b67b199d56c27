"""The cycle files of NVRx's launcher (`cycle_info.JOB.ATTEMPT.CYCLE`): each restart inside a job, without the hook.

A cycle is one round of the launcher's restart loop. Its file says when it began and, once it is over, when it ended.
`parse_*` and `records_of` are pure; `CycleReader` looks at the folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from muster_agent.protocol.wire import HookRecord

MAX_FILES = 10_000
MAX_FILE_BYTES = 64 * 1024
_NAME = re.compile(r"cycle_info\.(?P<job>[^/]{1,64})\.(?P<attempt>\d{1,6})\.(?P<cycle>\d{1,6})", re.ASCII)


class Cycle(msgspec.Struct, frozen=True, kw_only=True):
    """Times are Unix seconds of the launcher's clock; `ended_at` None while it runs."""

    job: str
    attempt: int
    number: int
    began_at: float
    ended_at: float | None
    active_nodes: str = ""

    @property
    def launch_id(self) -> str:
        """The job, with `.ATTEMPT` after a requeue and, as a hook in that cycle does it, `+CYCLE` after a restart."""
        requeued = f".{self.attempt}" if self.attempt else ""
        return f"{self.job}{requeued}{f'+{self.number}' if self.number else ''}"


class _File(msgspec.Struct, frozen=True):
    job_id: str
    cycle_start_time: str
    attempt_index: int = 0
    cycle_number: int = 0
    cycle_end_time: str = ""
    active_nodes: str = ""


def parse_cycle(data: bytes) -> Cycle | None:
    """None for anything but a whole cycle file: it may be being written, and is looked at again."""
    try:
        file = msgspec.json.decode(data, type=_File)
        began_at = _unix_seconds(file.cycle_start_time)
        ended_at = _unix_seconds(file.cycle_end_time) if file.cycle_end_time else None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, OverflowError):
        return None
    if not file.job_id or file.attempt_index < 0 or file.cycle_number < 0:
        return None
    return Cycle(
        job=file.job_id[:64],
        attempt=file.attempt_index,
        number=file.cycle_number,
        began_at=began_at,
        ended_at=ended_at,
        active_nodes=file.active_nodes[:2000],
    )


def records_of(run: str, cycles: Iterable[Cycle]) -> list[HookRecord]:
    """`launch_started` for each cycle, and `failure_detected` where one ended and another of its job followed. How the
    last one ended its file does not say, so nothing is claimed of it. Asked again, the same cycles give the same
    (source, seq)."""
    found = []
    by_job: dict[str, list[Cycle]] = {}
    for cycle in cycles:
        by_job.setdefault(cycle.job, []).append(cycle)
    for of_job in by_job.values():
        ordered = sorted(of_job, key=lambda one: (one.attempt, one.number))
        for place, cycle in enumerate(ordered):
            found.append(_record(run, cycle, "launch_started", cycle.began_at, 0))
            if cycle.ended_at is not None and place + 1 < len(ordered):
                found.append(_record(run, cycle, "failure_detected", cycle.ended_at, 1))
    return found


def _record(run: str, cycle: Cycle, kind: str, at: float, edge: int) -> HookRecord:
    return HookRecord(
        source=f"nvrx-{cycle.job}"[:64],
        seq=2 * (cycle.attempt * 1_000_000 + cycle.number) + edge,
        kind=kind,
        run=run,
        attempt=cycle.launch_id,
        at_unix_seconds=at,
        mono_seconds=0.0,
        data={"cycle": cycle.number, "nodes": cycle.active_nodes, "from": "nvrx"},
    )


def _unix_seconds(text: str) -> float:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError("a time without its zone")
    return moment.timestamp()


class CycleReader:
    """`folders`: from each folder of cycle files to the name of the run whose launcher writes there."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = dict(folders)
        self._sent: set[tuple[str, str, int]] = set()

    def read_new(self) -> list[HookRecord]:
        """Records that `sent` was not called for yet. A folder that cannot be listed has none for now."""
        found = [one for folder, run in self._folders.items() for one in records_of(run, _cycles_in(folder))]
        return [one for one in found if self._key(one) not in self._sent]

    def sent(self, records: Iterable[HookRecord]) -> None:
        """The server has them."""
        self._sent.update(map(self._key, records))

    @staticmethod
    def _key(record: HookRecord) -> tuple[str, str, int]:
        return record.run, record.source, record.seq


def _cycles_in(folder: str) -> list[Cycle]:
    try:
        names = sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name))[-MAX_FILES:]
    except OSError:
        return []
    return [cycle for name in names if (cycle := _read(os.path.join(folder, name))) is not None]


def _read(path: str) -> Cycle | None:
    try:
        with open(path, "rb") as stream:
            return parse_cycle(stream.read(MAX_FILE_BYTES))
    except OSError:
        return None
