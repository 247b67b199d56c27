"""A cap on bytes per second that many threads share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_NAP_SECONDS = 0.05


class Throttle:
    """At any moment no more than `max_bytes_per_second` times the time since the first wait has been let through."""

    def __init__(self, max_bytes_per_second: int | None, *, debt_seconds: float = 0.0) -> None:
        """`debt_seconds`: what an earlier one of the same work had let through too early."""
        if max_bytes_per_second is not None and max_bytes_per_second <= 0:
            raise ValueError("max_bytes_per_second must be above 0")
        self._rate = max_bytes_per_second
        self.is_capped = max_bytes_per_second is not None
        self._lock = threading.Lock()
        self._free_at: float | None = time.monotonic() + debt_seconds if debt_seconds else None

    @property
    def debt_seconds(self) -> float:
        """How long nothing more may pass."""
        with self._lock:
            return max((self._free_at or 0.0) - time.monotonic(), 0.0)

    def wait(self, size_bytes: int, check: Callable[[], None]) -> None:
        """Return when `size_bytes` may be read. Calls `check` (which may raise) at least every 50 ms meanwhile."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(now, self._free_at or now) + size_bytes / self._rate
            allowed_at = self._free_at
        while (left := allowed_at - time.monotonic()) > 0:
            check()
            time.sleep(min(left, _NAP_SECONDS))
