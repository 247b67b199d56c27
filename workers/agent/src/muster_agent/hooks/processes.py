"""Is that process still the one we mean? A pid alone is reused; pid and start time together are not."""

from __future__ import annotations

import os
from typing import NamedTuple

_DEAD_STATES = frozenset("ZXx")


class ProcessStat(NamedTuple):
    """`state` is the letter of proc(5); `start_ticks` is the start time in clock ticks after boot."""

    state: str
    start_ticks: int


def parse_stat(text: str) -> ProcessStat:
    """Parse `/proc/<pid>/stat`. The command name may hold spaces and brackets, so count from the last bracket.

    Raises ValueError or IndexError for any other text.
    """
    fields = text[text.rindex(")") + 1 :].split()
    return ProcessStat(state=fields[0], start_ticks=int(fields[19]))


def read_stat(pid: int) -> ProcessStat | None:
    """The process's state and start time, None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return parse_stat(stream.read())
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid: int, start_ticks: int) -> bool:
    """True while the very process runs; a zombie or a reuse of its pid is not it."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.state not in _DEAD_STATES


def owner_uid(pid: int) -> int | None:
    """The user the process runs as (effective), None when there is no such process."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None
