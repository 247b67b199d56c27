"""The agent's side of the hook folder: read what is new, remember what was forwarded, tidy up what is finished."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
from pathlib import Path

import msgspec

from muster_agent.hooks.paths import hook_directory, parse_registration_name, parse_spool_name
from muster_agent.hooks.processes import is_running
from muster_agent.protocol.wire import HookRecord

READ_BYTES = 4 * 1024 * 1024

logger = logging.getLogger("muster_agent.hooks")


class _Offset(msgspec.Struct, frozen=True):
    """How far one file was forwarded. The inode tells a file from a later one of the same name."""

    inode: int
    offset_bytes: int


class _Tail(msgspec.Struct, frozen=True):
    """What one reading of one file gave: records, where it ended, and whether nothing can follow."""

    records: list[HookRecord]
    offset: _Offset
    finished: bool


class HookSpoolReader:
    """Reads the records that hooks wrote since the last `commit`.

    `read_new()` always starts at what was committed, so a batch that could not be forwarded is read again;
    (`source`, `seq`) lets the receiver drop repeats. `commit()` remembers, durably, the last `read_new()` as
    forwarded, then removes the files whose writer is gone and that hold nothing more.

    directory: as for RunReporter. state_path: where offsets are kept; default `.offsets-<uid>.json` in the folder.
    `malformed_records` counts lines that were no record (a writer killed in the middle of one).
    """

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *, state_path: str | os.PathLike[str] | None = None
    ) -> None:
        self._directory = hook_directory(directory)
        self._state_path = Path(state_path or self._directory / f".offsets-{os.getuid()}.json")
        self._committed = self._load_offsets()
        self._pending: dict[str, _Tail] = {}
        self.malformed_records = 0

    def read_new(self, limit_records: int = 5_000) -> list[HookRecord]:
        """Records since the last commit, in the order of each writer's file, at most about `limit_records`.

        A folder that does not exist holds none. Raises OSError when the folder is there and cannot be listed.
        """
        self._pending = {}
        records: list[HookRecord] = []
        for name in self._spool_names():
            if len(records) >= limit_records:
                break
            tail = self._read_tail(name, limit_records - len(records))
            if tail is not None:
                self._pending[name] = tail
                records += tail.records
        return records

    def commit(self) -> None:
        """What the last `read_new()` gave has been forwarded. Raises OSError when that cannot be remembered (a full
        disk, say): nothing is removed then, and the records come again."""
        present = set(self._spool_names())
        offsets = {name: offset for name, offset in self._committed.items() if name in present}
        offsets |= {name: tail.offset for name, tail in self._pending.items()}
        if offsets != self._committed:
            self._store_offsets(offsets)
            self._committed = offsets
        for name, tail in self._pending.items():
            if tail.finished:
                (self._directory / name).unlink(missing_ok=True)
        self._pending = {}
        self._remove_dead_registrations()

    def _spool_names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self._directory) if parse_spool_name(name))
        except FileNotFoundError:
            return []

    def _read_tail(self, name: str, limit_records: int) -> _Tail | None:
        """None when the file cannot be read now; it stays as it is."""
        try:
            descriptor = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as problem:
            logger.warning("Muster hook: %s cannot be read: %s", name, problem)
            return None
        try:
            # Asked before reading: whatever a writer that is gone by now wrote, this reading sees.
            gone = self._writer_is_gone(name, descriptor)
            return self._read_open(name, descriptor, gone, limit_records)
        finally:
            os.close(descriptor)

    def _read_open(self, name: str, descriptor: int, gone: bool, limit_records: int) -> _Tail | None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        start_bytes = self._start_bytes(name, status)
        data = os.pread(descriptor, READ_BYTES, start_bytes)
        reached_end = start_bytes + len(data) >= os.fstat(descriptor).st_size
        records, taken_bytes = self._parse(data, last_line_is_final=gone and reached_end, limit_records=limit_records)
        end_bytes = start_bytes + taken_bytes
        finished = gone and reached_end and taken_bytes == len(data)
        return _Tail(records, _Offset(status.st_ino, end_bytes), finished)

    def _start_bytes(self, name: str, status: os.stat_result) -> int:
        known = self._committed.get(name)
        if known is None or known.inode != status.st_ino or known.offset_bytes > status.st_size:
            return 0
        return known.offset_bytes

    def _parse(self, data: bytes, *, last_line_is_final: bool, limit_records: int) -> tuple[list[HookRecord], int]:
        """Whole lines only: half a line of a living writer is read again when it is whole."""
        # No record is this long, so no newline will make one of it.
        last_line_is_final = last_line_is_final or (len(data) == READ_BYTES and b"\n" not in data)
        records: list[HookRecord] = []
        taken_bytes = 0
        while taken_bytes < len(data) and len(records) < limit_records:
            end = data.find(b"\n", taken_bytes)
            if end < 0 and not last_line_is_final:
                break
            line = data[taken_bytes:] if end < 0 else data[taken_bytes:end]
            taken_bytes = len(data) if end < 0 else end + 1
            record = self._decode(line)
            if record is not None:
                records.append(record)
        return records, taken_bytes

    def _decode(self, line: bytes) -> HookRecord | None:
        if not line.strip():
            return None
        try:
            return msgspec.json.decode(line, type=HookRecord)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.malformed_records += 1
            return None

    def _writer_is_gone(self, name: str, descriptor: int) -> bool:
        """Only when its lock is free and its pid is no longer its own: either alone can mislead (a file system
        without locks; a writer in another pid namespace)."""
        writer = parse_spool_name(name)
        if writer is None or is_running(writer.pid, writer.start_ticks):
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _load_offsets(self) -> dict[str, _Offset]:
        """Offsets that are missing or unreadable mean reading again from the start: repeats are harmless."""
        try:
            return msgspec.json.decode(self._state_path.read_bytes(), type=dict[str, _Offset])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as problem:
            logger.warning("Muster hook: %s cannot be used, reading all records again: %s", self._state_path, problem)
            return {}

    def _store_offsets(self, offsets: dict[str, _Offset]) -> None:
        temporary = self._state_path.with_suffix(".tmp")
        with open(temporary, "wb") as stream:
            stream.write(msgspec.json.encode(offsets))
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, self._state_path)

    def _remove_dead_registrations(self) -> None:
        """A killed process cannot take its registration back."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                writer = parse_registration_name(name)
                if writer is not None and not is_running(writer.pid, writer.start_ticks):
                    (self._directory / name).unlink(missing_ok=True)
