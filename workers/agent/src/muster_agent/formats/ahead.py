"""Files that are opened one after the other, brought near beforehand by several threads at once: a storage that is far
away then costs its time once for many small files, not once for each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

THREADS = 16
WINDOW = 512
_FEW = 32
"""So few are not worth any threads."""
_END_BYTES = 4096
_NEAR_BYTES = 64 * 1024
"""What the kernel reads along with a file's first bytes, and more."""


def in_turn(paths: Iterable[str], bring: Callable[[str], None], window: int = WINDOW) -> Iterator[str]:
    """The paths in their order, each after `bring` of it has returned. While they are used nothing runs beside: threads
    that only wait for the storage would still take turns with the caller's own work."""
    listed = list(paths)
    if len(listed) < _FEW:
        yield from listed
        return
    with ThreadPoolExecutor(THREADS, thread_name_prefix="muster-ahead") as pool:
        for begin in range(0, len(listed), window):
            due = listed[begin : begin + window]
            list(pool.map(partial(_bring_each, bring), (due[first::THREADS] for first in range(THREADS))))
            yield from due


def _bring_each(bring: Callable[[str], None], paths: Sequence[str]) -> None:
    for path in paths:
        bring(path)


def bring_ends(path: str) -> None:
    """The file's first and last bytes into memory, where formats have what they say of themselves. Raises nothing."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.pread(descriptor, _END_BYTES, 0)
            size_bytes = os.lseek(descriptor, 0, os.SEEK_END)
            if size_bytes > _NEAR_BYTES:
                os.pread(descriptor, _END_BYTES, size_bytes - _END_BYTES)
        finally:
            os.close(descriptor)
