"""The process that takes an agent's inventories: `python -m muster_agent.jobs.scan_process_main N`, N a socket.

It has no other threads, so that a scan may read on several processors, and ends when its agent does. See
scan_process.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping

from muster_agent.formats.child_wire import Pipe
from muster_agent.formats.fence import keep_to
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.scan_wire import Broke, Listed, Moved, Noted, Said, Unreadable, Wanted

NICENESS = 10
"""Training goes first where processors are scarce."""
SAY_SECONDS = 0.25


class _SocketControl(JobControl):
    """Progress through the socket; a socket without its other end ends the work. Forks of this process say nothing."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__(self._moved, tell=self._told)
        self._pipe = pipe
        self._process_id = os.getpid()
        self._latest, self._counts = (0, 0), dict[str, int]()
        self._said_at = time.monotonic()

    def check(self) -> None:
        now = time.monotonic()
        if now - self._said_at >= SAY_SECONDS and os.getpid() == self._process_id:
            self._said_at = now
            self._say()
        super().check()

    def _say(self) -> None:
        if select.select([self._pipe.end], [], [], 0)[0]:  # nothing is due from there but its end
            raise Cancelled("the agent is gone")
        self._pipe.send(Moved(*self._latest, self._counts))

    def _moved(self, _phase: str, done: int, total: int) -> None:
        self._latest = done, total

    def _told(self, counts: Mapping[str, int]) -> None:
        self._counts = dict(counts)


def answer(wanted: Wanted, pipe: Pipe) -> Said:
    """The inventory, or why there is none. Raises Cancelled and OSError when nobody waits for it any more."""
    try:
        control = _SocketControl(pipe)
        note = lambda text: pipe.send(Noted(text))  # noqa: E731
        return Listed(run_inventory(wanted.params, control, cache_file=wanted.cache_file, note=note))
    except RootUnreadable as error:
        return Unreadable(error.path, error.reason, error.hint, error.is_missing)
    except (Cancelled, ConnectionError):
        raise
    except Exception as error:
        return Broke(f"{type(error).__name__}: {error}")


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the agent, which ends this one
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    pipe = Pipe(socket.socket(fileno=descriptor))
    with contextlib.suppress(EOFError, ConnectionError, Cancelled):
        while True:
            wanted = pipe.receive(Wanted)
            keep_to([wanted.params.root])
            pipe.send(answer(wanted, pipe))


if __name__ == "__main__":
    main(int(sys.argv[1]))
