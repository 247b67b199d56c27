"""This process's memory, from /proc."""

from __future__ import annotations

import contextlib


def parse_status(text: str) -> tuple[int, int]:
    """(resident bytes now, highest resident bytes so far) from /proc/self/status; 0 where a line is absent."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return _kib(fields.get("VmRSS", "0 kB")), _kib(fields.get("VmHWM", "0 kB"))


def _kib(field: str) -> int:
    return int(field.split()[0]) * 1024


def read_memory() -> tuple[int, int]:
    """(resident bytes now, highest so far) of this process."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return parse_status(file.read())


class PeakMemory:
    """Extra resident memory since `begin`: the peak is reset first where the kernel lets us, so that an earlier and
    larger peak of the same process does not hide this one."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
        self._before_bytes, _ = read_memory()

    def extra_bytes(self) -> int:
        """Growth of the peak over the resident memory at the beginning, never below 0."""
        return max(0, read_memory()[1] - self._before_bytes)
