"""A fence around an agent's process: below which folders it reads checkpoints' files, whatever a name leads to by the
time that it is opened.

Paths are judged before a task begins (`tasks.roots`), but whoever writes into a root may swap a link after that. What
was opened is therefore asked of the kernel once more before a byte of it is read. A hard link has no other place to
tell; that only owners can make one is `fs.protected_hardlinks` of the kernel.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from muster_agent.formats.places import is_bucket, lies_in, resolved

_DELETED = " (deleted)"
_folders: tuple[str, ...] | None = None


class OutsideFence(PermissionError):
    """An open file does not lie where this process may read."""


def keep_to(folders: Iterable[str] | None) -> None:
    """From now on; None takes the fence away. Buckets among them are no folders."""
    global _folders
    _folders = None if folders is None else tuple(resolved(one) for one in folders if not is_bucket(one))


def require_inside(descriptor: int, path: str) -> None:
    """Raises OutsideFence for an open file that does not lie inside; the caller closes it."""
    if _folders is None:
        return
    real = os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(_DELETED)
    if not any(lies_in(real, one) for one in _folders):
        raise OutsideFence(errno.EACCES, "it leads out of this agent's roots", path)
