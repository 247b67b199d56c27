"""How much room each storage target of a mounted Lustre has left. The sum over all of them, which `df` shows, may be
large while one target is full, and a file that is striped over that one fails with ENOSPC."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from muster_agent.formats.places import lies_in

KEPT_BY_THE_CLIENT = ("/sys/fs/lustre/osc", "/proc/fs/lustre/osc")
"""Newer clients and older ones; everybody may read it."""
MOUNTS = "/proc/self/mounts"
_CONNECTION = re.compile(r"(?P<target>(?P<file_system>.+)-OST[0-9a-f]{4})-osc-[0-9a-zA-Z]+", re.ASCII)
"""As the client calls its connection to one target: `scratch-OST0003-osc-ffff88003f8a1000`."""
_SOURCE = re.compile(r".+:/(?P<file_system>[^/]+).*", re.ASCII)
"""What is mounted: `mgs1@o2ib:mgs2@o2ib:/scratch`, or a folder of it, `10.0.0.5@tcp:/scratch/team`."""
_KIB = 1024


class TargetSpace(NamedTuple):
    """`free_bytes` are those that an ordinary user may still fill."""

    target: str
    total_bytes: int
    free_bytes: int


def read_target_spaces(
    path: str, mounts: str = MOUNTS, kept: Iterable[str] = KEPT_BY_THE_CLIENT
) -> tuple[TargetSpace, ...]:
    """Of each target in use of the Lustre that holds `path`, by name; nothing where none does, or the client does not
    tell. Raises nothing."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as table:
            file_system = parse_file_system(table.read(), path)
    except OSError:
        return ()
    found: dict[str, TargetSpace] = {}
    for folder in kept if file_system else ():
        for connection in _names_in(folder):
            match = _CONNECTION.fullmatch(connection)
            space = _read_space(os.path.join(folder, connection), match["target"]) if match else None
            if match and space and match["file_system"] == file_system:
                found.setdefault(space.target, space)  # one that is mounted twice is connected twice
    return tuple(found[name] for name in sorted(found))


def parse_file_system(mounts: str, path: str) -> str | None:
    """The name of the Lustre that is mounted at `path`, an absolute one without links, or nearest above it; None where
    what is mounted there is no Lustre."""
    nearest = ("", "", "")
    for line in mounts.splitlines():
        source, place, kind, *_ = [*line.split(" "), "", "", ""]
        place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place)
        if place and lies_in(path, place) and len(place) >= len(nearest[1]):
            nearest = source, place, kind
    match = _SOURCE.fullmatch(nearest[0]) if nearest[2] == "lustre" else None
    return match["file_system"] if match else None


def short_of(spaces: Iterable[TargetSpace], needed_bytes: int) -> list[TargetSpace]:
    """Those with less room than `needed_bytes`, the fullest first."""
    return sorted((one for one in spaces if one.free_bytes < needed_bytes), key=lambda one: one.free_bytes)


def _read_space(connection: str, target: str) -> TargetSpace | None:
    """None for a target that was taken out of use, or of which nothing is told."""
    total, free, active = (_number(os.path.join(connection, one)) for one in ("kbytestotal", "kbytesavail", "active"))
    if not total or free is None or active == 0:
        return None
    return TargetSpace(target, total * _KIB, free * _KIB)


def _number(file: str) -> int | None:
    try:
        with open(file, encoding="ascii", errors="replace") as opened:
            text = opened.read(64).strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
