"""Ranks of one host that need the same bytes: read once, and how many bytes that gave to all of them."""

from __future__ import annotations

from typing import Any

from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.reload.arena import Arena
from muster_agent.reload.shared import SharedArena, deliver

_STOPPED = "it was stopped before each of them had read all of it"


def share_among_ranks(kept: Arena | None, ranks: int | None, control: JobControl) -> dict[str, Any]:
    """What the other ranks of this host had of the same read, as evidence; its time is beside the reload's. Told to
    stop it ends the ranks, and says so. Raises NotShared."""
    if not ranks:
        return {}
    if not isinstance(kept, SharedArena):
        return _not_shared(ranks, "the bytes are in a GPU's memory, not the host's")
    try:
        return {"shared": deliver(kept, ranks, control.check)}
    except Cancelled:
        return _not_shared(ranks, _STOPPED)


def was_stopped(evidence: dict[str, Any]) -> bool:
    """Whether the sharing that gave this evidence was told to stop."""
    return bool(evidence) and evidence["shared"].get("not_shared_because") == _STOPPED


def _not_shared(ranks: int, why: str) -> dict[str, Any]:
    return {"shared": {"ranks": ranks, "not_shared_because": why}}
