"""Which copies of a run's checkpoints move down, which go, and why each other one stays: one pure decision, shown as a
plan before anything acts on it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from muster_agent.decide.keeping import COMPLETE, Copy, colder_copies, newest_verified, why_never
from muster_agent.formats.times import duration

DEFAULT_KEEP_NEWEST = 4


class Action(StrEnum):
    MOVE = "move"
    """Copy it to the colder tier, prove the copy, then remove it here."""
    RETIRE = "retire"
    """A colder copy is verified already: remove it here."""
    EXPIRE = "expire"
    """It is older than the policy keeps, on the coldest tier: remove it for good."""
    STAY = "stay"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy wants. `cold_tier` None: nothing is moved. Ratios are of the hot tier's capacity."""

    hot_tier: str
    cold_tier: str | None = None
    keep_newest: int = DEFAULT_KEEP_NEWEST
    """Steps of each run that stay on the hot tier."""
    keep_every_steps: int | None = None
    """Steps that divide by it never expire."""
    exempt_labels: frozenset[str] = frozenset()
    move_after_seconds: float | None = None
    """Older ones move down although they are among the newest."""
    expire_after_seconds: float | None = None
    high_water_ratio: float | None = None
    low_water_ratio: float | None = None
    optimizer_newest: int | None = None
    """Optimizer state moves down only with this many of each run's newest steps."""


class TierState(msgspec.Struct, frozen=True, kw_only=True):
    """`order` 0 is the fastest. `used_bytes` is all that lies there, whoever wrote it; None where nobody measured."""

    tier: str
    name: str
    order: int
    capacity_bytes: int | None = None
    used_bytes: int | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one copy, and why. `moved_bytes` is what has to be copied, `freed_bytes` what is removed."""

    copy: Copy
    action: Action
    reasons: tuple[str, ...]
    to_tier: str | None = None
    moved_bytes: int = 0
    freed_bytes: int = 0
    without_optimizer: bool = False
    seconds: float | None = None
    """None where the bandwidth was not measured, or nothing is copied."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Newest steps first. `seconds` is for all copying, one after another; None: not measured."""

    lines: tuple[Line, ...]
    tiers: tuple[TierState, ...] = ()
    notes: tuple[str, ...] = ()
    moved_bytes: int = 0
    freed_bytes: int = 0
    seconds: float | None = None

    def of(self, action: Action) -> list[Line]:
        return [line for line in self.lines if line.action is action]


def plan(
    copies: Sequence[Copy],
    rules: Rules,
    tiers: Sequence[TierState],
    *,
    bytes_per_second: float | None = None,
) -> Plan:
    """What the policy would do now. `copies`: every copy of the runs that it covers, on all tiers.
    `bytes_per_second`: as measured from the hot tier to the cold one, None where it was not."""
    planner = _Planner(copies, rules, tiers, bytes_per_second)
    planner.decide_hot()
    planner.relieve()
    planner.fit()
    planner.decide_cold()
    lines = sorted(planner.lines.values(), key=lambda line: (line.copy.run, -line.copy.step, line.copy.path))
    moved = sum(line.moved_bytes for line in lines)
    return Plan(
        lines=tuple(lines),
        tiers=tuple(tiers),
        notes=tuple(planner.notes),
        moved_bytes=moved,
        freed_bytes=sum(line.freed_bytes for line in lines),
        seconds=_seconds(moved, bytes_per_second),
    )


class _Planner:
    """Lines by placement, refined rule after rule."""

    def __init__(
        self, copies: Sequence[Copy], rules: Rules, tiers: Sequence[TierState], bytes_per_second: float | None
    ) -> None:
        self._rules = rules
        self._tiers = {tier.tier: tier for tier in tiers}
        self._orders = {tier.tier: tier.order for tier in tiers}
        self._rate = bytes_per_second
        self._runs: dict[str, list[Copy]] = defaultdict(list)
        for copy in copies:
            self._runs[copy.run].append(copy)
        self._newest = {run: newest_verified(of_run) for run, of_run in self._runs.items()}
        self._twins: dict[str, list[Copy]] = defaultdict(list)
        for copy in copies:
            self._twins[copy.checkpoint].append(copy)
        self._ranks = {run: _ranks(of_run) for run, of_run in self._runs.items()}
        self.lines: dict[str, Line] = {}
        self.notes: list[str] = []

    # -- the hot tier --------------------------------------------------------------------------------------------------
    def decide_hot(self) -> None:
        """Those that are not among the newest move down, or go where a colder copy is verified."""
        for of_run in self._runs.values():
            hot = [copy for copy in of_run if copy.tier == self._rules.hot_tier]
            positions = _ranks(hot)
            for copy in hot:
                self.lines[copy.placement] = self._hot_line(copy, positions.get(copy.step))

    def _hot_line(self, copy: Copy, position: int | None) -> Line:
        reasons = self._why_it_stays(copy)
        if reasons:
            return _stay(copy, reasons)
        assert position is not None  # only what is not complete has none, and that stays
        if position < self._rules.keep_newest:
            limit = self._rules.move_after_seconds
            if limit is None or copy.age_seconds is None or copy.age_seconds <= limit:
                return _stay(copy, (f"it is among the newest {self._rules.keep_newest} on {self._name(copy.tier)}",))
            told = f"it was saved {duration(copy.age_seconds)} ago, longer than {duration(limit)}"
            return self._down(copy, told)
        return self._down(copy, f"it is not among the newest {self._rules.keep_newest}")

    def _why_it_stays(self, copy: Copy) -> tuple[str, ...]:
        """Whatever forbids to move or remove it, however old it is."""
        reasons = []
        if copy.status != COMPLETE:
            reasons.append(f"it is {copy.status}; only what is complete is moved or removed")
        if copy.transfer:
            reasons.append(f"transfer {copy.transfer} is at work on it")
        exempt = sorted(copy.labels & self._rules.exempt_labels)
        reasons += [f"its label {label} is exempt" for label in exempt]
        return (*reasons, *why_never(copy, self._newest[copy.run]))

    def _down(self, copy: Copy, why: str) -> Line:
        """Move it, or only remove it where a colder copy is verified."""
        colder = colder_copies(copy, self._twins[copy.checkpoint], self._orders)
        verified = next((one for one in colder if one.is_verified), None)
        if verified is not None:
            told = f"its copy on {self._name(verified.tier)} is verified"
            return Line(copy=copy, action=Action.RETIRE, reasons=(why, told), freed_bytes=copy.total_bytes)
        cold = self._rules.cold_tier
        if cold is None:
            return _stay(copy, (f"{why}, but the policy names no colder tier",))
        doubtful = next((one for one in colder if one.tier == cold), None)
        if doubtful is not None:
            return _stay(
                copy, (why, f"its copy on {self._name(cold)} is {_doubt(doubtful)}; verify or remove that one")
            )
        trims = self._is_trimmed(copy)
        moved = copy.total_bytes - (copy.optimizer_bytes if trims else 0)
        return Line(
            copy=copy,
            action=Action.MOVE,
            reasons=(why, *([f"its optimizer state is older than the newest {self._rules.optimizer_newest}"] * trims)),
            to_tier=cold,
            moved_bytes=moved,
            freed_bytes=copy.total_bytes,
            without_optimizer=trims,
            seconds=_seconds(moved, self._rate),
        )

    def _is_trimmed(self, copy: Copy) -> bool:
        newest = self._rules.optimizer_newest
        position = self._ranks[copy.run].get(copy.step)
        return newest is not None and copy.optimizer_bytes > 0 and position is not None and position >= newest

    # -- water marks ---------------------------------------------------------------------------------------------------
    def relieve(self) -> None:
        """Above the high mark, more of the newest move down, oldest first, until the low mark is reached."""
        tier, high = self._tiers.get(self._rules.hot_tier), self._rules.high_water_ratio
        if tier is None or high is None:
            return
        if tier.capacity_bytes is None or tier.used_bytes is None:
            self.notes.append(f"the water marks were not applied: how full {tier.name} is was not measured")
            return
        if tier.used_bytes <= high * tier.capacity_bytes:
            return
        low = self._rules.low_water_ratio if self._rules.low_water_ratio is not None else high
        over = tier.used_bytes - sum(line.freed_bytes for line in self.lines.values()) - low * tier.capacity_bytes
        why = f"{tier.name} is {tier.used_bytes / tier.capacity_bytes:.0%} full, above its high mark of {high:.0%}"
        for line in self._spare():
            if over <= 0:
                break
            moved = self._down(line.copy, why)
            self.lines[line.copy.placement] = moved
            over -= moved.freed_bytes
        if over > 0:
            self.notes.append(f"{why}, and stays {math.ceil(over)} bytes above the low mark: the rest may not go")

    def _spare(self) -> list[Line]:
        """Those that stay only because they are among the newest, the oldest first."""
        kept = [
            line for line in self.lines.values() if line.action is Action.STAY and not self._why_it_stays(line.copy)
        ]
        return sorted(kept, key=lambda line: (-(line.copy.age_seconds or 0), line.copy.step, line.copy.placement))

    # -- room on the cold tier -----------------------------------------------------------------------------------------
    def fit(self) -> None:
        """What does not fit on the colder tier is not begun; the oldest go first."""
        tier = self._tiers.get(self._rules.cold_tier or "")
        if tier is None or tier.capacity_bytes is None or tier.used_bytes is None:
            return
        room = tier.capacity_bytes - tier.used_bytes
        moves = [line for line in self.lines.values() if line.action is Action.MOVE]
        for line in sorted(moves, key=lambda line: (line.copy.run, line.copy.step, line.copy.placement)):
            if line.moved_bytes > room:
                told = f"{tier.name} has no room for it: {line.moved_bytes} bytes, and {max(room, 0)} are free"
                self.lines[line.copy.placement] = _stay(line.copy, (*line.reasons, told))
            else:
                room -= line.moved_bytes

    # -- the cold tier -------------------------------------------------------------------------------------------------
    def decide_cold(self) -> None:
        """Those that are older than the policy keeps go for good."""
        if self._rules.cold_tier is None:
            return
        for run, of_run in self._runs.items():
            for copy in of_run:
                if copy.tier == self._rules.cold_tier:
                    self.lines[copy.placement] = self._cold_line(copy, self._ranks[run].get(copy.step))

    def _cold_line(self, copy: Copy, position: int | None) -> Line:
        limit = self._rules.expire_after_seconds
        reasons = self._why_it_stays(copy) if limit is not None else ()
        reasons = (*reasons, *self._why_not_expired(copy, position))
        if reasons:
            return _stay(copy, reasons)
        assert limit is not None and copy.age_seconds is not None
        told = f"it was saved {duration(copy.age_seconds)} ago, longer than {duration(limit)}"
        return Line(copy=copy, action=Action.EXPIRE, reasons=(told,), freed_bytes=copy.total_bytes)

    def _why_not_expired(self, copy: Copy, position: int | None) -> Iterable[str]:
        rules = self._rules
        if rules.expire_after_seconds is None:
            yield "the policy lets nothing expire"
            return
        if copy.age_seconds is None:
            yield "nothing tells when it was saved"
        elif copy.age_seconds <= rules.expire_after_seconds:
            yield f"it is not older than {duration(rules.expire_after_seconds)}"
        if rules.keep_every_steps and copy.step % rules.keep_every_steps == 0:
            yield f"every {rules.keep_every_steps} steps are kept for good"
        if position is not None and position < rules.keep_newest:
            yield f"it is among the newest {rules.keep_newest} of its run"
        if any(one.tier != copy.tier and one.status != "missing" for one in self._twins[copy.checkpoint]):
            yield "a copy of it still lies on another tier"

    def _name(self, tier: str) -> str:
        return self._tiers[tier].name if tier in self._tiers else tier


def _ranks(copies: Iterable[Copy]) -> dict[int, int]:
    """The position of each complete step, 0 for the newest: by the step or by when it was saved, whichever makes it
    newer. (After a training went back, lower steps are the newer ones.)"""
    ages: dict[int, float] = {}
    for copy in copies:
        if copy.status == COMPLETE:
            age = math.inf if copy.age_seconds is None else copy.age_seconds
            ages[copy.step] = min(age, ages.get(copy.step, math.inf))
    by_step = sorted(ages, reverse=True)
    by_age = sorted(ages, key=lambda step: (ages[step], -step))
    positions = {step: position for position, step in enumerate(by_step)}
    return {step: min(positions[step], position) for position, step in enumerate(by_age)}


def _doubt(copy: Copy) -> str:
    return "complete but not verified" if copy.status == COMPLETE else copy.status


def _stay(copy: Copy, reasons: tuple[str, ...]) -> Line:
    return Line(copy=copy, action=Action.STAY, reasons=reasons)


def _seconds(moved_bytes: int, bytes_per_second: float | None) -> float | None:
    return moved_bytes / bytes_per_second if moved_bytes and bytes_per_second else None
