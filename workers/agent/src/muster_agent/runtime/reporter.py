"""A running task's events: numbered, stamped with both clocks, progress at most twice a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from muster_agent.protocol.wire import TaskEvent
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.spool import Attempt, Spool

PROGRESS_SECONDS = 0.5
MAX_MESSAGE_LENGTH = 2_000


class SpoolReporter:
    """Implements `tasks.context.Reporter`. `wake` tells the courier that something should leave at once."""

    def __init__(self, attempt: Attempt, spool: Spool, clock: ServerClock, wake: Callable[[], None]) -> None:
        self._attempt = attempt
        self._spool = spool
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._seq = 0
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._progress_at = float("-inf")
        self._counts: dict[str, int] = {}

    def begin(self, phase: str) -> None:
        self._edge(phase, "begin", self._begun)

    def end(self, phase: str) -> None:
        self._edge(phase, "end", self._ended)

    def end_all(self) -> None:
        """Whatever has begun has ended."""
        for phase in sorted(self._begun - self._ended):
            self.end(phase)

    def progress(self, phase: str, done_bytes: int, total_bytes: int) -> None:
        """Any number of calls; about two events a second come of them, and one when all is done."""
        if phase not in self._begun:
            self.begin(phase)
        now = self._clock.mono()
        with self._lock:
            is_complete = total_bytes > 0 and done_bytes >= total_bytes
            if now - self._progress_at < PROGRESS_SECONDS and not is_complete:
                return
            self._progress_at = now
        self._put("progress", phase=phase, done_bytes=done_bytes, total_bytes=total_bytes, data=dict(self._counts))

    def tell(self, counts: Mapping[str, int]) -> None:
        """What else the work counts; it leaves with its progress."""
        self._counts = dict(counts)

    def log(self, message: str) -> None:
        self._put("log", message=storable(message)[:MAX_MESSAGE_LENGTH])

    def injected(self, at_unix_seconds: float, mono_seconds: float, data: dict[str, Any]) -> None:
        at_server = at_unix_seconds + (self._clock.offset_seconds() or 0.0)
        self._put("injected", at_unix_seconds=at_server, mono_seconds=mono_seconds, data=data)
        self._wake()

    def _edge(self, phase: str, edge: str, seen: set[str]) -> None:
        with self._lock:
            if phase in seen:
                return
            seen.add(phase)
        self._put("phase", phase=phase, edge=edge)
        self._wake()

    def _put(self, kind: str, **fields: Any) -> None:
        with self._lock:
            self._seq += 1
            seq = self._seq
        mono = fields.pop("mono_seconds", self._clock.mono())
        at = fields.pop("at_unix_seconds", self._clock.at_server(mono))
        event = TaskEvent(seq=seq, kind=kind, at_unix_seconds=at, mono_seconds=mono, **fields)
        self._spool.put_event(self._attempt, event)


def storable(text: str) -> str:
    """Text that JSON can carry: file names may hold bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
