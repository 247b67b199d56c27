"""Wall time told apart by what is going on at the same time in many threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

from muster_agent.protocol.phases import Phase


class PhaseClock:
    """Each moment belongs to the first of `order` that any thread is in, so the seconds never count twice."""

    def __init__(self, order: Sequence[Phase]) -> None:
        self.seconds: dict[Phase, float] = dict.fromkeys(order, 0.0)
        self._inside: Counter[Phase] = Counter()
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def enter(self, phase: Phase) -> None:
        """The calling thread begins to be in it."""
        self._move(phase, 1)

    def leave(self, phase: Phase) -> None:
        """A thread is no longer in it."""
        self._move(phase, -1)

    def _move(self, phase: Phase, by: int) -> None:
        with self._lock:
            now = time.monotonic()
            current = next((one for one in self.seconds if self._inside[one] > 0), None)
            if current is not None:
                self.seconds[current] += now - self._since
            self._since = now
            self._inside[phase] += by
