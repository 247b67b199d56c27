"""Incidents that people and other systems report: the launch's own records measure the way back where there are any."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.models import RunAttempt, TrainingRun
from apps.core import transitions
from apps.core.errors import Conflict, InvalidInput
from apps.drills.models import Drill
from apps.recovery.models import Incident, Recovery


@transaction.atomic
def report_incident(
    *,
    run: TrainingRun,
    fault_at: datetime,
    actor: str,
    launch_id: str = "",
    detected_at: datetime | None = None,
    resumed_at: datetime | None = None,
    checkpoint_step: int | None = None,
    detail: str = "",
) -> Incident:
    """Record a real disruption. Without `launch_id` it is of the launch that last began before the fault, if a hook
    reports any; then its records measure the way back. Where none is known, `resumed_at`, the first step beyond the
    checkpoint, closes the recovery with a time and no phases. Raises InvalidInput that names the field, Conflict where
    that launch has an incident or a drill ended it."""
    _check(fault_at, detected_at, resumed_at)
    attempt = _attempt(run, launch_id, fault_at)
    if attempt is not None:
        _require_new(attempt)
        if resumed_at is not None:
            problem = f"The records of launch {attempt.launch_id} measure the way back; leave this out."
            raise InvalidInput(problem, pointer="/resumed_at")
    now = timezone.now()
    incident = Incident.objects.create(
        run=run,
        ended_attempt=attempt,
        fault_at=fault_at,
        detected_at=detected_at,
        detail=detail,
        reported_by=actor,
        created_at=now,
    )
    recovery = Recovery.objects.create(
        incident=incident, created_at=now, checkpoint_step=checkpoint_step, **_given(fault_at, resumed_at)
    )
    transitions.record("recovery", recovery.pk, old="", new=recovery.state, actor=actor, reason=detail or "reported")
    log_activity(
        actor=actor,
        action="incident.report",
        target_kind="incident",
        target_id=incident.pk,
        cluster_id=incident.run.cluster_id,
    )
    return incident


def _check(fault_at: datetime, detected_at: datetime | None, resumed_at: datetime | None) -> None:
    if fault_at > timezone.now():
        raise InvalidInput("The fault lies in the future.", pointer="/fault_at")
    for name, moment in (("detected_at", detected_at), ("resumed_at", resumed_at)):
        if moment is not None and moment < fault_at:
            raise InvalidInput("This lies before the fault.", pointer=f"/{name}")


def _attempt(run: TrainingRun, launch_id: str, fault_at: datetime) -> RunAttempt | None:
    rows = RunAttempt.objects.filter(run=run)
    if not launch_id:
        return rows.filter(started_at__lte=fault_at).order_by("-started_at").first()
    named = rows.filter(launch_id=launch_id).first()
    if named is None:
        raise InvalidInput(f"No launch {launch_id!r} of this run is known.", pointer="/launch_id")
    return named


def _require_new(attempt: RunAttempt) -> None:
    known = Incident.objects.filter(ended_attempt=attempt).first()
    if known is not None:
        raise Conflict(f"That launch's end is recorded already as {known.pk}.")
    if Drill.objects.filter(attempt=attempt, fault_at__isnull=False).exists():
        raise Conflict("A drill ended that launch: what was injected is no incident.")


def _given(fault_at: datetime, resumed_at: datetime | None) -> dict[str, Any]:
    if resumed_at is None:
        return {}
    seconds = (resumed_at - fault_at).total_seconds()
    return {
        "state": Recovery.State.CLOSED,
        "closed_at": resumed_at,
        "time_to_resume_seconds": seconds,
        "unattributed_seconds": seconds,
    }
