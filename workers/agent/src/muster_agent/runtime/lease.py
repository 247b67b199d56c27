"""A lease as its holder sees it: over before the server would call it so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Lease:
    """Renewed by what was sent, not by when the answer came. The server adds a grace after the lease, the holder none:
    when both lose sight of each other, the work has stopped here before it is given to somebody else."""

    def __init__(self, lease_seconds: float, sent_mono: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ends_at = sent_mono + lease_seconds
        self._renewed_at = sent_mono
        self.lease_seconds = lease_seconds

    def renew(self, lease_seconds: float, sent_mono: float) -> None:
        """A request sent at `sent_mono` was answered with this many seconds more."""
        with self._lock:
            if sent_mono + lease_seconds > self._ends_at:
                self._ends_at = sent_mono + lease_seconds
            self._renewed_at = max(self._renewed_at, sent_mono)
            self.lease_seconds = lease_seconds

    @property
    def is_due(self) -> bool:
        """Time to renew, by an empty batch if there is nothing to say."""
        with self._lock:
            return self._monotonic() - self._renewed_at >= self.lease_seconds / 4

    @property
    def is_over(self) -> bool:
        with self._lock:
            return self._monotonic() >= self._ends_at
