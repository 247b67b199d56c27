"""The end of a log that somebody else writes: new lines as they come, across rotation, truncation and new files."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time

READ_BYTES = 1024 * 1024
MAX_BEHIND_BYTES = 64 * READ_BYTES
"""Further behind, and what lies between is not read: nobody would know when it was written."""
NAMES_LOOK_SECONDS = 2.0
MAX_NAMES = 10_000
MAX_PART_BYTES = 4096
"""Of a line that does not end, the beginning is kept."""

logger = logging.getLogger("muster_agent.hooks")


class TailedFile:
    """Follows the newest file that `path` names (`*` and `%j` in its last part). `job` is what stood at `%j`.

    What was in the file before the first look is not read, as nobody knows when it was written; a file that appears
    later is read from its beginning. One that was moved away is read to its end first; one that became shorter is read
    from its beginning again.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._names = None if not _has_marks(path) else _pattern(os.path.basename(path))
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        """Of the file that was opened last, also after an error closed it: then it is read on at `_offset`."""
        self._offset = 0
        self._part = b""
        self._looked_before = False
        self._look_for_names_at = 0.0
        self._newest: str | None = None if self._names else path
        self.job = ""

    def lines(self) -> list[str]:
        """New whole lines of one file, without their ends; call again for more. What cannot be read has none."""
        try:
            return self._lines()
        except OSError as error:
            logger.warning("Muster: the log %s cannot be read: %s", self._path, error)
            self._close()
            return []
        finally:
            self._looked_before = True

    def close(self) -> None:
        self._close()

    def _lines(self) -> list[str]:
        path = self._newest_path()
        if self._descriptor is not None:
            data = self._read()
            if data or path is None or self._is_open(path):
                return self._split(data)
            last, self._part = self._part, b""
            self._open(path)
            return [_text(last)] if last else []
        if path is not None:
            self._open(path)
            if self._descriptor is not None:
                return self._split(self._read())
        return []

    def _newest_path(self) -> str | None:
        if self._names is None or time.monotonic() < self._look_for_names_at:
            return self._newest
        self._look_for_names_at = time.monotonic() + NAMES_LOOK_SECONDS
        found: list[tuple[int, str]] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(os.path.dirname(self._path)) as entries:
            for entry in entries:
                if self._names.fullmatch(entry.name) and entry.is_file() and len(found) < MAX_NAMES:
                    found.append((entry.stat().st_mtime_ns, entry.name))
        if found:
            self._newest = os.path.join(os.path.dirname(self._path), max(found)[1])
        return self._newest

    def _is_open(self, path: str) -> bool:
        """Also where nothing lies at `path` just now: the next file of this name is not there yet."""
        try:
            told = os.stat(path)
        except FileNotFoundError:
            return True
        return (told.st_dev, told.st_ino) == self._identity

    def _open(self, path: str) -> None:
        self._close()
        before = self._identity
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            os.close(descriptor)
            raise OSError(f"{path} is no regular file")
        self._descriptor, self._identity = descriptor, (told.st_dev, told.st_ino)
        if self._identity != before:
            self._offset, self._part = (0 if self._looked_before else told.st_size), b""
        found = self._names.fullmatch(os.path.basename(path)) if self._names else None
        self.job = (found.groupdict().get("job") or "") if found else ""

    def _read(self) -> bytes:
        assert self._descriptor is not None
        size = os.fstat(self._descriptor).st_size
        if size < self._offset:
            self._offset, self._part = 0, b""
        if size - self._offset > MAX_BEHIND_BYTES:
            logger.warning("Muster: %d bytes of %s were not read", size - self._offset, self._path)
            self._offset, self._part = size, b""
        data = os.pread(self._descriptor, READ_BYTES, self._offset)
        self._offset += len(data)
        return data

    def _split(self, data: bytes) -> list[str]:
        """Progress bars end their lines by a carriage return."""
        *whole, part = (self._part + data).replace(b"\r", b"\n").split(b"\n")
        self._part = part[:MAX_PART_BYTES]
        return [_text(line) for line in whole if line]

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _has_marks(path: str) -> bool:
    name = os.path.basename(path)
    return "*" in name or "%j" in name


def _pattern(name: str) -> re.Pattern[str]:
    """`slurm-%j*.out`: `%j` is digits, once; `*` is anything."""
    first, mark, rest = name.partition("%j")
    middle = r"(?P<job>[0-9]{1,18})" if mark else ""
    return re.compile(_globbed(first) + middle + _globbed(rest.replace("%j", "*")))


def _globbed(text: str) -> str:
    return "[^/]*".join(re.escape(part) for part in re.sub(r"\*+", "*", text).split("*"))


def _text(line: bytes) -> str:
    return line[:MAX_PART_BYTES].decode("utf-8", "replace")
