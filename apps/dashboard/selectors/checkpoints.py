"""Reading checkpoints with their copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Prefetch, Q, QuerySet, Window
from django.db.models.functions import Coalesce, RowNumber

from apps.checkpoints.explanations import explanation
from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    Placement,
    Shard,
    SteplessCheckpoint,
    TrainingRun,
    TrustEvidence,
)
from apps.checkpoints.standing import lags_among
from apps.checkpoints.tier_lag import Lag
from apps.recovery.selectors import with_ceiling, with_proof


def checkpoints(*, run_id: str = "", status: str = "", trust: str = "", search: str = "") -> QuerySet[Checkpoint]:
    """Checkpoints with their copies, the number of open damage findings on these, and `known_at` to order them by:
    when they were saved, or first seen where the storage does not say."""
    copies = Placement.objects.select_related("tier").order_by("tier__speed_order", "pk")
    damage = Count(
        "placements__findings",
        filter=Q(placements__findings__resolved_at=None, placements__findings__severity=Finding.Severity.DAMAGE),
    )
    rows = Checkpoint.objects.select_related("run__cluster").prefetch_related(Prefetch("placements", queryset=copies))
    for field, value in (("status", status), ("trust", trust)):
        if value:
            rows = rows.filter(Exists(Placement.objects.filter(checkpoint=OuterRef("pk"), **{field: value})))
    if run_id:
        rows = rows.filter(run_id=run_id)
    return _searched(rows, search).annotate(damage_count=damage, known_at=Coalesce("saved_at", "created_at"))


def stepless(*, run: TrainingRun | None, status: str = "", search: str = "") -> QuerySet[SteplessCheckpoint]:
    """Checkpoints whose step nothing tells, with their tiers; of a run those that lie in folders of its name."""
    rows = SteplessCheckpoint.objects.select_related("tier__cluster")
    if run is not None:
        rows = rows.filter(run_name=run.name, tier__cluster=run.cluster_id)
    if status:
        rows = rows.filter(status=status)
    return rows.filter(path__icontains=search) if search else rows


def _searched(rows: QuerySet[Checkpoint], search: str) -> QuerySet[Checkpoint]:
    digits = search.replace(",", "")
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return rows.filter(Q(step=int(digits)) | Q(run__name__icontains=search))
    return rows.filter(run__name__icontains=search) if search else rows


def newest_copies(run_id: str, limit: int) -> list[Any]:
    """The copies of a run's newest checkpoints with their tiers' ceilings, newest step first, in one query: of each
    tier the newest `limit`, so that the first `limit` are the newest of all."""
    position = Window(RowNumber(), partition_by=F("tier"), order_by=[F("checkpoint__step").desc(), F("pk")])
    rows = with_proof(with_ceiling(Placement.objects.filter(checkpoint__run=run_id)))
    rows = rows.select_related("checkpoint", "tier")
    newest = rows.annotate(position=position).filter(position__lte=limit)
    return list(newest.order_by("-checkpoint__step", "tier__speed_order", "pk"))


def lags(copies: Iterable[Placement]) -> list[Lag]:
    """Which tiers are behind with a run's copies."""
    whole = [copy for copy in copies if copy.status == Placement.Status.COMPLETE]
    return lags_among((copy.tier.name, copy.tier.speed_order, copy.checkpoint.step) for copy in whole)


def by_checkpoint(copies: Iterable[Placement]) -> list[tuple[Checkpoint, list[Placement]]]:
    """The same, grouped."""
    grouped: dict[str, tuple[Checkpoint, list[Placement]]] = {}
    for copy in copies:
        grouped.setdefault(copy.checkpoint_id, (copy.checkpoint, []))[1].append(copy)
    return list(grouped.values())


def placements_of(checkpoint: Checkpoint) -> list[Placement]:
    rows = Placement.objects.filter(checkpoint=checkpoint).select_related("tier", "manifest").defer("manifest__body")
    return list(rows.order_by("tier__speed_order", "pk"))


def is_readable(copy: Placement) -> bool:
    """Whether a drill could read it."""
    return copy.status == Placement.Status.COMPLETE and copy.resumable and copy.damaged_at is None


def open_findings(placements: list[Placement], limit: int = 100) -> list[Finding]:
    """The worst first; at most `limit`."""
    rows = Finding.objects.filter(placement__in=placements, resolved_at=None).select_related("placement__tier")
    order = {"damage": 0, "warning": 1, "note": 2}
    return sorted(rows.order_by("-found_at")[:limit], key=lambda finding: order.get(finding.severity, 3))


def evidence(placements: list[Placement], limit: int = 60) -> list[TrustEvidence]:
    rows = TrustEvidence.objects.filter(placement__in=placements).select_related("placement__tier")
    return list(rows.order_by("-at", "-pk")[:limit])


def explained(
    copy: Placement, findings: Iterable[Finding], evidence: Iterable[TrustEvidence]
) -> list[tuple[str, list[str]]]:
    """Which rule said what about a copy: each heading with its sentences. `findings` and `evidence` are of all its
    checkpoint's copies."""
    lines = explanation(
        copy,
        [finding for finding in findings if finding.placement_id == copy.pk],
        [proof for proof in evidence if proof.placement_id == copy.pk],
    )
    return [
        (heading, [line.sentence for line in group]) for heading, group in groupby(lines, key=lambda line: line.heading)
    ]


def shards(placement: Placement) -> QuerySet[Shard]:
    return Shard.objects.filter(placement=placement)


def shard_skew(roles: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sizes of the smallest and the largest rank shard, from `roles_of`: skew is what makes one rank late."""
    sizes = [row[name] for row in roles for name in ("smallest", "largest") if row[name] is not None]
    return {"smallest": min(sizes, default=None), "largest": max(sizes, default=None)}
