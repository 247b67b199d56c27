"""Status and trust of one placement, from what was listed and what was proven. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from muster_agent.formats.base import Status
from muster_agent.protocol.trust import Trust

MISSING = "missing"
"""The status that only the control plane knows: it was there, its root is readable, it is gone."""

_MAY_BE_WHOLE = frozenset({Status.COMPLETE, Status.UNREADABLE, Status.ARCHIVED, Status.UNKNOWN})
_HIDDEN_BY_DAMAGE = frozenset({Status.COMPLETE, Status.UNCOMMITTED, Status.IN_PROGRESS, Status.UNKNOWN})


def effective_status(listed_status: str, *, damaged: bool) -> str:
    """What the listing said, but `corrupt` where reading the bytes found damage that a listing cannot see."""
    return Status.CORRUPT.value if damaged and listed_status in _HIDDEN_BY_DAMAGE else str(listed_status)


def highest_rung(listed_status: str, *, damaged: bool, rungs: Iterable[str]) -> Trust:
    """The highest rung that holds. `rungs` are those of standing evidence about exactly the files that lie there now.

    Damage leaves only what a listing can tell; so does a listing that says that the copy is not whole. Evidence about
    a copy that could not be looked at just now still holds, since nothing says that its bytes have changed.
    """
    base = Trust.COMPLETE if listed_status == Status.COMPLETE else Trust.LISTED
    if damaged or listed_status not in _MAY_BE_WHOLE:
        return base
    return max([base, *(Trust(rung) for rung in rungs)], key=lambda trust: trust.rung)
