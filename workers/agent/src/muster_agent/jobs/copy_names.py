"""Names that a copy or a removal was given, by a bucket's listing or by the control plane: none leads out of the place
that it is a name in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.protocol.copies import CopyCursor
from muster_agent.storage.posix import is_safe_name

_TAG = re.compile(r"[A-Za-z0-9_-]{1,64}")


def require_inside(place: str, names: Iterable[str]) -> None:
    """Raises CopyTrouble for a name that is absolute, has `..` in it, or is none."""
    for name in names:
        if not is_safe_name(name):
            raise CopyTrouble("unsupported", f"{place}: the name {name[:200]!r} leads out of it; nothing was touched")


def require_cursor_inside(place: str, cursor: CopyCursor) -> None:
    """As `require_inside`, of everything that a cursor names."""
    require_inside(place, (one.path for one in (*cursor.files, *cursor.left_out)))
    require_inside(place, cursor.folders)


def require_tag(tag: str) -> None:
    """Raises CopyTrouble for a tag that is more than a part of a file's name."""
    if not _TAG.fullmatch(tag):
        raise CopyTrouble("unsupported", f"the tag {tag[:200]!r} is no plain word; nothing was touched")
