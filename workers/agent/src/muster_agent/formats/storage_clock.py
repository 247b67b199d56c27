"""What time the storage thinks it is: a file's age is only known against the clock that stamped it."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

STORAGE, LOCAL = "storage", "local"


class Clock(NamedTuple):
    """`source` is `storage` where the storage was asked, else `local`: this machine's clock, which may differ."""

    unix_seconds: float
    source: str


def storage_clock(place: str) -> Clock:
    """The time now on the storage that holds `place`. A file without a name is made there and closed at once, so that
    nothing is left and no folder changes; where that is not possible the local clock stands in."""
    folder = place if os.path.isdir(place) else os.path.dirname(place)
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        return Clock(time.time(), LOCAL)
    try:
        return Clock(os.fstat(descriptor).st_mtime_ns / 1e9, STORAGE)
    finally:
        os.close(descriptor)
