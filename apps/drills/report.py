"""A drill in one document: the story, every figure, each client and what happened when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from apps.core.models import Transition
from apps.core.phases import ordered
from apps.drills.comparing import last_comparable
from apps.drills.finish import OWNER_KIND
from apps.drills.models import Drill, DrillRung, RankResult
from apps.drills.rounds import typical
from apps.drills.story import story_of
from apps.drills.titles import title_of

REPORT_VERSION = 1
MAX_CLIENTS = 512
MAX_EVENTS = 200
_COLUMNS = (
    "kind", "state", "outcome", "objective_state", "reason", "requested_by", "approved_by", "created_at", "started_at",
    "finished_at", "fault_at", "objective_seconds", "seconds", "total_bytes", "bytes_per_second", "cached_ratio_before",
    "verified", "start_skew_seconds", "jain_index", "lost_steps", "lost_seconds", "unattributed_seconds",
    "efficiency_ratio", "is_storage_only",
)  # fmt: skip
_OF_A_CLIENT = (
    "rank", "ranks", "outcome", "error", "bytes", "seconds", "bytes_per_second", "started_at", "phases", "busy",
    "requested", "effective", "reason", "cache_state", "cached_ratio_before", "cpu_seconds", "peak_rss_bytes",
    "verified",
)  # fmt: skip
_OF_A_STEP = ("what", "began_at", "ended_at", "seconds", "detail")


def report(drill: Drill) -> dict[str, Any]:
    """Everything that stays of a drill, as JSON. `drill` comes from `selectors.drills`."""
    results = widest_results(drill)
    story = story_of(drill, results, last_comparable(drill))
    placement = drill.placement
    return {
        "report_version": REPORT_VERSION,
        "drill": drill.pk,
        "title": title_of(drill),
        "cluster": drill.cluster.name,
        "run": drill.run.name,
        "plan": drill.plan.name if drill.plan else None,
        "step": drill.checkpoint_step,
        "tier": placement.tier.name if placement else None,
        "path": placement.path if placement else None,
        **{name: getattr(drill, name) for name in _COLUMNS},
        "story": {**asdict(story), "asked": _facts(story.asked), "done": _facts(story.done)},
        "phases": [{"phase": phase, "seconds": seconds} for phase, seconds in ordered(drill.phases)],
        "facts": {name: value for name, value in drill.facts.items() if name != "clients"},
        "client_count": len(results),
        "clients": [_client(row) for row in results[:MAX_CLIENTS]],
        "steps": [{name: getattr(step, name) for name in _OF_A_STEP} for step in drill.steps.order_by("order")],
        "events": _events(drill),
    }


def widest_results(drill: Drill) -> list[RankResult]:
    """What each client of the widest round that has results measured, by rank; two queries."""
    measured = DrillRung.objects.filter(drill=drill, placement=drill.placement_id, results__isnull=False)
    rungs = list(measured.distinct().order_by("order"))
    if not rungs:
        return []
    rung = typical(rungs)[-1]
    return list(RankResult.objects.filter(rung=rung).select_related("node", "rung__drill").order_by("rank"))


def _facts(facts: Sequence[Any]) -> list[dict[str, str]]:
    return [{"label": fact.label, "words": fact.words} for fact in facts]


def _client(row: RankResult) -> dict[str, Any]:
    return {"node": row.node.name if row.node else None, **{name: getattr(row, name) for name in _OF_A_CLIENT}}


def _events(drill: Drill) -> list[dict[str, Any]]:
    rows = Transition.objects.filter(owner_kind=OWNER_KIND, owner_id=drill.pk).order_by("at", "pk")[:MAX_EVENTS]
    return [{"at": row.at, "state": row.new, "reason": row.reason, "actor": row.actor} for row in rows]
