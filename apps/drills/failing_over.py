"""Failover: end a training process on purpose, then watch its run until it computes a step beyond the checkpoint."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from muster_agent.protocol.wire import DisruptBody, DisruptParams, TaskKind

from apps.checkpoints.models import Placement, RunAttempt, StepReport
from apps.core.moments import utc_moment
from apps.core.transitions import transition
from apps.drills import safety, selectors
from apps.drills.finish import OWNER_KIND, finish, objective_state
from apps.drills.models import Drill
from apps.drills.reading import CannotRun, require_small_enough
from apps.drills.run_records import WayBack, boundary_facts, way_back
from apps.fleet import tasks
from apps.fleet.models import AgentTask

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
    if attempt.agent is None or not selectors.can_work(attempt.agent):
        raise CannotRun(
            f"The agent beside launch {attempt.launch_id} is not online, so nothing there may be signalled."
        )
    require_small_enough(drill, safety.Radius(nodes=(attempt.agent.node.name,)))
    now = timezone.now()
    seconds = drill.deadline_seconds or DEADLINE_SECONDS
    with transaction.atomic():
        moved = transition(
            drill,
            old=Drill.State.PREPARING,
            new=Drill.State.RUNNING,
            attempt=attempt,
            started_at=now,
            deadline_at=now + timedelta(seconds=seconds),
        )
        if moved:
            tasks.create_task(
                agent=attempt.agent,
                kind=TaskKind.DISRUPT,
                params=DisruptParams(run=drill.run.name, attempt=attempt.launch_id, signal_name=drill.signal_name),
                owner_kind=OWNER_KIND,
                owner_id=drill.pk,
                idempotent=False,
            )
    return moved


def observe(drill: Drill) -> bool:
    """Wait for the injection, then for the step beyond the checkpoint."""
    task = tasks.tasks_of(OWNER_KIND, drill.pk).select_related("agent__node").first()
    if task is None or drill.attempt is None:
        return finish(drill, Drill.Outcome.FAILED, "The launch that was to be disrupted is no longer known.")
    if task.outcome not in ("", AgentTask.Outcome.DONE):
        return _not_injected(drill, task)
    if drill.fault_at is None:
        return _note_injection(drill, task) or _overdue(drill, None)
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
    way = way_back(failed=drill.attempt, fault_at=drill.fault_at, fault_is_exact=True)
    figures = figures_of(drill, way)
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


def _note_injection(drill: Drill, task: AgentTask) -> bool:
    """True once the fault's time is known and stored."""
    if task.outcome != AgentTask.Outcome.DONE:
        return False
    body = tasks.body(task, DisruptBody)
    fault_at = utc_moment(body.injected_unix_seconds)
    facts = {**drill.facts, "pid": body.pid, "signal": body.signal_name, "node": task.agent.node.name}
    if fault_at is None:
        fault_at = task.finished_at or timezone.now()
        facts["fault_time"] = "no calendar holds the time that the agent sent; this is when its answer came"
    return Drill.objects.filter(pk=drill.pk, fault_at=None).update(fault_at=fault_at, facts=facts) == 1


def _not_injected(drill: Drill, task: AgentTask) -> bool:
    node = task.agent.node.name
    if task.outcome == AgentTask.Outcome.LOST:
        reason = f"{node} was lost before it said whether the process was ended; see whether the run restarted."
        return finish(drill, Drill.Outcome.LOST, reason)
    return finish(drill, Drill.Outcome.FAILED, f"{node} did not end the process: {task.error or task.outcome}.")


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
