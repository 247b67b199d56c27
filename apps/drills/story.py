"""A finished drill told to somebody who was not there: asked, done, who was last, what changed, what is not proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from apps.core import units
from apps.drills.comparing import subject, subjects
from apps.drills.comparison import Comparison, compare
from apps.drills.last_client import LastClient, last_client
from apps.drills.meaning import ABOVE_RATIO, Measured, ceiling_words, not_proven
from apps.drills.models import CheckpointChoice, Drill, DrillKind, Fault, RankResult
from apps.drills.reload import ClientFigures

READING = (DrillKind.RELOAD, DrillKind.HERD, DrillKind.BANDWIDTH, DrillKind.LOADER_COMPARE)
_NAMED = 12


@dataclass(frozen=True)
class Fact:
    label: str
    words: str


@dataclass(frozen=True, kw_only=True)
class Story:
    """`lead` says what came out; `ceiling` how the rate stands to what the tier was measured to give, and
    `is_above_ceiling` that it beat it. `last` and `comparison` are None where there is nothing to compare with."""

    lead: str
    asked: tuple[Fact, ...]
    done: tuple[Fact, ...]
    ceiling: str
    is_above_ceiling: bool
    last: LastClient | None
    comparison: Comparison | None
    not_proven: tuple[str, ...]


def story_of(drill: Drill, results: Sequence[RankResult], before: Drill | None) -> Story:
    """`results` are those of its widest round, `before` the last comparable drill; two queries where there is one.
    A drill that did not pass is compared with nothing."""
    before = before if drill.outcome == Drill.Outcome.PASSED else None
    effective = tuple(sorted({row.effective for row in results if row.effective}))
    ratio = drill.efficiency_ratio
    return Story(
        lead=_lead(drill),
        asked=tuple(_asked(drill)),
        done=tuple(_done(drill, results)),
        ceiling=ceiling_words(ratio, drill.facts.get("ceiling"), drill.cached_ratio_before),
        is_above_ceiling=ratio is not None and ratio > ABOVE_RATIO,
        last=last_client([_client(row) for row in results if row.seconds]),
        comparison=None if before is None else compare(subjects([before])[0], subject(drill, results)),
        not_proven=tuple(not_proven(_measured(drill, results, effective))),
    )


def _client(row: RankResult) -> ClientFigures:
    return ClientFigures(
        name=row.node.name if row.node else f"client {row.rank}",
        ranks=tuple(row.ranks),
        bytes=row.bytes or 0,
        seconds=row.seconds or 0.0,
        started_seconds=row.started_at.timestamp() if row.started_at else 0.0,
        phases=row.phases,
    )


def _measured(drill: Drill, results: Sequence[RankResult], effective: tuple[str, ...]) -> Measured:
    return Measured(
        kind=drill.kind,
        outcome=drill.outcome,
        phases=drill.phases,
        verified=drill.verified,
        cached_ratio_before=drill.cached_ratio_before,
        effective=effective,
        device=drill.device,
        max_bytes_per_second=drill.max_bytes_per_second,
        client_count=len(results) or None,
        world_size=drill.placement.world_size if drill.placement else None,
        fault=drill.fault if drill.kind == DrillKind.FAILOVER else "",
        evict=drill.evict,
    )


# -- words -------------------------------------------------------------------------------------------------------------
def _lead(drill: Drill) -> str:
    """What came out of it, before why: for one that did not pass, the reason is all there is."""
    if drill.outcome != Drill.Outcome.PASSED or drill.seconds is None:
        return drill.reason or f"Finished: {drill.outcome}."
    took = units.duration(drill.seconds)
    if drill.objective_seconds:
        took += f" of {units.duration(drill.objective_seconds)}"
    if drill.kind == DrillKind.FAILOVER:
        objective = f" (objective {units.duration(drill.objective_seconds)})" if drill.objective_seconds else ""
        return f"It trained again {units.duration(drill.seconds)} after the fault{objective}{_lost_words(drill)}."
    if drill.kind == DrillKind.STANDBY:
        return f"The spare was in after {took}."
    if drill.total_bytes is None:
        return drill.reason or f"It took {took}."
    proof = {True: ", and every byte matched its manifest", False: ", and bytes differed from their manifest"}
    words = proof.get(drill.verified, ", without a manifest to compare with") if _compares(drill) else ""  # type: ignore[arg-type]
    return f"{units.size(drill.total_bytes)} were read in {took}{words}."


def _compares(drill: Drill) -> bool:
    return drill.kind != DrillKind.BANDWIDTH


def _lost_words(drill: Drill) -> str:
    if drill.lost_steps is None:
        return ""
    work = "" if drill.lost_seconds is None else f" ({units.duration(drill.lost_seconds)} of work)"
    return f", and {drill.lost_steps:,} steps{work} were computed again"


def _asked(drill: Drill) -> list[Fact]:
    if drill.kind == DrillKind.FAILOVER:
        return [*_asked_fault(drill), _objective(drill)]
    if drill.kind == DrillKind.STANDBY:
        return [Fact("Take out", drill.worker_node or "any node"), _objective(drill)]
    found = [
        Fact("Checkpoint", _choice_words(drill)),
        Fact("From", _tier_words(drill)),
        Fact("Nodes", _width_words(drill)),
    ]
    found += [Fact("Backend", drill.backend), Fact("Device", drill.device)]
    found.append(Fact("Page cache", "dropped first" if drill.evict else "left as it was"))
    if drill.max_bytes_per_second:
        found.append(Fact("Cap", f"{units.rate(drill.max_bytes_per_second)} for each node"))
    if drill.repeats > 1:
        found.append(Fact("Repeats", f"{drill.repeats} times each"))
    if drill.loader:
        found.append(Fact("Loader", drill.loader))
    return [*found, _objective(drill)]


def _asked_fault(drill: Drill) -> list[Fact]:
    what = Fault(drill.fault).label
    if drill.fault == Fault.PROCESS:
        what = f"Process: {drill.signal_name}"
    elif drill.link:
        what = f"{what} {drill.link}"
    where = drill.worker_node or (f"rank {drill.worker_rank}" if drill.worker_rank is not None else "a random rank")
    return [Fact("Break", what), Fact("Where", where)]


def _objective(drill: Drill) -> Fact:
    return Fact("Objective", units.duration(drill.objective_seconds) if drill.objective_seconds else "none")


def _choice_words(drill: Drill) -> str:
    if drill.choice == CheckpointChoice.NAMED and drill.step is not None:
        return f"step {drill.step:,}"
    if drill.choice == CheckpointChoice.RANDOM:
        return f"random of {drill.window_days} days, seed {drill.seed}"
    return str(CheckpointChoice(drill.choice).label).lower()


def _tier_words(drill: Drill) -> str:
    if drill.every_tier:
        return "every tier that has it"
    return drill.tier.name if drill.tier else "the fastest tier that has it"


def _width_words(drill: Drill) -> str:
    if drill.ladder:
        return f"{', '.join(f'{count:,}' for count in drill.ladder)} at once"
    return f"{drill.node_count:,}" if drill.node_count else "all that can read it"


def _done(drill: Drill, results: Sequence[RankResult]) -> list[Fact]:
    found = []
    if drill.placement is not None and drill.checkpoint_step is not None:
        found.append(Fact("Checkpoint", f"step {drill.checkpoint_step:,} on {drill.placement.tier.name}"))
    if drill.kind not in READING:
        return [*found, *_done_restart(drill)]
    if drill.total_bytes is not None:
        found.append(Fact("Bytes", units.size(drill.total_bytes)))
    found.append(Fact("Backend", _backend_words(drill, results)))
    why = Counter(row.reason for row in results if row.reason)
    found += [Fact("Why", reason if len(why) == 1 else f"{reason} ({count:,})") for reason, count in why.most_common(3)]
    cached = units.percent(drill.cached_ratio_before) if drill.cached_ratio_before is not None else units.NOT_MEASURED
    found.append(Fact("Cached before", cached))
    found += [Fact("Ranks to nodes", words) for words in _mapping_words(results)]
    if drill.start_skew_seconds is not None and len(results) > 1:
        found.append(Fact("Start skew", f"{drill.start_skew_seconds * 1000:,.0f} ms"))
    if _compares(drill):
        words = {True: "every byte", False: "bytes differed", None: "not compared: no manifest"}
        found.append(Fact("Verified", words[drill.verified]))
    return found


def _done_restart(drill: Drill) -> list[Fact]:
    names = {"worker": "Ended", "node": "Taken out", "spare": "Put in"}
    return [Fact(label, str(drill.facts[name])) for name, label in names.items() if drill.facts.get(name)]


def _backend_words(drill: Drill, results: Sequence[RankResult]) -> str:
    used = Counter(row.effective or "not reported" for row in results)
    if not used:
        return "not reported"
    words = ", ".join(name if len(used) == 1 else f"{name} on {count:,}" for name, count in used.most_common())
    return words if set(used) == {drill.backend} else f"{words} (asked: {drill.backend})"


def _mapping_words(results: Sequence[RankResult]) -> list[str]:
    """`gpu-01: ranks 0 to 7`, a dozen of them."""
    if not results:
        return []
    lines = [f"{row.node.name if row.node else 'a node that is gone'}: {_ranks(row)}" for row in results[:_NAMED]]
    more = f", and {len(results) - _NAMED:,} more" if len(results) > _NAMED else ""
    return ["; ".join(lines) + more]


def _ranks(row: RankResult) -> str:
    if not row.ranks:
        return "a part of the bytes"
    return f"rank {row.ranks[0]}" if len(row.ranks) == 1 else f"ranks {row.ranks[0]} to {row.ranks[-1]}"
