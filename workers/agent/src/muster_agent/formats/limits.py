"""How much of a pickle that is not ours is parsed in this process. What is larger is parsed in a child (child.py), so
that a file can cost neither this process's memory nor the time of the other checkpoints."""

from __future__ import annotations

PICKLE_BYTES_HERE = 1024 * 1024
"""A pickle of this size that is made to hurt costs about half a second and less than 100 MiB."""


class NeedsChild(Exception):
    """The reading of this checkpoint must start anew in a child process."""


class _Here:
    pickle_bytes: int | None = PICKLE_BYTES_HERE


def check_pickle(size_bytes: int) -> None:
    """Call before a pickle of that size is read into memory. Raises NeedsChild where it is too large for here."""
    if _Here.pickle_bytes is not None and size_bytes > _Here.pickle_bytes:
        raise NeedsChild(size_bytes)


def lift() -> None:
    """From now on, pickles of any size are parsed here: this process is a child and has limits of its own."""
    _Here.pickle_bytes = None
