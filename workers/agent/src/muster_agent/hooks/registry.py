"""Which processes said that they are ranks of a run. Only these may be signalled by a `disrupt` task."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from muster_agent.hooks.paths import WriterName, hook_directory, parse_registration_name, registration_name
from muster_agent.hooks.processes import is_running, owner_uid

_MAX_REGISTRATION_BYTES = 64 * 1024


class RegisteredProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a run, as its hook registered it."""

    pid: int
    start_ticks: int
    rank: int | None
    attempt: str
    source: str
    allow_injection: bool = False

    @property
    def writer(self) -> WriterName:
        return WriterName(self.pid, self.start_ticks, self.source)


class _Registration(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    attempt: str
    rank: int | None
    allow_injection: bool = False


def live_processes(directory: str | os.PathLike[str] | None, run: str) -> list[RegisteredProcess]:
    """Registered processes of `run` that run now, belong to this user and are the very ones that registered.

    Sorted by rank, then pid. A folder that does not exist holds none; OSError when it cannot be listed.
    """
    folder = hook_directory(directory)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    found = [_live_process(folder, name, run) for name in names]
    return sorted((one for one in found if one is not None), key=lambda one: (one.rank is None, one.rank or 0, one.pid))


def register(
    directory: Path, writer: WriterName, *, run: str, attempt: str, rank: int | None, allow_injection: bool = False
) -> None:
    """Say that the writer's process is a rank of a run. Raises OSError when the folder does not take it."""
    body = msgspec.json.encode(_Registration(run=run, attempt=attempt, rank=rank, allow_injection=allow_injection))
    # Written in place: half a registration is not believed, and a temporary file would outlive a killed process.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(directory / registration_name(writer), flags, 0o640)
    try:
        os.write(descriptor, body)
    finally:
        os.close(descriptor)


def unregister(directory: Path, writer: WriterName) -> None:
    """Take the registration back; one that is gone already is no error."""
    (directory / registration_name(writer)).unlink(missing_ok=True)


def _live_process(folder: Path, name: str, run: str) -> RegisteredProcess | None:
    writer = parse_registration_name(name)
    if writer is None or not is_running(writer.pid, writer.start_ticks) or owner_uid(writer.pid) != os.getuid():
        return None
    registration = _read_registration(folder / name)
    if registration is None or registration.run != run:
        return None
    return RegisteredProcess(
        pid=writer.pid,
        start_ticks=writer.start_ticks,
        rank=registration.rank,
        attempt=registration.attempt,
        source=writer.source,
        allow_injection=registration.allow_injection,
    )


def _read_registration(path: Path) -> _Registration | None:
    """The content of a regular file of this user; anything else was not written by this user's hook."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            return None
        return msgspec.json.decode(os.read(descriptor, _MAX_REGISTRATION_BYTES), type=_Registration)
    except (OSError, msgspec.DecodeError):
        return None
    finally:
        os.close(descriptor)
