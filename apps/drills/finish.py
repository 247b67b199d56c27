"""How a drill ends: once, with an outcome, its reason, and everything it held given back."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.checkpoints import placements
from apps.checkpoints.models import Placement
from apps.core import tracing
from apps.core.dispatch import enqueue, wake_owner
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.drills.models import Drill, DrillRung
from apps.fleet import barrier, tasks

OWNER_KIND = "drill"
UNFINISHED = tuple(state.value for state in Drill.State if state != Drill.State.FINISHED)


@transaction.atomic
def finish(drill: Drill, outcome: Drill.Outcome, reason: str, *, actor: str = "", **updates: Any) -> bool:
    """End `drill`. False when somebody else ended it first; then nothing is changed."""
    now = timezone.now()
    ended = transition(
        drill,
        old=UNFINISHED,
        new=Drill.State.FINISHED,
        reason=f"{outcome}: {reason}" if reason else str(outcome),
        actor=actor,
        outcome=outcome,
        finished_at=now,
        next_attempt_at=now if drill.restore_node else None,
        **updates,
    )
    if not ended:
        return False
    Drill.objects.filter(pk=drill.pk).update(reason=reason)
    drill.reason = reason
    _give_back(drill, reason)
    if drill.restore_node:
        wake_owner(OWNER_KIND, drill.pk)
    announce(f"drill:{drill.pk}")
    if tracing.is_on():
        enqueue("muster.notify.trace_drill", drill_id=drill.pk)
    for waiting in Drill.objects.filter(cluster_id=drill.cluster_id, state=Drill.State.WAITING).values_list(
        "pk", flat=True
    ):
        wake_owner(OWNER_KIND, waiting)
    return True


def stop_work(drill: Drill, reason: str) -> None:
    """Tell every agent of this drill to stop, and its barriers to open for nobody."""
    for rung in DrillRung.objects.filter(drill=drill, finished_at=None).exclude(group=None).select_related("group"):
        if rung.group is not None:
            barrier.abort_group(group=rung.group, reason=reason)
    tasks.cancel_owner(owner_kind=OWNER_KIND, owner_id=drill.pk, reason=reason)


def objective_state(seconds: float | None, objective_seconds: float | None) -> Drill.ObjectiveState:
    """Met or breached by what was measured; none without an objective or a measurement."""
    if seconds is None or objective_seconds is None:
        return Drill.ObjectiveState.NONE
    return Drill.ObjectiveState.MET if seconds <= objective_seconds else Drill.ObjectiveState.BREACHED


def _give_back(drill: Drill, reason: str) -> None:
    stop_work(drill, reason or "the drill has ended")
    for held in Placement.objects.filter(holds__source_kind=OWNER_KIND, holds__source_id=drill.pk):
        placements.release(placement=held, source_kind=OWNER_KIND, source_id=drill.pk)
