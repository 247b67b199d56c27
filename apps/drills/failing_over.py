"""Failover: break a worker of a training job on purpose, then watch its run until it computes a step beyond the
checkpoint."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.checkpoints.models import Placement, RunAttempt, StepReport
from apps.core.transitions import transition
from apps.drills import faults, safety, selectors
from apps.drills.finish import finish, objective_state
from apps.drills.models import Drill, Fault
from apps.drills.reading import CannotRun, require_small_enough
from apps.drills.run_records import WayBack, boundary_facts, way_back

DEADLINE_SECONDS = 900
SETTLE = timedelta(seconds=3)
"""Other ranks' records of the same moments may still be on their way when the first step arrives."""
SURVIVED = timedelta(seconds=10)


def begin(drill: Drill) -> bool:
    """Find the launch that trains now and have its agent end it. Raises CannotRun."""
    attempt = selectors.live_attempt(drill)
    if attempt is None:
        raise CannotRun(
            f"No launch of {drill.run.name} has reported in the last two minutes: start the job with the "
            "training hook, then drill it."
        )
    worker = faults.chosen_worker(drill, attempt)
    require_small_enough(drill, safety.Radius(nodes=(worker.node,)))
    now = timezone.now()
    seconds = drill.deadline_seconds or DEADLINE_SECONDS
    by_scheduler = drill.fault == Fault.NODE
    with transaction.atomic():
        moved = transition(
            drill,
            old=Drill.State.PREPARING,
            new=Drill.State.RUNNING,
            attempt=attempt,
            started_at=now,
            deadline_at=now + timedelta(seconds=seconds),
            restore_node=worker.node if by_scheduler else "",
            facts={**drill.facts, "worker": worker.who},
        )
        if moved and not by_scheduler:
            faults.ask_agent(drill, attempt, worker)
    return moved


def observe(drill: Drill) -> bool:
    """Wait for the injection, then for the step beyond the checkpoint."""
    if drill.attempt is None:
        return finish(drill, Drill.Outcome.FAILED, "The launch that was to be disrupted is no longer known.")
    if drill.fault_at is None:
        return _note_injection(drill)
    faults.follow_scheduler(drill)
    way = way_back(failed=drill.attempt, fault_at=drill.fault_at, fault_is_exact=True)
    if way.timeline.seconds is None:
        return _overdue(drill, way)
    settled_at = timezone.now() + SETTLE
    with transaction.atomic():
        moved = transition(drill, old=Drill.State.RUNNING, new=Drill.State.VALIDATING)
        if moved:
            Drill.objects.filter(pk=drill.pk).update(facts={**drill.facts, "settled_at": settled_at.isoformat()})
    return moved


def conclude(drill: Drill) -> bool:
    """Once the stragglers among the records are in, compute and end."""
    settled_at = drill.facts.get("settled_at")
    if settled_at and timezone.now() < datetime.fromisoformat(settled_at):
        return False
    if drill.attempt is None or drill.fault_at is None:
        return finish(drill, Drill.Outcome.FAILED, "The launch that was disrupted is no longer known.")
    cure = faults.follow_scheduler(drill)
    way = way_back(failed=drill.attempt, fault_at=drill.fault_at, fault_is_exact=True)
    figures = figures_of(drill, way)
    figures["facts"]["hold_cure"] = cure
    in_time = objective_state(figures["seconds"], drill.objective_seconds)
    return finish(drill, Drill.Outcome.PASSED, _summary(way), objective_state=in_time, **figures)


@transaction.atomic
def recompute(drill: Drill) -> bool:
    """Bring a passed failover in line with records that arrived after its end. True when a number changed."""
    if drill.outcome != Drill.Outcome.PASSED or drill.attempt is None or drill.fault_at is None:
        return False
    way = way_back(failed=drill.attempt, fault_at=drill.fault_at, fault_is_exact=True)
    if way.timeline.seconds is None:
        return False
    figures = figures_of(drill, way)
    figures["objective_state"] = objective_state(figures["seconds"], drill.objective_seconds)
    if all(getattr(drill, name) == value for name, value in figures.items()):
        return False
    return Drill.objects.filter(pk=drill.pk, outcome=Drill.Outcome.PASSED).update(**figures) == 1


def figures_of(drill: Drill, way: WayBack) -> dict[str, Any]:
    line = way.timeline
    placement = _placement(drill, way.attempt)
    facts = {
        **drill.facts,
        "boundaries": boundary_facts(line),
        "launch_count": line.launch_count,
        "reschedule": [{"what": one.what, "seconds": one.seconds} for one in way.rescheduling],
        "first_step": line.first_step,
        "resumed_attempt": line.attempt,
        "resumed_from_path": way.attempt.resumed_from_path if way.attempt else "",
    }
    return {
        "seconds": line.seconds,
        "phases": line.phases,
        "unattributed_seconds": line.unattributed_seconds,
        "checkpoint_step": line.resumed_from_step,
        "lost_steps": way.lost_steps,
        "lost_seconds": way.lost_seconds,
        "placement": placement,
        "total_bytes": placement.total_bytes if placement else None,
        "facts": facts,
    }


def _placement(drill: Drill, attempt: RunAttempt | None) -> Placement | None:
    if attempt is None or not attempt.resumed_from_path:
        return None
    rows = Placement.objects.filter(checkpoint__run_id=drill.run_id, path=attempt.resumed_from_path)
    return rows.first()


def _note_injection(drill: Drill) -> bool:
    """True once the fault's time is known and stored, or there will be none."""
    try:
        injection = faults.injected(drill)
    except faults.NotInjected as problem:
        return finish(drill, problem.outcome, str(problem))
    if injection is None:
        return _overdue(drill, None)
    facts = {**drill.facts, **injection.facts}
    return Drill.objects.filter(pk=drill.pk, fault_at=None).update(fault_at=injection.fault_at, facts=facts) == 1


def _overdue(drill: Drill, way: WayBack | None) -> bool:
    now = timezone.now()
    if drill.deadline_at is None or now <= drill.deadline_at:
        return False
    seconds = round((drill.deadline_at - (drill.started_at or drill.created_at)).total_seconds())
    if way is None:
        return finish(drill, Drill.Outcome.FAILED, f"The agent did not inject the fault within {seconds} s.")
    reason = f"No step beyond the checkpoint within {seconds} s. {_last_seen(drill, way)}"
    line = way.timeline
    facts = {**drill.facts, "boundaries": boundary_facts(line)}
    return finish(drill, Drill.Outcome.FAILED, reason, phases=line.phases, facts=facts)


def _last_seen(drill: Drill, way: WayBack) -> str:
    """How far the run got, so that the reader knows where to look."""
    assert drill.fault_at is not None
    survived = StepReport.objects.filter(attempt_id=drill.attempt_id, at__gt=drill.fault_at + SURVIVED).exists()
    if survived:
        return f"The process went on training after {drill.signal_name}: it handles that signal; use SIGKILL."
    steps = StepReport.objects.filter(attempt__run_id=drill.run_id, at__gt=drill.fault_at)
    if steps.exists():
        return "The new launch trains, but never said what it resumed from: call the hook's resumed_from()."
    last = way.timeline.boundaries[-1]
    return f"The last thing heard was: {last.what} (launch {last.attempt})."


def _summary(way: WayBack) -> str:
    line = way.timeline
    launches = f" after {line.launch_count} launches" if line.launch_count > 1 else ""
    lost = "" if way.lost_steps is None else f"; {way.lost_steps} steps were computed again"
    return f"Trained step {line.first_step} from the checkpoint of step {line.resumed_from_step}{launches}{lost}."
