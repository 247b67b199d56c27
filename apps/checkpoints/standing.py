"""How the tiers stand: which could not be looked at, or looked so strange that nothing was believed, and which fall
behind with a run's copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from django.db.models import F, Max, OuterRef, Q, QuerySet, Subquery, Window
from django.db.models.functions import DenseRank

from apps.checkpoints.models import InventoryScan, Placement, TrainingRun
from apps.checkpoints.tier_lag import Lag, TierSteps, lags
from apps.storage.models import StorageTier

ROOT_UNREADABLE = "root_unreadable"
"""The error code of a listing whose root is not there or cannot be read."""
NEWEST_STEPS = 50
Copy = tuple[str, int, int]
_LOOKED = Q(state=InventoryScan.State.FINISHED) | Q(error_code=ROOT_UNREADABLE)


def newest_looks(tiers: Iterable[StorageTier] | None = None) -> QuerySet[InventoryScan]:
    """Of each tier the newest scan of its whole root that ended with a look at it. (One whose agent was lost, or that
    was cancelled, tells nothing about the storage.)"""
    newest = InventoryScan.objects.filter(_LOOKED, tier=OuterRef("pk"), root=OuterRef("uri")).order_by("-finished_at")
    rows = StorageTier.objects.all() if tiers is None else StorageTier.objects.filter(pk__in=[one.pk for one in tiers])
    ids = rows.annotate(look=Subquery(newest.values("pk")[:1])).exclude(look=None).values("look")
    return InventoryScan.objects.filter(pk__in=ids).select_related("tier", "agent__node")


def unreadable_tiers(limit: int) -> list[InventoryScan]:
    """The scans that say so, by tier."""
    wrong = newest_looks().filter(~Q(doubt="") | Q(state=InventoryScan.State.FAILED), root=F("tier__uri"))
    return list(wrong.order_by("tier")[:limit])


def tiers_with_loose_damage(limit: int) -> list[InventoryScan]:
    """The newest scans, by tier, that found damage which belongs to no recorded copy."""
    return list(newest_looks().filter(damage_count__gt=0).order_by("tier")[:limit])


def lagging_runs(limit: int) -> list[tuple[TrainingRun, list[Lag]]]:
    """Runs in use of which some tier is behind. Three queries; the steps are only looked at where tiers differ."""
    whole = Placement.objects.filter(status=Placement.Status.COMPLETE, checkpoint__run__archived_at=None)
    newest: dict[str, set[int]] = defaultdict(set)
    for run_id, _tier_id, step in (
        whole.order_by().values_list("checkpoint__run", "tier").annotate(newest=Max("checkpoint__step"))
    ):
        newest[run_id].add(step)
    differing = sorted(run_id for run_id, steps in newest.items() if len(steps) > 1)[:limit]
    found = lags_of(differing)
    runs = TrainingRun.objects.in_bulk([run_id for run_id, behind in found.items() if behind])
    return [(run, found[run_id]) for run_id, run in sorted(runs.items())]


def lags_of(run_ids: Iterable[str]) -> dict[str, list[Lag]]:
    """Which tiers are behind, by run; one query."""
    wanted = list(run_ids)
    if not wanted:
        return {}
    position = Window(
        DenseRank(), partition_by=[F("checkpoint__run"), F("tier")], order_by=F("checkpoint__step").desc()
    )
    rows = Placement.objects.filter(checkpoint__run__in=wanted, status=Placement.Status.COMPLETE)
    listed = rows.annotate(position=position).filter(position__lte=NEWEST_STEPS).order_by()
    columns = ("checkpoint__run", "tier__name", "tier__speed_order", "checkpoint__step")
    copies: dict[str, list[Copy]] = defaultdict(list)
    for run_id, name, order, step in listed.values_list(*columns):
        copies[run_id].append((name, order, step))
    return {run_id: lags_among(of_run) for run_id, of_run in copies.items()}


def lags_among(whole: Iterable[Copy]) -> list[Lag]:
    """Of one run, from its whole copies: (tier, its order, step), with the newest of each tier among them."""
    tiers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for name, order, step in whole:
        tiers[name, order].append(step)
    return lags(TierSteps(name, order, tuple(steps)) for (name, order), steps in tiers.items())
