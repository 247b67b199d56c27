"""Moving drills forward. All state is in the rows; a step that already happened does nothing when asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.core.dispatch import wake_owner
from apps.core.errors import Conflict
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.drills import aborts, failing_over, faults, reading, results, rounds, safety, selectors, standby
from apps.drills.finish import OWNER_KIND, finish, objective_state, stop_work
from apps.drills.models import Drill, DrillKind, DrillRung
from apps.drills.results import Client
from apps.fleet.models import AgentTask, Cluster, TaskGroup

RETRY = timedelta(seconds=5)
MAX_WAIT = timedelta(hours=1)
CANCEL_GRACE = timedelta(seconds=8)
"""An agent that has not confirmed by then is named, and the drill ends without it."""
GATHER_GRACE = timedelta(seconds=10)
_MAX_STEPS = 100


def advance(drill_id: str) -> None:
    """Look at the drill and do whatever is due now. Calling it twice, or from two workers, is harmless."""
    for _step in range(_MAX_STEPS):
        drill = selectors.drills().filter(pk=drill_id).first()
        if drill is None or drill.state == Drill.State.FINISHED:
            if drill is not None and drill.restore_node:
                faults.restore_nodes(drill)
            return
        # First into the future: a drill that cannot be computed is tried again later, not in a tight loop.
        Drill.objects.filter(pk=drill.pk, state=drill.state).update(next_attempt_at=timezone.now() + _pace(drill))
        if not _step_of(drill)(drill):
            return
        announce(f"drill:{drill.pk}")


def due(now: datetime | None = None) -> list[str]:
    """Drills whose next look has come: unfinished ones, and those that have still a node to bring back."""
    rows = Drill.objects.filter(next_attempt_at__lte=now or timezone.now())
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def wake_due(now: datetime | None = None) -> None:
    """The tick's share of the sweep: a failover's deadline and a cancellation are watched to the second."""
    for drill_id in due(now):
        wake_owner(OWNER_KIND, drill_id)


def _pace(drill: Drill) -> timedelta:
    closely = not drill.is_storage_only or drill.cancel_requested_at is not None
    return timedelta(seconds=1) if closely else RETRY


def _step_of(drill: Drill) -> Callable[[Drill], bool]:
    if drill.cancel_requested_at is not None:
        return _cancelling
    return {
        Drill.State.SCHEDULED: _scheduled,
        Drill.State.WAITING: _scheduled,
        Drill.State.PREPARING: _preparing,
        Drill.State.RUNNING: _running,
        Drill.State.VALIDATING: _validating,
    }[Drill.State(drill.state)]


def _scheduled(drill: Drill) -> bool:
    """To `preparing` when it is this drill's turn on its cluster, else to `waiting`."""
    stopped = selectors.stopped_reason()
    if stopped is not None:
        return finish(drill, Drill.Outcome.SKIPPED, stopped)
    if drill.not_before_at is not None and timezone.now() < drill.not_before_at:
        return False
    if safety.waits_for_approval(drill):
        return _wait(drill, "Waits until another operator approves it.")
    with transaction.atomic():
        # An update locks the cluster's row on every database: of two drills that ask at once one sees the other.
        Cluster.objects.filter(pk=drill.cluster_id).update(name=F("name"))
        ahead = selectors.drill_ahead(drill)
        if ahead is None:
            return transition(drill, old=(Drill.State.SCHEDULED, Drill.State.WAITING), new=Drill.State.PREPARING)
    return _wait(drill, f"Waits for {ahead.pk}, which is at work on the same cluster.")


def _wait(drill: Drill, reason: str) -> bool:
    """For at most an hour."""
    if timezone.now() - (drill.not_before_at or drill.created_at) > MAX_WAIT:
        return finish(drill, Drill.Outcome.SKIPPED, f"An hour is over. {reason} Start it again when that has changed.")
    transition(drill, old=Drill.State.SCHEDULED, new=Drill.State.WAITING, reason=reason)
    return False


def _preparing(drill: Drill) -> bool:
    begin = _BEGINNINGS.get(drill.kind, reading.begin)
    try:
        safety.require_allowed(drill.run, drill.kind)
        return begin(drill)
    except Conflict as problem:
        return finish(drill, Drill.Outcome.SKIPPED, problem.detail)
    except reading.CannotRun as problem:
        return finish(drill, Drill.Outcome.SKIPPED, str(problem))


_BEGINNINGS: dict[str, Callable[[Drill], bool]] = {
    DrillKind.FAILOVER: failing_over.begin,
    DrillKind.STANDBY: standby.begin,
}


def _running(drill: Drill) -> bool:
    if drill.kind == DrillKind.FAILOVER:
        return failing_over.observe(drill)
    if drill.kind == DrillKind.STANDBY:
        return standby.observe(drill)
    at_work = drill.rungs.filter(finished_at=None).exclude(started_at=None)
    rung = at_work.select_related("group", "placement__tier").first()
    if rung is None:
        return _next_rung(drill)
    clients = results.clients_of(drill, rung)
    results.record(rung, clients)
    bad = [client for client in clients if client.task.outcome not in ("", AgentTask.Outcome.DONE)]
    if bad:
        return _fail(drill, bad)
    if all(client.task.outcome for client in clients):
        return _close_rung(drill, rung, clients)
    return _overdue(drill, rung, clients)


def _next_rung(drill: Drill) -> bool:
    waiting = drill.rungs.filter(started_at=None).order_by("order")
    rung = waiting.select_related("placement__tier", "placement__manifest").first()
    if rung is None:
        return transition(drill, old=Drill.State.RUNNING, new=Drill.State.VALIDATING)
    try:
        return reading.begin_rung(drill, rung)
    except reading.CannotRun as problem:
        return finish(drill, Drill.Outcome.LOST, str(problem))


def _close_rung(drill: Drill, rung: DrillRung, clients: Sequence[Client]) -> bool:
    wrong = results.wrong_backend(drill, clients)
    if wrong:
        return finish(drill, Drill.Outcome.FAILED, wrong)
    damaged = results.damage(clients)
    with transaction.atomic():
        if results.close_rung(rung, clients) is None:
            return False
        if damaged and rung.placement is not None:
            reason = results.record_damage(drill, rung.placement, damaged)
            return finish(drill, Drill.Outcome.FAILED, reason, verified=False)
        changed = results.changed_since_sealing(clients)
        return finish(drill, Drill.Outcome.FAILED, changed) if changed and not damaged else True


def _validating(drill: Drill) -> bool:
    """Every rung is in: the drill's own numbers, what they prove, and whether they were in time."""
    if drill.kind == DrillKind.FAILOVER:
        return failing_over.conclude(drill)
    figures = results.drill_figures(drill)
    with transaction.atomic():
        in_time = objective_state(figures["seconds"], drill.objective_seconds)
        reason = rounds.summary(drill, figures)
        if not finish(drill, Drill.Outcome.PASSED, reason, objective_state=in_time, **figures):
            return False
        results.record_proof(drill)
    return True


def _fail(drill: Drill, bad: Sequence[Client]) -> bool:
    """Name the client that failed first; the others were stopped because of it."""
    first = min(bad, key=lambda client: (_follows_another(client), client.task.finished_at or client.task.created_at))
    lost = first.task.outcome == AgentTask.Outcome.LOST or _follows_another(first)
    verb = _VERBS.get(first.task.outcome, "failed") if not _follows_another(first) else "did not start"
    detail = f": {first.task.error.rstrip('.')}" if first.task.error else ""
    return finish(drill, Drill.Outcome.LOST if lost else Drill.Outcome.FAILED, f"{first.who} {verb}{detail}.")


_VERBS = {"lost": "was lost", "cancelled": "was stopped", "unsupported": "does not know this task"}


def _follows_another(client: Client) -> bool:
    """It only ended because the common start was given up."""
    return client.task.error_code == "barrier_aborted"


def _overdue(drill: Drill, rung: DrillRung, clients: Sequence[Client]) -> bool:
    now = timezone.now()
    waiting = [client for client in clients if not client.task.outcome]
    names = ", ".join(client.who for client in waiting[:5])
    if drill.deadline_at is not None and now > drill.deadline_at:
        return finish(drill, Drill.Outcome.FAILED, f"Not done by the deadline; still reading: {names}.")
    stalled = aborts.stalled(drill, clients, now)
    if stalled:
        return finish(drill, Drill.Outcome.FAILED, stalled)
    slowed = aborts.slowed(drill, now)
    if slowed:
        return finish(drill, Drill.Outcome.CANCELLED, slowed)
    group = rung.group
    if group is None or group.state == TaskGroup.State.RELEASED:
        return False
    if group.state == TaskGroup.State.ABORTED or now > group.deadline_at + GATHER_GRACE:
        late = [client.who for client in waiting if client.task.ready_at is None] or [names]
        reason = f"The common start was given up: {', '.join(late[:5])} did not get ready in time."
        return finish(drill, Drill.Outcome.LOST, reason)
    return False


def _cancelling(drill: Drill) -> bool:
    """Cancelled as soon as every agent has stopped, or after a few seconds with those named that did not confirm."""
    stop_work(drill, "the drill was cancelled")
    open_tasks = AgentTask.objects.filter(owner_kind=OWNER_KIND, owner_id=drill.pk, outcome="")
    names = list(open_tasks.values_list("agent__node__name", flat=True)[:5])
    asked_at = drill.cancel_requested_at or timezone.now()
    if names and timezone.now() - asked_at < CANCEL_GRACE:
        return False
    unconfirmed = f" {', '.join(names)} had not confirmed by then." if names else ""
    return finish(drill, Drill.Outcome.CANCELLED, f"Cancelled.{unconfirmed}")
