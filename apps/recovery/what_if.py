"""Reading what a tier's drills and ceilings measured, and asking the predictor about sizes that were never drilled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from django.db.models import F, Q
from django.utils import timezone

from apps.core.phases import PHASES, STORAGE_PHASES
from apps.drills.models import FROM_MEMORY_RATIO, Drill, DrillKind, DrillRung
from apps.recovery import scaling
from apps.recovery.advice import GPUS_PER_NODE
from apps.recovery.predict import COMPARED
from apps.recovery.scaling import Ceiling, Checked, Error, Model, Need, Reading
from apps.recovery.selectors import RECENT
from apps.storage.models import StorageTier, TierCeiling

MAX_ROUNDS = 500
DRILL_METHOD = "drill"


@dataclass(frozen=True, kw_only=True)
class Question:
    """`reader_count` nodes read at once: each of the run's nodes, unless fewer are asked for."""

    name: str
    total_bytes: int
    rank_count: int
    node_count: int
    reader_count: int


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`seconds` is the storage part and the other phases together. `is_beyond_measured`: more readers than any
    measurement had, which are taken to get no more than those."""

    question: Question
    storage_seconds: float
    other_seconds: float | None
    need: Need | None
    is_beyond_measured: bool

    @property
    def seconds(self) -> float:
        return self.storage_seconds + (self.other_seconds or 0.0)


@dataclass(frozen=True, kw_only=True)
class TierModel:
    """What is known of one tier. `model` is None until something was read from it. `other_phases` are the medians of
    the phases that storage does not do, from restarts on this cluster; empty where none was timed."""

    tier: StorageTier
    model: Model | None
    checked: list[Checked]
    error: Error | None
    other_phases: dict[str, float]
    restart_count: int

    @property
    def other_seconds(self) -> float | None:
        return sum(self.other_phases.values()) if self.other_phases else None


def question(
    total_bytes: int, rank_count: int, *, node_count: int | None = None, reader_count: int | None = None, name: str = ""
) -> Question:
    """Without a node count, 8 ranks share a node; no more nodes read than there are."""
    nodes = node_count or -(-rank_count // GPUS_PER_NODE)
    readers = min(reader_count or nodes, nodes)
    return Question(name=name, total_bytes=total_bytes, rank_count=rank_count, node_count=nodes, reader_count=readers)


def standard_questions() -> list[Question]:
    """8B, 70B, 405B and 1T at 8 to 16,384 ranks."""
    return [question(size, ranks, name=name) for name, size in scaling.SIZES for ranks in scaling.RANK_COUNTS]


def tier_model(tier: StorageTier, now: datetime | None = None) -> TierModel:
    """In three queries."""
    since = (now or timezone.now()) - RECENT
    readings = _readings(tier, since)
    ceilings = [
        Ceiling(count, rate)
        for count, rate in TierCeiling.objects.filter(tier=tier, measured_at__gte=since).values_list(
            "client_count", "bytes_per_second"
        )
    ]
    ceilings += [Ceiling(one.reader_count, one.total_bytes / one.seconds) for one in readings]
    limits = scaling.rates(ceilings)
    checked = scaling.check(limits, readings[::-1]) if limits else []
    phases, count = _other_phases(tier, since)
    return TierModel(
        tier=tier,
        model=scaling.fit(limits, readings) if limits else None,
        checked=checked,
        error=scaling.error(checked),
        other_phases=phases,
        restart_count=count,
    )


def answers(known: TierModel, questions: Sequence[Question], objective_seconds: float | None) -> list[Answer]:
    """Empty where nothing was ever read from the tier."""
    model, other = known.model, known.other_seconds
    if model is None:
        return []
    return [
        Answer(
            question=one,
            storage_seconds=model.seconds(one.total_bytes, one.reader_count),
            other_seconds=other,
            need=scaling.need(model, one.total_bytes, objective_seconds, other or 0.0) if objective_seconds else None,
            is_beyond_measured=one.reader_count > model.rates.measured_readers,
        )
        for one in questions
    ]


def _readings(tier: StorageTier, since: datetime) -> list[Reading]:
    """Rounds of passed drills whose bytes came from the tier and not from memory, newest first."""
    rows = DrillRung.objects.filter(
        Q(drill__cached_ratio_before__lte=FROM_MEMORY_RATIO) | Q(drill__cached_ratio_before=None),
        placement__tier=tier,
        drill__kind__in=(DrillKind.RELOAD, DrillKind.HERD),
        drill__outcome=Drill.Outcome.PASSED,
        drill__max_bytes_per_second=None,
        drill__created_at__gte=since,
        total_bytes__gt=0,
        seconds__gt=0,
    ).order_by(F("drill__created_at").desc(), "-order")
    fields = rows.values_list("total_bytes", "client_count", "seconds")[:MAX_ROUNDS]
    return [Reading(total, count, seconds) for total, count, seconds in fields if total and seconds]


def _other_phases(tier: StorageTier, since: datetime) -> tuple[dict[str, float], int]:
    """Medians over the newest ten timed restarts of the tier's cluster."""
    rows = Drill.objects.filter(
        cluster=tier.cluster_id, kind=DrillKind.FAILOVER, outcome=Drill.Outcome.PASSED, created_at__gte=since
    ).order_by("-created_at")
    timed = [phases for phases in rows.values_list("phases", flat=True)[:COMPARED] if phases]
    seconds: dict[str, list[float]] = defaultdict(list)
    for phases in timed:
        for phase in PHASES:
            if phase not in STORAGE_PHASES and phase in phases:
                seconds[phase.value].append(phases[phase])
    return {phase: median(values) for phase, values in seconds.items()}, len(timed)
