"""Reading drills to put them side by side, and the earlier one that a drill can be held against."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Max, QuerySet

from apps.core.errors import InvalidInput, NotFound
from apps.drills.differences import MOST_DRILLS, Difference, Fact, Subject, differences, verdict
from apps.drills.models import Drill, DrillKind, DrillRung, RankResult
from apps.drills.rounds import typical

LOOKED_BACK = 50
"""Earlier drills of the run that are looked at for one that compares."""


@dataclass(frozen=True)
class Comparison:
    """`drills` and `subjects` in the order of their creation; every difference has one value for each of them."""

    drills: list[Drill]
    subjects: list[Subject]
    differences: list[Difference]
    verdict: str


def comparison(visible: QuerySet[Drill], ids: Sequence[str]) -> Comparison:
    """Of `visible` the drills with these ids. Raises InvalidInput below two or above eight, NotFound for one that is
    not among them."""
    wanted = list(dict.fromkeys(ids))
    if not 2 <= len(wanted) <= MOST_DRILLS:
        raise InvalidInput(f"Give the ids of 2 to {MOST_DRILLS} different drills.", pointer="/ids")
    possible = [one for one in wanted if one.isprintable()]  # no database can even look for the rest
    found = list(visible.filter(pk__in=possible).order_by("created_at", "pk"))
    missing = sorted(set(wanted) - {drill.pk for drill in found})
    if missing:
        raise NotFound(f"There is no drill {missing[0]} here.")
    told = subjects(found)
    return Comparison(found, told, differences(told), verdict(told))


def subjects(drills: Sequence[Drill]) -> list[Subject]:
    """Drills as `selectors.drills()` gives them, in their order, in two more queries."""
    results = _results([drill.pk for drill in drills])
    return [subject(drill, results[drill.pk]) for drill in drills]


def subject(drill: Drill, results: Sequence[RankResult]) -> Subject:
    """One drill with what the clients of its widest round measured."""
    return Subject(
        drill_id=drill.pk,
        at=drill.created_at,
        restored=drill.outcome == Drill.Outcome.PASSED,
        is_storage_only=drill.is_storage_only,
        reason=drill.reason,
        facts={**_asked(drill), **_done(drill, results), **_measured(drill)},
    )


def last_comparable(drill: Drill) -> Drill | None:
    """The newest earlier drill that restored and did the same: run, kind, tier, backend, clients, cap and fault."""
    return held_against(drill)[0]


def last_good(drill: Drill) -> Drill | None:
    """What to hold it against: the newest earlier one of its kind that restored and was not late, one that did the same
    before any other."""
    return held_against(drill)[1]


def held_against(drill: Drill) -> tuple[Drill | None, Drill | None]:
    """The last comparable one, and the last good one, in two queries."""
    own, earlier = _widest(drill), _earlier(drill)
    like = [one for one in earlier if _is_like(one, drill) and one.client_count == own]
    good = [one for one in earlier if one.objective_state != Drill.ObjectiveState.BREACHED]
    return next(iter(like), None), next((one for one in like if one in good), good[0] if good else None)


def _earlier(drill: Drill) -> list[Any]:
    rows: QuerySet[Any] = Drill.objects.filter(
        run=drill.run_id,
        kind=drill.kind,
        outcome=Drill.Outcome.PASSED,
        seconds__isnull=False,
        created_at__lt=drill.created_at,
    )
    rows = rows.select_related("run", "placement__tier").annotate(client_count=Max("rungs__client_count"))
    return list(rows.order_by("-created_at", "-pk")[:LOOKED_BACK])


def _widest(drill: Drill) -> int | None:
    return drill.rungs.aggregate(most=Max("client_count"))["most"]  # type: ignore[no-any-return]


def _is_like(one: Drill, other: Drill) -> bool:
    return _key(one) == _key(other)


def _key(drill: Drill) -> tuple[Any, ...]:
    tier = drill.placement.tier_id if drill.placement else None
    fault = (drill.fault, drill.signal_name, drill.link) if drill.kind == DrillKind.FAILOVER else ()
    return tier, drill.backend, drill.mapping, drill.max_bytes_per_second, fault


def _results(drill_ids: Iterable[str]) -> dict[str, list[RankResult]]:
    """Of each drill, what the clients of its widest round measured; of repeats, in the typical one."""
    rungs: dict[str, list[DrillRung]] = defaultdict(list)
    rows = DrillRung.objects.filter(drill__in=list(drill_ids)).select_related("drill").order_by("order")
    for rung in rows:
        if rung.placement_id == rung.drill.placement_id:
            rungs[rung.drill_id].append(rung)
    widest = {typical(found)[-1].pk: drill_id for drill_id, found in rungs.items()}
    results: dict[str, list[RankResult]] = defaultdict(list)
    measured = RankResult.objects.filter(rung__in=list(widest)).select_related("node").order_by("rung", "rank")
    for result in measured.only("rung_id", "rank", "effective", "cache_state", "node__name"):
        results[widest[result.rung_id]].append(result)
    return results


def _asked(drill: Drill) -> dict[str, Fact]:
    reads = drill.kind != DrillKind.FAILOVER and drill.kind != DrillKind.STANDBY
    facts: dict[str, Fact] = {
        "kind": drill.get_kind_display(),
        "run_name": drill.run.name,
        "choice": drill.get_choice_display(),
        "objective_seconds": drill.objective_seconds,
    }
    if reads:
        facts |= {
            "node_count": drill.node_count,
            "ladder": tuple(str(count) for count in drill.ladder) or None,
            "mapping": drill.get_mapping_display(),
            "backend": drill.backend,
            "device": drill.device,
            "evict": drill.evict,
            "max_bytes_per_second": drill.max_bytes_per_second,
        }
    elif drill.kind == DrillKind.FAILOVER:
        facts |= {"fault": drill.get_fault_display(), "signal_name": drill.signal_name}
    return facts


def _done(drill: Drill, results: Sequence[RankResult]) -> dict[str, Fact]:
    copy = drill.placement
    versions = drill.facts.get("agent_versions")
    return {
        "checkpoint_step": drill.checkpoint_step,
        "format": copy.format if copy else None,
        "tier_name": copy.tier.name if copy else None,
        "world_size": copy.world_size if copy else None,
        "total_bytes": drill.total_bytes,
        "client_count": len(results) or None,
        "nodes": _names(result.node.name for result in results if result.node),
        "effective": _names(result.effective for result in results),
        "cache_state": _names(result.cache_state for result in results),
        "cached_ratio_before": drill.cached_ratio_before,
        "verified": drill.verified,
        "agent_versions": _names(versions.values()) if isinstance(versions, dict) else None,
    }


def _measured(drill: Drill) -> dict[str, Fact]:
    slowest = (drill.facts.get("slowest") or {}).get("node")
    return {
        **{name: float(seconds) for name, seconds in drill.phases.items()},
        "unattributed_seconds": drill.unattributed_seconds,
        "outcome": drill.get_outcome_display().lower() or drill.get_state_display().lower(),
        "objective_state": drill.get_objective_state_display().lower(),
        "seconds": None if drill.seconds is None else float(drill.seconds),
        "bytes_per_second": drill.bytes_per_second,
        "efficiency_ratio": drill.efficiency_ratio,
        "jain_index": drill.jain_index,
        "slowest": (str(slowest),) if slowest else None,
        "lost_steps": drill.lost_steps,
        "lost_seconds": drill.lost_seconds,
    }


def _names(found: Iterable[str]) -> tuple[str, ...] | None:
    return tuple(sorted({name for name in found if name})) or None
