"""What a cluster's rules allow a drill to do. They are asked when it is created and again right before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.utils import timezone

from apps.checkpoints.models import TrainingRun
from apps.core.errors import Conflict
from apps.core.units import percent
from apps.drills import windows
from apps.drills.models import Drill, DrillKind, DrillRules
from apps.fleet.models import Cluster

DISRUPTIVE = (DrillKind.FAILOVER.value, "standby")
"""They end processes or take nodes out; the others only read."""
BREAKER_LOOKS_BACK = timedelta(days=7)
_WENT_WRONG = (Drill.Outcome.FAILED, Drill.Outcome.LOST)


@dataclass(frozen=True, kw_only=True)
class Radius:
    """What a drill would touch. `tier_ratio` (0..1) of the tier's measured rate, None where that is not known."""

    nodes: tuple[str, ...]
    total_bytes: int | None = None
    tier_ratio: float | None = None


def rules_of(cluster: Cluster) -> DrillRules:
    """The cluster's rules; the defaults where nobody set any."""
    return DrillRules.objects.filter(pk=cluster.pk).first() or DrillRules(cluster=cluster)


def require_allowed(run: TrainingRun, kind: str, now: datetime | None = None) -> None:
    """Raises Conflict with the rule that forbids a drill of this kind on this run now."""
    at = now or timezone.now()
    rules = rules_of(run.cluster)
    if rules.is_stored and rules.protected_runs.filter(pk=run.pk).exists():
        raise Conflict(
            f"{run.name} is protected: no drill touches it until an admin takes it off the list.", code="run_protected"
        )
    if kind in DISRUPTIVE:
        require_disruption_allowed(run.cluster, at)


def require_disruption_allowed(cluster: Cluster, now: datetime | None = None) -> None:
    """Raises Conflict with the rule that forbids to disrupt anything on `cluster` now."""
    at, rules = now or timezone.now(), rules_of(cluster)
    if not cluster.allows_disruption:
        raise Conflict(
            f"Disruptive drills are off on {cluster.name}: an admin can allow them in the cluster's settings.",
            code="disruption_not_allowed",
        )
    _require_open_window(rules, at)
    if breaker_is_open(rules, at):
        raise Conflict(
            f"The last {rules.breaker_failures} disruptive drills on {cluster.name} went wrong, so no other one "
            "starts: see why, then have an admin reset the breaker.",
            code="breaker_open",
        )


def _require_open_window(rules: DrillRules, now: datetime) -> None:
    zone = ZoneInfo(rules.time_zone)
    if windows.is_open(rules.windows, zone, now):
        return
    opens = windows.opens_at(rules.windows, zone, now)
    when = f"{', '.join(rules.windows)} ({rules.time_zone}); next from {opens:%a %Y-%m-%d %H:%M}"
    raise Conflict(f"Disruptive drills run only {when}.", code="outside_window")


def breaker_is_open(rules: DrillRules, now: datetime) -> bool:
    """Whether the newest disruptive drills of a week, as many as the rule names, all went wrong, since the reset."""
    since = max(now - BREAKER_LOOKS_BACK, rules.breaker_reset_at or now - BREAKER_LOOKS_BACK)
    ended = Drill.objects.filter(cluster=rules.cluster_id, kind__in=DISRUPTIVE, finished_at__gt=since)
    told = ended.exclude(outcome__in=(Drill.Outcome.CANCELLED, Drill.Outcome.SKIPPED))
    newest = list(told.order_by("-finished_at").values_list("outcome", flat=True)[: rules.breaker_failures])
    return len(newest) == rules.breaker_failures and all(outcome in _WENT_WRONG for outcome in newest)


def waits_for_approval(drill: Drill) -> bool:
    return drill.kind in DISRUPTIVE and drill.approved_at is None and rules_of(drill.cluster).needs_approval


def radius_problem(rules: DrillRules, radius: Radius) -> str:
    """Why the blast radius is too large, with what would fit; "" where it is not. Unknown is never small enough."""
    if rules.max_nodes is not None and len(radius.nodes) > rules.max_nodes:
        return f"It would touch {len(radius.nodes)} nodes, and at most {rules.max_nodes} may be: ask for fewer."
    if rules.max_tier_ratio is None or radius.total_bytes is None:
        return ""
    limit = percent(rules.max_tier_ratio)
    if radius.tier_ratio is None:
        return f"At most {limit} of the tier's rate may be used, and nobody has measured it: measure its ceiling first."
    if radius.tier_ratio > rules.max_tier_ratio:
        return f"It would use {percent(radius.tier_ratio)} of the tier's rate, and at most {limit} may be: give a cap."
    return ""


def tier_ratio(cap: int | None, node_count: int, ceiling: float | None) -> float | None:
    """The share of a tier's `ceiling` (bytes per second) that nodes with a `cap` each take; without a cap all of it."""
    if cap is None:
        return 1.0
    return min(1.0, cap * node_count / ceiling) if ceiling else None


def described(radius: Radius) -> str:
    """`gpu-1, gpu-2 and 6 more nodes`."""
    return _listed(radius.nodes)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more nodes" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
