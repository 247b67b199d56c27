"""Reading recoveries, and what drills measured of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.utils import timezone

from apps.checkpoints.models import Placement, TrainingRun, TrustEvidence
from apps.drills.models import Drill, DrillKind
from apps.recovery import predict
from apps.recovery.models import Incident
from apps.storage.models import TierCeiling

RECENT = timedelta(days=90)
MAX_DRILLS_READ = 2000
WITH_RESULT = (Drill.Outcome.PASSED, Drill.Outcome.FAILED, Drill.Outcome.LOST)
"""Outcomes that say something about a run; a cancelled or skipped drill does not."""


def incidents() -> QuerySet[Incident]:
    return Incident.objects.select_related("run__cluster", "ended_attempt", "recovery__attempt")


def measured_drills(
    run_ids: Iterable[str], tier_ids: Iterable[str], now: datetime | None = None
) -> list[predict.Measured]:
    """Recent passed drills of these runs or on these tiers, newest first, in one query."""
    since = (now or timezone.now()) - RECENT
    rows = Drill.objects.filter(
        Q(run__in=list(run_ids)) | Q(placement__tier__in=list(tier_ids)),
        outcome=Drill.Outcome.PASSED,
        finished_at__gte=since,
    ).exclude(kind=DrillKind.BANDWIDTH)
    rows = rows.order_by("-created_at")
    fields = rows.values_list("run_id", "placement__tier_id", "total_bytes", "seconds", "phases", "kind")
    return [
        predict.Measured(
            run_id=run_id,
            tier_id=tier_id,
            total_bytes=total_bytes,
            seconds=seconds,
            phases=phases,
            is_restart=kind == DrillKind.FAILOVER,
        )
        for run_id, tier_id, total_bytes, seconds, phases, kind in fields[:MAX_DRILLS_READ]
    ]


def predictions(chosen: Sequence[tuple[str, Any]], now: datetime | None = None) -> dict[str, predict.Prediction]:
    """By run id, for each (run id, the copy it would resume from, with its ceiling), in one query."""
    drills = measured_drills([run for run, _copy in chosen], {copy.tier_id for _run, copy in chosen}, now)
    found = {}
    for run_id, copy in chosen:
        guess = predict.prediction(
            run_id=run_id,
            total_bytes=copy.total_bytes,
            tier_id=copy.tier_id,
            drills=drills,
            known_rates=[copy.ceiling] if copy.ceiling else (),
        )
        if guess is not None:
            found[run_id] = guess
    return found


def with_ceiling(copies: QuerySet[Placement], now: datetime | None = None) -> QuerySet[Any]:
    """Each copy with `ceiling`: the best recent rate of its tier that was measured without a drill, or None."""
    since = (now or timezone.now()) - RECENT
    rows = TierCeiling.objects.filter(tier=OuterRef("tier"), measured_at__gte=since).order_by("-bytes_per_second")
    return copies.annotate(ceiling=Subquery(rows.values("bytes_per_second")[:1]))


def with_proof(copies: QuerySet[Placement]) -> QuerySet[Placement]:
    """Each copy with `proof_kind` and `proof_id`: who found the rung of trust that it has; None where nobody did."""
    standing = TrustEvidence.objects.filter(placement=OuterRef("pk"), rung=OuterRef("trust"), voided_at=None)
    newest = standing.order_by("-at", "-pk")
    return copies.annotate(
        proof_kind=Subquery(newest.values("source_kind")[:1]), proof_id=Subquery(newest.values("source_id")[:1])
    )


def rto_drills(run: TrainingRun, kind: str | None = None, since: datetime | None = None) -> QuerySet[Drill]:
    """The run's drills that ended with a result, oldest first."""
    rows = Drill.objects.filter(run=run, outcome__in=WITH_RESULT).select_related(
        "placement__tier", "placement__checkpoint"
    )
    if kind:
        rows = rows.filter(kind=kind)
    if since:
        rows = rows.filter(created_at__gte=since)
    return rows.order_by("created_at", "pk")
