"""The kernel's own word on whether anybody opened, read or changed something in a folder: inotify."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
ACCESS, OPEN = 0x1, 0x20
_CHANGES = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800


class Watched:
    """Every event in these folders from now on, by any process."""

    def __init__(self, *folders: Path) -> None:
        self._fd = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in folders:
            if _LIBC.inotify_add_watch(self._fd, os.fsencode(folder), ACCESS | OPEN | _CHANGES) < 0:
                raise OSError(ctypes.get_errno(), "inotify", str(folder))

    def events(self) -> list[tuple[int, str]]:
        """(mask, name) of each that was not asked for yet."""
        found = []
        while True:
            try:
                data = os.read(self._fd, 65536)
            except BlockingIOError:
                return found
            while data:
                _watch, mask, _cookie, length = struct.unpack_from("iIII", data)
                found.append((mask, data[16 : 16 + length].rstrip(b"\0").decode()))
                data = data[16 + length :]

    def close(self) -> None:
        os.close(self._fd)
