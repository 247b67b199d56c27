"""The node's own hard limits. They hold whatever the control plane asks for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

_NAP_SECONDS = 0.05


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None: no limit of the node's own."""

    max_bytes_per_second: int | None = None
    max_minutes: float | None = None
    max_bytes: int | None = None


class LimitExceeded(Exception):
    """`code` is `limit_bytes` or `limit_minutes`; the message names the limit."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LimitGuard:
    """Watches one task's progress. `moved` is called by the job's threads after every chunk and holds them back when
    they are too fast; `check_time` is called by a watchdog."""

    def __init__(self, limits: Limits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._began_at = monotonic()
        self._lock = threading.Lock()
        self._done: dict[str, int] = {}
        self._free_at: float | None = None

    def moved(self, phase: str, done_bytes: int, is_cancelled: Callable[[], bool]) -> None:
        """Returns when the work may go on, at once if it is cancelled. Raises LimitExceeded when it must end."""
        with self._lock:
            grown = max(0, done_bytes - self._done.get(phase, 0))
            self._done[phase] = max(done_bytes, self._done.get(phase, 0))
            allowed_at = self._pay(grown)
        if self._limits.max_bytes is not None and sum(self._done.values()) > self._limits.max_bytes:
            raise LimitExceeded("limit_bytes", f"this node allows a task {self._limits.max_bytes} bytes")
        while (left := allowed_at - self._monotonic()) > 0 and not is_cancelled():
            time.sleep(min(left, _NAP_SECONDS))

    def check_time(self) -> None:
        """Raises LimitExceeded once the task has run for longer than the node allows."""
        limit = self._limits.max_minutes
        if limit is not None and self._monotonic() - self._began_at > limit * 60:
            raise LimitExceeded("limit_minutes", f"this node allows a task {limit:g} minutes")

    def _pay(self, grown_bytes: int) -> float:
        now, rate = self._monotonic(), self._limits.max_bytes_per_second
        if rate is None:
            return now
        self._free_at = max(now, self._free_at or now) + grown_bytes / rate
        return self._free_at
