"""How long work is watched and stopped: the one object that every job takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping


class Cancelled(Exception):
    """The work was told to stop; what it had written for itself is cleaned up, what it had read is dropped."""


def _ignore(_phase: str, _done_bytes: int, _total_bytes: int) -> None:
    return


def _ignore_counts(_counts: Mapping[str, int]) -> None:
    return


class JobControl:
    """Progress out, cancellation in. `progress(phase, done_bytes, total_bytes)` must be cheap and thread-safe; `tell`
    gets what else a job counts, by name, now and then. Jobs call `check()` at least once per chunk and once per
    second."""

    def __init__(
        self,
        progress: Callable[[str, int, int], None] = _ignore,
        cancel: threading.Event | None = None,
        tell: Callable[[Mapping[str, int]], None] = _ignore_counts,
    ) -> None:
        self.progress, self.tell = progress, tell
        self._cancel = cancel or threading.Event()

    def cancel(self) -> None:
        self._cancel.set()

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    def check(self) -> None:
        """Raise `Cancelled` when the work was told to stop."""
        if self._cancel.is_set():
            raise Cancelled("cancelled")
