"""What retention must never remove, whatever a policy says: asked when a plan is made, and again at the last moment
before anything is deleted. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from muster_agent.protocol.trust import Trust

COMPLETE = "complete"


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One placement, as far as keeping it matters. `age_seconds` None where nothing tells when it was saved."""

    placement: str
    checkpoint: str
    run: str
    step: int
    tier: str
    path: str
    run_name: str = ""
    format: str = ""
    status: str = COMPLETE
    trust: Trust = Trust.LISTED
    total_bytes: int = 0
    optimizer_bytes: int = 0
    resumable: bool = True
    root_digest: str = ""
    """Of all its bytes; empty where it was not sealed."""
    made_from: str = ""
    """The root digest of the copy that a policy made it from without its optimizer state; empty for whole copies."""
    age_seconds: float | None = None
    pins: tuple[str, ...] = ()
    """Who pinned the checkpoint, and why."""
    labels: frozenset[str] = frozenset()
    holds: tuple[str, ...] = ()
    """Who needs it now: drills and running jobs."""
    pointers: tuple[str, ...] = ()
    """The frameworks' own files that name it as the one to load."""
    pointer_doubts: tuple[str, ...] = ()
    """Such files beside it that could not be read, so that they may name it."""
    transfer: str = ""
    """The unfinished transfer that it is part of."""

    @property
    def is_verified(self) -> bool:
        """Every byte of it was read and was right, and nothing has changed since."""
        return self.status == COMPLETE and self.trust.rung >= Trust.VERIFIED.rung


def verified_copies(of_run: Sequence[Copy]) -> list[Copy]:
    """Those of one run that a restart could rely on; where nothing of the run can be resumed from, all that are
    verified."""
    any_resumable = any(copy.resumable for copy in of_run)
    return [copy for copy in of_run if copy.is_verified and (copy.resumable or not any_resumable)]


class Newest(NamedTuple):
    """The latest verified copies of one run: by step, and by when they were saved."""

    by_step: Copy
    by_time: Copy


def newest_verified(of_run: Sequence[Copy]) -> Newest | None:
    """None where no copy of the run is verified."""
    verified = verified_copies(of_run)
    if not verified:
        return None
    by_time = min(verified, key=lambda one: math.inf if one.age_seconds is None else one.age_seconds)
    return Newest(max(verified, key=lambda one: one.step), by_time)


def why_never(copy: Copy, newest: Newest | None) -> tuple[str, ...]:
    """Why this copy must not be removed, by rules that no policy overrides; empty where none of them speaks against
    it. `newest` are the latest verified copies of its run, on whatever tier."""
    reasons = [*_against_by_age(copy, newest)]
    reasons += [f"it is pinned ({pin})" for pin in copy.pins]
    reasons += [f"it is needed by {hold}" for hold in copy.holds]
    reasons += [f"{pointer} names it" for pointer in copy.pointers]
    reasons += [f"{pointer} cannot be read, so it may name this one" for pointer in copy.pointer_doubts]
    return tuple(reasons)


def _against_by_age(copy: Copy, newest: Newest | None) -> Iterable[str]:
    """Newer by its step, or by when it was saved: after a training went back, lower steps are the newer ones."""
    if newest is None:
        yield "no checkpoint of its run is verified yet; verify one, so that older ones may go"
    elif copy.step > newest.by_step.step:
        yield f"it is newer than step {newest.by_step.step}, the latest that is verified"
    elif copy.is_verified and copy.step in (newest.by_step.step, newest.by_time.step):
        yield "it is the newest verified checkpoint of its run"
    elif _is_younger(copy, newest.by_time):
        yield f"it was saved after step {newest.by_time.step}, the latest that is verified"


def _is_younger(copy: Copy, other: Copy) -> bool:
    if copy.age_seconds is None or other.age_seconds is None or copy.checkpoint == other.checkpoint:
        return False
    return copy.age_seconds < other.age_seconds


def colder_copies(copy: Copy, of_run: Iterable[Copy], tier_orders: Mapping[str, int]) -> list[Copy]:
    """Copies of the same state on slower tiers, the slowest last. `tier_orders`: 0 is the fastest."""
    own = tier_orders.get(copy.tier, 0)
    found = [one for one in of_run if tier_orders.get(one.tier, own) > own and is_same_state(copy, one)]
    return sorted(found, key=lambda one: (tier_orders[one.tier], one.placement))


def is_same_state(one: Copy, other: Copy) -> bool:
    """Whether both are copies of one checkpoint, in one format; equal bytes settle it, and so does
    that `other` was made from `one`."""
    if one.checkpoint != other.checkpoint or one.format != other.format:
        return False
    if one.root_digest and one.root_digest == other.made_from:
        return True
    if one.root_digest and other.root_digest:
        return one.root_digest == other.root_digest
    return one.total_bytes == other.total_bytes


def why_not_retired(copy: Copy, of_run: Sequence[Copy], tier_orders: Mapping[str, int]) -> tuple[str, ...]:
    """As `why_never`, and the colder copy that is to stand in for it must be verified. `of_run` are all
    copies of its run, on every tier, itself among them."""
    reasons = why_never(copy, newest_verified(of_run))
    colder = colder_copies(copy, of_run, tier_orders)
    if any(one.is_verified for one in colder):
        return reasons
    if not colder:
        return (*reasons, "there is no copy of it on a colder tier")
    return (*reasons, f"its colder copy on {colder[-1].tier} is not verified")
