"""Inventories in a process of their own, for callers that have threads.

A scan reads on several processors through forks, which only a process without other threads may make. The process is
kept for a while after a scan, since starting one costs half a second; it is niced, and what it used for a large scan is
given back when it ends.

    body = run_apart(params, control, cache_file=file, note=log)
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

from muster_agent.formats.child_wire import Pipe
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.scan_wire import Listed, Moved, Noted, Said, Unreadable, Wanted
from muster_agent.protocol.wire import InventoryBody, InventoryParams

IDLE_SECONDS = 600.0
POLL_SECONDS = 0.25
END_SECONDS = 2.0


class ScanEnded(Exception):
    """The process ended, or failed, before it had an answer."""


class ScanProcess:
    """One process; one scan at a time. `close()` ends it and whatever it started."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        self._pipe = Pipe(here)
        try:
            with there:
                self._process = _spawn(there)
        except OSError:
            self._pipe.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(
        self, params: InventoryParams, control: JobControl, cache_file: str | None, note: Callable[[str], None]
    ) -> InventoryBody:
        """See `run_inventory`. Raises ScanEnded too; after that, and after Cancelled, the process is of no use."""
        try:
            self._pipe.send(Wanted(params, cache_file))
            return self._answer(control, note)
        except (EOFError, ConnectionError) as error:
            raise ScanEnded(self._end()) from error

    def _answer(self, control: JobControl, note: Callable[[str], None]) -> InventoryBody:
        while True:
            control.check()
            if not self._is_talking():
                continue
            said: Said = self._pipe.receive(Said)
            if isinstance(said, Listed):
                return said.body
            if isinstance(said, Unreadable):
                raise RootUnreadable(said.path, said.reason, said.hint, is_missing=said.is_missing)
            if isinstance(said, Moved):
                control.tell(said.counts)
                control.progress("inventory", said.done, said.total)
            elif isinstance(said, Noted):
                note(said.text)
            else:
                raise ScanEnded(said.text)

    def _is_talking(self) -> bool:
        self._pipe.end.settimeout(POLL_SECONDS)
        try:
            self._pipe.end.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        finally:
            self._pipe.end.settimeout(None)
        return True

    def _end(self) -> str:
        code = 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(END_SECONDS)
        how = f"was ended by signal {-code}" if code < 0 else "ended early"
        return f"the process that listed {how}; what it had read is kept for the next scan"

    def close(self) -> None:
        """Also the forks that it may have: they are of its session."""
        self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class _Kept:
    """The idle process, if there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: ScanProcess | None = None
        self._timer: threading.Timer | None = None

    def take(self) -> ScanProcess:
        """Raises OSError where none can be started."""
        with self._lock:
            found, self._idle = self._idle, None
            if self._timer is not None:
                self._timer.cancel()
        if found is not None and found.is_alive:
            return found
        if found is not None:
            found.close()
        return ScanProcess()

    def give(self, process: ScanProcess) -> None:
        with self._lock:
            spare, self._idle = self._idle, process
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(IDLE_SECONDS, self.end)
            self._timer.daemon = True
            self._timer.start()
        if spare is not None:
            spare.close()

    def end(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None:
            idle.close()


KEPT = _Kept()


def run_apart(
    params: InventoryParams,
    control: JobControl,
    *,
    cache_file: str | os.PathLike[str] | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> InventoryBody:
    """As `run_inventory`, in a process of its own; in this one where none can be started. Raises ScanEnded too."""
    file = None if cache_file is None else os.fspath(cache_file)
    try:
        process = KEPT.take()
    except OSError as error:
        note(f"no process could be started to list in ({error.strerror}), so this one lists, on one processor")
        return run_inventory(params, control, cache_file=cache_file, note=note)
    try:
        body = process.run(params, control, file, note)
    except RootUnreadable:
        KEPT.give(process)
        raise
    except BaseException:
        process.close()
        raise
    KEPT.give(process)
    return body


def _spawn(there: socket.socket) -> subprocess.Popen[bytes]:
    """With this process's environment: credentials for buckets lie there."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "muster_agent.jobs.scan_process_main", str(there.fileno())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(there.fileno(),),
        start_new_session=True,
    )
