"""The rows that a retention decision needs, as its pure types."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Sum
from django.utils import timezone
from muster_agent.decide.keeping import Copy
from muster_agent.decide.retention import Rules, TierState
from muster_agent.formats.base import Role
from muster_agent.protocol.trust import Trust

from apps.checkpoints.models import Placement, PlacementHold, RunAttempt, RunPointer, Shard, TrainingRun
from apps.fleet.models import Cluster
from apps.storage.models import StorageTier
from apps.transfers.models import CheckpointLabel, RetentionPolicy, Transfer

FINISHED = (Transfer.State.DONE, Transfer.State.CANCELLED, Transfer.State.FAILED)
_DAY_SECONDS = 86_400.0
_MEASURED = 20
"""The latest transfers between two tiers tell how fast the next one will be."""


@dataclass(slots=True)
class _Around:
    """What is known around the copies, by placement or run id."""

    holds: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    transfers: dict[str, str] = field(default_factory=dict)
    made_from: dict[str, str] = field(default_factory=dict)
    pointers: dict[str, list[RunPointer]] = field(default_factory=lambda: defaultdict(list))
    attempts: dict[str, list[RunAttempt]] = field(default_factory=lambda: defaultdict(list))


def runs_of(policy: RetentionPolicy) -> QuerySet[TrainingRun]:
    """The runs that a policy covers: its own, or all of the cluster that have no policy of their own for this tier."""
    if policy.run_id is not None:
        return TrainingRun.objects.filter(pk=policy.run_id)
    own = RetentionPolicy.objects.filter(hot_tier=policy.hot_tier_id, enabled=True).exclude(run=None)
    return TrainingRun.objects.filter(cluster=policy.cluster_id).exclude(pk__in=own.values("run"))


def copies_of(
    runs: QuerySet[TrainingRun],
    *,
    exempt_labels: Sequence[str] = (),
    with_optimizer: bool = False,
    now: datetime | None = None,
) -> list[Copy]:
    """Every copy of these runs that is, or may be, there, each with one of `exempt_labels` if it has one. Five queries,
    however many copies."""
    label = CheckpointLabel.objects.filter(checkpoint=OuterRef("checkpoint"), label__in=list(exempt_labels))
    rows = (
        Placement.objects.filter(checkpoint__run__in=runs)
        .exclude(status=Placement.Status.MISSING)
        .select_related("checkpoint__run", "checkpoint__pin")
        .annotate(root=F("manifest__root_xxh3_128"), exempt=Subquery(label.order_by("label").values("label")[:1]))
        .order_by("checkpoint__run", "-checkpoint__step", "path")
    )
    if with_optimizer:
        optimizer = Shard.objects.filter(placement=OuterRef("pk"), role=Role.OPTIMIZER.value)
        total = optimizer.order_by().values("placement").annotate(total=Sum("size_bytes")).values("total")
        rows = rows.annotate(optimizer=Subquery(total))
    around = _load(runs)
    at = now or timezone.now()
    return [_copy(row, around, at) for row in rows]


def _copy(row: Placement, around: _Around, now: datetime) -> Copy:
    checkpoint = row.checkpoint
    saved_at = checkpoint.saved_at or row.newest_mtime_at
    named, doubts = _pointers(row, around.pointers.get(checkpoint.run_id, ()))
    pin = getattr(checkpoint, "pin", None)
    exempt = getattr(row, "exempt", None)
    return Copy(
        placement=row.pk,
        checkpoint=row.checkpoint_id,
        run=checkpoint.run_id,
        run_name=checkpoint.run.name,
        step=checkpoint.step,
        tier=row.tier_id,
        path=row.path,
        format=row.format,
        status=row.status,
        trust=Trust(row.trust),
        resumable=row.resumable,
        total_bytes=row.total_bytes,
        optimizer_bytes=getattr(row, "optimizer", None) or 0,
        root_digest=getattr(row, "root", None) or "",
        made_from=around.made_from.get(row.pk, ""),
        age_seconds=None if saved_at is None else max((now - saved_at).total_seconds(), 0.0),
        pins=() if pin is None else (str(pin),),
        labels=frozenset() if exempt is None else frozenset({exempt}),
        holds=(*around.holds.get(row.pk, ()), *_jobs(row, around.attempts.get(checkpoint.run_id, ()))),
        pointers=named,
        pointer_doubts=doubts,
        transfer=around.transfers.get(row.pk, ""),
    )


def _pointers(row: Placement, pointers: Sequence[RunPointer]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that name this copy, and those that might: beside it, and not to be read."""
    named, doubts = [], []
    for pointer in pointers:
        folder = posixpath.dirname(pointer.path)
        if pointer.tier_id != row.tier_id or posixpath.dirname(row.path) != folder:
            continue
        by_name = pointer.target is not None and posixpath.join(folder, pointer.target) == row.path
        if by_name or pointer.step == row.checkpoint.step:
            named.append(pointer.path)
        elif pointer.step is None and pointer.target is None:
            doubts.append(pointer.path)
    return tuple(named), tuple(doubts)


def _jobs(row: Placement, attempts: Sequence[RunAttempt]) -> Iterable[str]:
    """Running jobs that began from this copy, or from this step where they did not say from which copy."""
    for attempt in attempts:
        by_path = attempt.resumed_from_path == row.path
        by_step = not attempt.resumed_from_path and attempt.resumed_from_step == row.checkpoint.step
        if by_path or by_step:
            yield f"running job {attempt.launch_id}"


def _load(runs: QuerySet[TrainingRun]) -> _Around:
    around = _Around()
    for hold in PlacementHold.objects.filter(placement__checkpoint__run__in=runs, released_at=None):
        around.holds[hold.placement_id].append(f"{hold.source_kind} {hold.source_id}")
    trimmed = Q(without_optimizer=True) & ~Q(target=None)
    rows = Transfer.objects.filter(trimmed | ~Q(state__in=FINISHED), checkpoint__run__in=runs)
    for transfer in rows.annotate(root=F("source__manifest__root_xxh3_128")).only(
        "state", "source", "target", "without_optimizer"
    ):
        if transfer.state not in FINISHED:
            around.transfers[transfer.source_id] = transfer.pk
        if transfer.target_id is not None and transfer.without_optimizer:
            around.made_from[transfer.target_id] = getattr(transfer, "root", None) or ""
    for pointer in RunPointer.objects.filter(run__in=runs):
        around.pointers[pointer.run_id].append(pointer)
    for attempt in RunAttempt.objects.filter(run__in=runs, ended_at=None):
        around.attempts[attempt.run_id].append(attempt)
    return around


def tier_states(cluster: Cluster | str) -> list[TierState]:
    """The tiers of a cluster, fastest first. What is used counts the copies that are known."""
    cluster_id = cluster if isinstance(cluster, str) else cluster.pk
    there = Q(placements__listed_status=Placement.Status.MISSING)
    tiers = StorageTier.objects.filter(cluster=cluster_id).order_by("speed_order", "name")
    used = tiers.annotate(used=Sum("placements__total_bytes", filter=~there))
    return [
        TierState(
            tier=tier.pk,
            name=tier.name,
            order=tier.speed_order,
            capacity_bytes=tier.capacity_bytes,
            used_bytes=tier.used or 0,
        )
        for tier in used
    ]


def rules_of(policy: RetentionPolicy) -> Rules:
    """The policy as the decision takes it."""
    return Rules(
        hot_tier=policy.hot_tier_id,
        cold_tier=policy.cold_tier_id,
        keep_newest=policy.keep_newest,
        keep_every_steps=policy.keep_every_steps,
        exempt_labels=frozenset(policy.exempt_labels),
        move_after_seconds=_seconds(policy.move_after_days),
        expire_after_seconds=_seconds(policy.expire_after_days),
        high_water_ratio=policy.high_water_ratio,
        low_water_ratio=policy.low_water_ratio,
        optimizer_newest=policy.optimizer_newest,
    )


def _seconds(days: float | None) -> float | None:
    return None if days is None else days * _DAY_SECONDS


def measured_bytes_per_second(source_tier: str, target_tier: str | None) -> float | None:
    """How fast the latest transfers between these tiers were, proof included; None where there were none."""
    done = Transfer.objects.filter(
        source__tier=source_tier, target_tier=target_tier, state=Transfer.State.DONE, copy_seconds__gt=0
    )
    rows = list(done.order_by("-finished_at").values_list("copied_bytes", "copy_seconds", "prove_seconds")[:_MEASURED])
    seconds = sum(copy + prove for _bytes, copy, prove in rows)
    total = sum(copied for copied, _copy, _prove in rows)
    return total / seconds if seconds > 0 and total else None
