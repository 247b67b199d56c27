"""Whether copies that a listing did not find are gone, or their storage is. Pure.

An unmounted file system looks like an empty folder. Taking what is there for gone would have every run start over, so a
listing is believed only where nothing speaks for a missing mount.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Mark = Mapping[str, Any]
"""What a root was when listed: `mount_point`, `device` and `inode`."""


def doubt(
    root: str, *, known: int, vanished: int, listed: int, before: Mark | None = None, now: Mark | None = None
) -> str:
    """Why the copies that were not found may well be there still; empty where they are gone. `known` copies were there
    before, `vanished` of these were not found, `listed` checkpoints were. `before` and `now` are the marks of the same
    root as the same lister saw it, None where not told."""
    if not vanished:
        return ""
    moved = _what_moved(root, before, now)
    is_same = not moved and before is not None and now is not None
    if not listed and vanished >= known and not is_same:
        why = f" ({moved})" if moved else ""
        return f"nothing is left under {root}, where {_copies(vanished)}{why}; an unmounted file system looks the same"
    if moved and 2 * vanished >= known:
        return f"{moved}, and {vanished} of {known} copies were not found in it"
    return ""


def _copies(count: int) -> str:
    return "a copy was" if count == 1 else f"{count} copies were"


def _what_moved(root: str, before: Mark | None, now: Mark | None) -> str:
    if before is None or now is None:
        return ""
    if before.get("mount_point") != now.get("mount_point"):
        return (
            f"{root} was on the file system mounted at {before.get('mount_point')} and is now on that at "
            f"{now.get('mount_point')}"
        )
    if any(before[name] != now.get(name) for name in ("device", "inode") if name in before):
        return f"{root} is another folder or file system than at the last listing"
    return ""
