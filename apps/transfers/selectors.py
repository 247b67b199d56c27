"""Reading policies, plans and transfers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone
from muster_agent.decide.retention import Action, Line, Plan

from apps.checkpoints.models import Placement
from apps.transfers.models import Migration, RetentionPolicy, Transfer

MAX_LINES = 1000


def policies() -> QuerySet[RetentionPolicy]:
    return RetentionPolicy.objects.select_related("cluster", "run", "hot_tier", "cold_tier")


def migrations() -> QuerySet[Migration]:
    return Migration.objects.select_related("policy")


def transfers() -> QuerySet[Transfer]:
    return Transfer.objects.select_related(
        "cluster", "checkpoint__run", "source__tier", "target_tier", "migration__policy", "agent__node"
    )


STUCK_TRIES = 3
_LEFT_LYING = timedelta(hours=1)


def stuck_transfers(limit: int) -> list[Transfer]:
    """The newest transfer of each copy, where it failed, where trouble met it several times in a row, or where its
    leftovers could not be removed; not of copies that are gone."""
    newer = Transfer.objects.filter(source=OuterRef("source"), pk__gt=OuterRef("pk"))  # ids sort by creation time
    failed = Q(state=Transfer.State.FAILED)
    waits = Q(state=Transfer.State.PAUSED, attempts__gte=STUCK_TRIES)
    lies = Q(state=Transfer.State.CANCELLED, is_clean=False, finished_at__lte=timezone.now() - _LEFT_LYING)
    rows = transfers().filter(failed | waits | lies).exclude(source__status=Placement.Status.MISSING)
    return list(rows.filter(~Exists(newer)).order_by("pk")[:limit])


class Progress(NamedTuple):
    """How far a transfer is; None is not measured."""

    done_ratio: float | None
    bytes_per_second: float | None
    eta_seconds: float | None


def progress_of(transfer: Transfer) -> Progress:
    """Copying and proving count alike: both pass every byte once."""
    copied, proven, total = transfer.copied_bytes, transfer.proven_bytes, transfer.total_bytes
    seconds = transfer.copy_seconds + transfer.prove_seconds
    rate = (copied + proven) / seconds if seconds > 0 and copied else None
    is_moving = transfer.state in (Transfer.State.COPYING, Transfer.State.PROVING, Transfer.State.PAUSED)
    left = max(2 * total - copied - proven, 0)
    return Progress(
        done_ratio=min((copied + proven) / (2 * total), 1.0) if total else None,
        bytes_per_second=rate,
        eta_seconds=left / rate if rate and is_moving else None,
    )


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan with names. What acts comes first; of many copies that stay the first thousand lines are enough."""
    lines = sorted(plan.lines, key=lambda line: line.action is Action.STAY)[:MAX_LINES]
    names = {tier.tier: tier.name for tier in plan.tiers}
    return {
        **{f"{action.value}_count": len(plan.of(action)) for action in Action},
        "moved_bytes": plan.moved_bytes,
        "freed_bytes": plan.freed_bytes,
        "seconds": plan.seconds,
        "notes": list(plan.notes),
        "line_count": len(plan.lines),
        "lines": [_line_json(line, names) for line in lines],
    }


def _line_json(line: Line, names: dict[str, str]) -> dict[str, Any]:
    copy = line.copy
    return {
        "placement": copy.placement,
        "checkpoint": copy.checkpoint,
        "run": copy.run,
        "run_name": copy.run_name,
        "step": copy.step,
        "tier_name": names.get(copy.tier, ""),
        "path": copy.path,
        "action": line.action.value,
        "to_tier_name": None if line.to_tier is None else names.get(line.to_tier),
        "reasons": list(line.reasons),
        "total_bytes": copy.total_bytes,
        "moved_bytes": line.moved_bytes,
        "freed_bytes": line.freed_bytes,
        "without_optimizer": line.without_optimizer,
        "seconds": line.seconds,
    }
