"""Tiers side by side, from measured drills only. What none has measured stays None, with the drill that fills it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Q, Sum
from django.utils import timezone

from apps.checkpoints.models import Placement
from apps.drills.models import FROM_MEMORY_RATIO, Drill, DrillKind, DrillRung, RankResult
from apps.recovery.selectors import RECENT
from apps.storage.models import StorageTier

MAX_ROUNDS = 5000
MAX_TIERS = 100
CPU_ROUNDS = 20
_ROUND_COLUMNS = (
    "order", "client_count", "seconds", "total_bytes", "bytes_per_second", "placement__tier_id",
    "drill__created_at", "drill__kind", "drill__seconds", "drill__total_bytes", "drill__facts", "drill__placement_id",
)  # fmt: skip
"""Of thousands of rounds, only what a column is made of."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One tier. `rate` with `rate_clients` is the best aggregate of any round; the reload is the newest that passed;
    `cpu_seconds_per_gb` is that of all clients of the 20 newest rounds. `knee_clients` is where a ladder stopped
    scaling, None where none did up to `ladder_clients`; that is None where no ladder ran. `run_id` has a copy here that
    could be drilled. Each `*_drill` is the drill behind it."""

    tier: StorageTier
    run_id: str | None
    rate: float | None = None
    rate_clients: int | None = None
    rate_drill: str | None = None
    reload_seconds: float | None = None
    reload_bytes: int | None = None
    reload_drill: str | None = None
    knee_clients: int | None = None
    ladder_clients: int | None = None
    ladder_drill: str | None = None
    cpu_seconds_per_gb: float | None = None

    @property
    def cost_per_tb_month(self) -> Decimal | None:
        return self.tier.cost_per_tb_month

    @property
    def missing(self) -> dict[str, str]:
        """The kind of drill that would measure each figure that is not there. A ladder measures all of them."""
        lacks = {
            "rate": (self.rate, DrillKind.RELOAD),
            "reload_seconds": (self.reload_seconds, DrillKind.RELOAD),
            "knee_clients": (self.ladder_clients, DrillKind.HERD),
            "cpu_seconds_per_gb": (self.cpu_seconds_per_gb, DrillKind.RELOAD),
        }
        return {name: kind.value for name, (value, kind) in lacks.items() if value is None}


def columns(tiers: Sequence[StorageTier], now: datetime | None = None) -> list[Column]:
    """In four queries, over drills of 90 days whose bytes came from the tier, uncapped."""
    since = (now or timezone.now()) - RECENT
    rounds = _rounds(tiers, since)
    by_tier: dict[str, list[DrillRung]] = defaultdict(list)
    for one in rounds:
        if one.placement is not None:
            by_tier[one.placement.tier_id].append(one)
    cpu, runs = _cpu(by_tier), _runs(tiers)
    return [
        Column(
            tier=tier,
            run_id=runs.get(tier.pk),
            cpu_seconds_per_gb=cpu.get(tier.pk),
            **_best(by_tier[tier.pk]),
            **_reload(by_tier[tier.pk]),
            **_ladder(by_tier[tier.pk]),
        )
        for tier in tiers
    ]


def _rounds(tiers: Sequence[StorageTier], since: datetime) -> list[DrillRung]:
    """Newest first."""
    memory = Q(drill__cached_ratio_before__lte=FROM_MEMORY_RATIO) | Q(drill__cached_ratio_before=None)
    rows = DrillRung.objects.filter(
        memory,
        placement__tier__in=[tier.pk for tier in tiers],
        drill__outcome=Drill.Outcome.PASSED,
        drill__max_bytes_per_second=None,
        drill__created_at__gte=since,
        bytes_per_second__gt=0,
    )
    rows = rows.select_related("drill", "placement").only(*_ROUND_COLUMNS)
    return list(rows.order_by("-drill__created_at", "-order")[:MAX_ROUNDS])


def _cpu(by_tier: Mapping[str, Sequence[DrillRung]]) -> dict[str, float]:
    """Seconds for each GB that the clients of each tier's newest rounds read; of a large fleet's every client of 90
    days there are millions."""
    newest = [one.pk for rounds in by_tier.values() for one in rounds[:CPU_ROUNDS]]
    rows = RankResult.objects.filter(rung__in=newest, cpu_seconds__isnull=False, bytes__gt=0)
    sums = rows.order_by().values("rung__placement__tier").annotate(cpu=Sum("cpu_seconds"), read=Sum("bytes"))
    return {row["rung__placement__tier"]: row["cpu"] / (row["read"] / 1e9) for row in sums}


def _runs(tiers: Sequence[StorageTier]) -> dict[str, str]:
    """A run with a resumable copy on each tier."""
    rows = Placement.objects.filter(
        tier__in=[tier.pk for tier in tiers],
        status=Placement.Status.COMPLETE,
        resumable=True,
        checkpoint__run__archived_at=None,
    ).order_by()
    return dict(rows.values_list("tier", "checkpoint__run").distinct())


def _best(rounds: Sequence[DrillRung]) -> dict[str, Any]:
    best = max(rounds, key=lambda one: one.bytes_per_second or 0.0, default=None)
    if best is None:
        return {}
    return {"rate": best.bytes_per_second, "rate_clients": best.client_count, "rate_drill": best.drill_id}


def _reload(rounds: Sequence[DrillRung]) -> dict[str, Any]:
    """The newest drill's own figures; of a drill that compared tiers those of its round on this one."""
    reloads = (one for one in rounds if one.drill.kind != DrillKind.BANDWIDTH)
    newest = next((one for one in reloads if one.drill.seconds is not None), None)
    if newest is None:
        return {}
    told = newest.drill if newest.placement_id == newest.drill.placement_id else newest
    return {"reload_seconds": told.seconds, "reload_bytes": told.total_bytes, "reload_drill": newest.drill_id}


def _ladder(rounds: Sequence[DrillRung]) -> dict[str, Any]:
    """Of the newest drill with more than one rung."""
    for one in rounds:
        ladder = one.drill.facts.get("ladder") or []
        if len(ladder) > 1 and one.placement_id == one.drill.placement_id:
            knee = one.drill.facts.get("knee")
            return {
                "knee_clients": knee["client_count"] if knee else None,
                "ladder_clients": max(rung["client_count"] for rung in ladder),
                "ladder_drill": one.drill_id,
            }
    return {}
