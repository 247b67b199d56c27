"""What a root is, so that the next look can tell a missing mount from an empty folder."""

from __future__ import annotations

import os

from muster_agent.protocol.wire import RootMark


def root_mark(root: str) -> RootMark | None:
    """The mark of the folder at `root`, links followed; None where it cannot be looked at."""
    try:
        real = os.path.realpath(root)
        seen = os.stat(real)
    except OSError:
        return None
    return RootMark(mount_point=_mount_point(real), device=seen.st_dev, inode=seen.st_ino)


def _mount_point(path: str) -> str:
    while not os.path.ismount(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path
