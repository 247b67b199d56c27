"""Two clocks: the monotonic one for durations, and the server's, estimated, for times that others will compare."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

MAX_ROUND_TRIP_SECONDS = 1.0
"""A slower exchange (a held poll, say) tells too little about when the server looked at its clock."""
KEPT_SAMPLES = 8
STALE_SECONDS = 600.0


class ServerClock:
    """The server's time, from the exchange with the shortest round trip among the latest few.

    It is anchored to the monotonic clock, so a node's wall clock may jump without anything here noticing.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=KEPT_SAMPLES)

    def mono(self) -> float:
        return self._monotonic()

    def sample(self, sent_mono: float, received_mono: float, server_unix_seconds: float) -> None:
        """One exchange: when the request left, when its answer came, and the server's clock in between."""
        round_trip = received_mono - sent_mono
        if not 0 <= round_trip <= MAX_ROUND_TRIP_SECONDS or server_unix_seconds <= 0:
            return
        with self._lock:
            offset = server_unix_seconds - (sent_mono + received_mono) / 2
            self._samples.append((round_trip, offset, received_mono))

    def server_now(self) -> float:
        """Unix seconds on the server's clock; this node's own while the server's is not known."""
        offset = self._mono_offset()
        return self._wall() if offset is None else self._monotonic() + offset

    def at_server(self, mono_seconds: float) -> float:
        """The server's time at a moment of the monotonic clock."""
        return self.server_now() + mono_seconds - self._monotonic()

    def to_mono(self, server_unix_seconds: float) -> float:
        """The moment of the monotonic clock at which the server's clock shows this."""
        return self._monotonic() + server_unix_seconds - self.server_now()

    def offset_seconds(self) -> float | None:
        """Server's clock minus this node's wall clock as it is now; None while not known."""
        offset = self._mono_offset()
        return None if offset is None else self._monotonic() + offset - self._wall()

    @property
    def needs_sample(self) -> bool:
        """Whether a short exchange should be made: clocks drift apart by seconds a day."""
        with self._lock:
            return not self._samples or self._monotonic() - self._samples[-1][2] > STALE_SECONDS

    def _mono_offset(self) -> float | None:
        with self._lock:
            if not self._samples:
                return None
            newest = self._samples[-1][2]
            return min(sample for sample in self._samples if newest - sample[2] <= STALE_SECONDS)[1]
