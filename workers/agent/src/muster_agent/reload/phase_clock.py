"""Wall time told apart by what is going on at the same time in many threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from muster_agent.protocol.phases import Phase


class PhaseClock:
    """Each moment belongs to the first of `order` that any thread is in, so the seconds never count twice."""

    def __init__(self, order: Sequence[Phase]) -> None:
        self.seconds: dict[Phase, float] = dict.fromkeys(order, 0.0)
        self._inside = dict.fromkeys(order, 0)
        self._current: Phase | None = None
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def enter(self, phase: Phase) -> None:
        """The calling thread begins to be in it."""
        with self._lock:
            self._inside[phase] += 1
            if self._inside[phase] == 1:
                self._turn()

    def leave(self, phase: Phase) -> None:
        """A thread is no longer in it."""
        with self._lock:
            self._inside[phase] -= 1
            if self._inside[phase] == 0:
                self._turn()

    def _turn(self) -> None:
        now = time.monotonic()
        if self._current is not None:
            self.seconds[self._current] += now - self._since
        self._current = next((phase for phase, threads in self._inside.items() if threads), None)
        self._since = now
