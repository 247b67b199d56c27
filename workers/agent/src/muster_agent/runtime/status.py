"""The status file and the lock: who runs here, and how it goes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `muster agent status` shows. Times are Unix seconds of this node's clock."""

    pid: int
    state: str
    server: str
    last_poll_at: float | None
    running: tuple[str, ...]
    spool_bytes: int
    undelivered_results: int
    disk_error: str | None
    clock_offset_seconds: float | None


def write_status(path: Path, status: AgentStatus) -> None:
    """Raises OSError."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(status))
    os.rename(temporary, path)


def read_status(path: Path) -> AgentStatus | None:
    """None where no agent has run, or an older one wrote something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=AgentStatus)
    except (OSError, msgspec.DecodeError):
        return None


class AlreadyRunning(Exception):
    """Another process runs the agent of this state directory."""


class Lock:
    """Held while the agent runs; the kernel lets go of it whatever ends the process. Raises AlreadyRunning, OSError."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise AlreadyRunning(f"an agent is already running in {path.parent}") from error

    def release(self) -> None:
        os.close(self._descriptor)


def is_locked(path: Path) -> bool:
    """Whether an agent runs. Raises OSError when that cannot be seen."""
    if not path.exists():
        return False
    try:
        Lock(path).release()
    except AlreadyRunning:
        return True
    return False
