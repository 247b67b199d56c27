"""A cap on bytes per second that many threads share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_NAP_SECONDS = 0.05


class Throttle:
    """At any moment no more than `max_bytes_per_second` times the time since the first wait has been let through."""

    def __init__(self, max_bytes_per_second: int | None) -> None:
        if max_bytes_per_second is not None and max_bytes_per_second <= 0:
            raise ValueError("max_bytes_per_second must be above 0")
        self._rate = max_bytes_per_second
        self.is_capped = max_bytes_per_second is not None
        self._lock = threading.Lock()
        self._free_at: float | None = None

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
