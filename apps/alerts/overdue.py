"""What has not happened for too long, and what fills up: candidates, of which the rules' thresholds take their pick."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Max, Min, Q, Sum
from django.utils import timezone

from apps.alerts.condition import MAX_CONDITIONS, Condition
from apps.alerts.deciding import overdue_seconds, used_ratio
from apps.alerts.models import RuleKind
from apps.checkpoints.models import Checkpoint, Placement, TrainingRun
from apps.core import units
from apps.drills.models import Drill
from apps.drills.selectors import VERIFIED
from apps.storage.models import StorageTier

IN_USE = timedelta(days=7)
"""A run that saved nothing for longer is over: nobody is called because it is not verified or drilled any more."""


class _Saves(NamedTuple):
    """Of one run in use."""

    first_at: datetime
    newest_at: datetime


def conditions() -> list[Condition]:
    """Four queries, however many runs and tiers there are."""
    now = timezone.now()
    saves = _saves_of_runs_in_use(now)
    runs = TrainingRun.objects.in_bulk(list(saves)[:MAX_CONDITIONS]) if saves else {}
    of_runs = [(run, saves[run_id]) for run_id, run in sorted(runs.items())]
    return [*_not_verified(of_runs, now), *_not_drilled(of_runs, now), *_tiers_full()]


def _saves_of_runs_in_use(now: datetime) -> dict[str, _Saves]:
    kept = Checkpoint.objects.filter(run__archived_at=None).order_by().values("run")
    rows = kept.annotate(newest=Max("saved_at"), first=Min("created_at")).filter(newest__gt=now - IN_USE)
    return {row["run"]: _Saves(row["first"], row["newest"]) for row in rows.order_by("run")}


def _newest(rows: Any, run: str, at: str) -> dict[str, datetime]:
    found = rows.order_by().values_list(run).annotate(newest=Max(at))
    return {run_id: newest for run_id, newest in found if newest is not None}


def _not_verified(runs: list[tuple[TrainingRun, _Saves]], now: datetime) -> list[Condition]:
    """By when the newest checkpoint was saved of which a copy is verified, not by when it was verified."""
    if not runs:
        return []
    whole = Placement.objects.filter(trust__in=VERIFIED, status=Placement.Status.COMPLETE)
    in_use = whole.filter(checkpoint__run__in=[run.pk for run, _saves in runs])
    newest = _newest(in_use, "checkpoint__run", "checkpoint__saved_at")
    return [_unverified(run, newest.get(run.pk), saves, now) for run, saves in runs]


def _unverified(run: TrainingRun, verified_at: datetime | None, saves: _Saves, now: datetime) -> Condition:
    seconds = overdue_seconds(verified_at, saves.first_at, now)
    age = units.duration(overdue_seconds(saves.newest_at, saves.newest_at, now))
    if verified_at is None:
        what = f"No checkpoint of {run.name} was ever verified; its newest save is {age} old."
    else:
        what = f"The newest verified checkpoint of {run.name} was saved {verified_at:%Y-%m-%d %H:%M} UTC, its newest "
        what += f"{saves.newest_at:%Y-%m-%d %H:%M} UTC."
    summary = f"{what} Seal and verify a newer one, or have an audit policy do it."
    return Condition(RuleKind.NOT_VERIFIED, "run", run.pk, run.cluster_id, summary, run.pk, seconds)


def _not_drilled(runs: list[tuple[TrainingRun, _Saves]], now: datetime) -> list[Condition]:
    if not runs:
        return []
    told = (Drill.Outcome.PASSED, Drill.Outcome.FAILED)
    drilled = Drill.objects.filter(outcome__in=told, run__in=[run.pk for run, _saves in runs])
    newest = _newest(drilled, "run", "finished_at")
    return [_undrilled(run, newest.get(run.pk), saves, now) for run, saves in runs]


def _undrilled(run: TrainingRun, drilled_at: datetime | None, saves: _Saves, now: datetime) -> Condition:
    seconds = overdue_seconds(drilled_at, max(saves.first_at, run.created_at), now)
    last = f"was drilled last at {drilled_at:%Y-%m-%d %H:%M} UTC" if drilled_at else "was never drilled with a result"
    summary = f"{run.name} {last}: how long a restart takes is not known. Drill it, or give it a plan."
    return Condition(RuleKind.NOT_DRILLED, "run", run.pk, run.cluster_id, summary, run.pk, seconds)


def _tiers_full() -> list[Condition]:
    """By the copies that are known and the declared capacity."""
    there = ~Q(placements__listed_status=Placement.Status.MISSING)
    tiers = StorageTier.objects.filter(capacity_bytes__gt=0).annotate(used=Sum("placements__total_bytes", filter=there))
    return [_full(tier, tier.used or 0) for tier in tiers.order_by("pk")[:MAX_CONDITIONS]]


def _full(tier: StorageTier, used_bytes: int) -> Condition:
    ratio = used_ratio(used_bytes, tier.capacity_bytes)
    summary = (
        f"The known copies on {tier.name} take {units.size(used_bytes)} of its {units.size(tier.capacity_bytes)} "
        f"({units.percent(ratio)}). A retention policy moves older ones on."
    )
    return Condition(RuleKind.TIER_FULL, "tier", tier.pk, tier.cluster_id, summary, measured=ratio)
