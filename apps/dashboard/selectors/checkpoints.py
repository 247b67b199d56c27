"""Reading checkpoints with their copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Prefetch, Q, QuerySet, Subquery, Window
from django.db.models.functions import Coalesce, RowNumber

from apps.checkpoints.explanations import explanation
from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    Placement,
    SentSums,
    Shard,
    SteplessCheckpoint,
    TrainingRun,
    TrustEvidence,
)
from apps.checkpoints.standing import lags_among
from apps.checkpoints.tier_lag import Lag
from apps.recovery.selectors import with_ceiling, with_proof


def in_time() -> QuerySet[Checkpoint]:
    """Checkpoints with `known_at` to order them by: when they were saved, or first seen where the storage does not
    say."""
    return Checkpoint.objects.select_related("run__cluster").annotate(known_at=Coalesce("saved_at", "created_at"))


def with_copies(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Their copies, and the number of open damage findings on these."""
    copies = Placement.objects.select_related("tier").order_by("tier__speed_order", "pk")
    damage = Finding.objects.filter(
        placement__checkpoint=OuterRef("pk"), resolved_at=None, severity=Finding.Severity.DAMAGE
    )
    counted = damage.order_by().values("placement__checkpoint").annotate(count=Count("pk")).values("count")
    shown = rows.prefetch_related(Prefetch("placements", queryset=copies))
    counted_too: QuerySet[Any] = shown.annotate(damage_count=Coalesce(Subquery(counted), 0))
    return counted_too


def with_copy(rows: QuerySet[Any], **conditions: Any) -> QuerySet[Any]:
    """Those of which some copy is so."""
    return rows.filter(Exists(Placement.objects.filter(checkpoint=OuterRef("pk"), **conditions)))


def stepless(*, run: TrainingRun | None, status: str = "", search: str = "") -> QuerySet[SteplessCheckpoint]:
    """Checkpoints whose step nothing tells, with their tiers; of a run those that lie in folders of its name."""
    rows = SteplessCheckpoint.objects.select_related("tier__cluster")
    if run is not None:
        rows = rows.filter(run_name=run.name, tier__cluster=run.cluster_id)
    if status:
        rows = rows.filter(status=status)
    return rows.filter(path__icontains=search) if search else rows


def searched(rows: QuerySet[Any], search: str) -> QuerySet[Any]:
    """By a part of the run's name, or by the step."""
    digits = search.replace(",", "")
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        return rows.filter(Q(step=int(digits)) | Q(run__name__icontains=search))
    return rows.filter(run__name__icontains=search)


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
    """The fastest tier's first; `has_sent_sums`: its store can be asked for them."""
    known = SentSums.objects.filter(placement=OuterRef("pk"), fingerprint=OuterRef("fingerprint"))
    rows = Placement.objects.filter(checkpoint=checkpoint).annotate(has_sent_sums=Exists(known))
    rows = rows.select_related("tier", "manifest").defer("manifest__body")
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
