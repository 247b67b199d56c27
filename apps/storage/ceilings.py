"""Measuring a tier's read ceiling with an agent, on request and on a schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from muster_agent.protocol.wire import CeilingBody, CeilingParams, TaskKind

from apps.accounts.services import log_activity
from apps.core.errors import ApplicationError, Conflict
from apps.core.transitions import record, transition
from apps.core.wakeups import announce
from apps.fleet import selectors as fleet
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask
from apps.storage.models import CeilingRun, StorageTier
from apps.storage.services import record_ceiling

OWNER_KIND = "ceiling"
SCHEDULE = "schedule"
LOOK_AGAIN = timedelta(seconds=30)
UNFINISHED = (CeilingRun.State.QUEUED, CeilingRun.State.RUNNING)
OUTCOMES = {AgentTask.Outcome.CANCELLED: CeilingRun.Outcome.CANCELLED}


@transaction.atomic
def request_measurement(*, tier: StorageTier, actor: str) -> CeilingRun:
    """Have an agent read the tier's largest files or objects in several ways. Raises Conflict where one is running
    already or no agent reaches the tier."""
    agent = _agent_for(tier)
    now = timezone.now()
    run = CeilingRun(tier=tier, agent=agent, requested_by=actor, created_at=now, next_attempt_at=now + LOOK_AGAIN)
    try:
        with transaction.atomic():
            run.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(f"The ceiling of {tier.name} is being measured already; wait for it.") from error
    params = CeilingParams(root=tier.uri, store=tier.store)
    tasks.create_task(agent=agent, kind=TaskKind.CEILING, params=params, owner_kind=OWNER_KIND, owner_id=run.pk)
    record(OWNER_KIND, run.pk, old="", new=run.state, actor=actor)
    log_activity(
        actor=actor,
        action="tier.measure",
        target_kind="tier",
        target_id=tier.pk,
        cluster_id=tier.cluster_id,
        detail={"agent": agent.node.name},
    )
    return run


def _agent_for(tier: StorageTier) -> Agent:
    agent = next(iter(fleet.agents_reaching(tier.uri, tier.cluster)), None)
    if agent is None:
        raise Conflict(
            f"No agent that is online in {tier.cluster.name} reaches {tier.uri}; start one whose roots contain it.",
            code="no_agent",
        )
    return agent


def request_overdue() -> None:
    """Measure each tier whose last try is older than `MUSTER_CEILING_DAYS`, one at a time; 0 leaves it to people. A
    tier that nobody reaches now is tried again at the next sweep. Buckets are measured when people ask: reading them
    may cost money."""
    if not settings.CEILING_DAYS or CeilingRun.objects.filter(state__in=UNFINISHED).exists():
        return
    since = timezone.now() - timedelta(days=settings.CEILING_DAYS)
    fresh = CeilingRun.objects.filter(created_at__gte=since).values("tier")
    for tier in StorageTier.objects.filter(uri__startswith="/").exclude(pk__in=fresh).select_related("cluster")[:50]:
        try:
            request_measurement(tier=tier, actor=SCHEDULE)
        except ApplicationError:
            continue
        return


def due() -> list[str]:
    """Unfinished measurements that nobody has looked at for a while."""
    rows = CeilingRun.objects.filter(next_attempt_at__lte=timezone.now(), state__in=UNFINISHED)
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def advance(run_id: str) -> None:
    """Look at the task of a measurement and do what is due. Calling it twice, or from two workers, changes nothing."""
    run = CeilingRun.objects.select_related("tier").filter(pk=run_id, state__in=UNFINISHED).first()
    if run is None:
        return
    CeilingRun.objects.filter(pk=run.pk, state__in=UNFINISHED).update(next_attempt_at=timezone.now() + LOOK_AGAIN)
    task = tasks.tasks_of(OWNER_KIND, run_id).last()
    if task is None:
        _finish(run, CeilingRun.Outcome.FAILED, "its task is gone; ask again")
    elif task.outcome == AgentTask.Outcome.DONE:
        _take_result(run, task)
    elif task.outcome:
        outcome = OUTCOMES.get(AgentTask.Outcome(task.outcome), CeilingRun.Outcome.FAILED)
        _finish(run, outcome, task.error or f"the task was {task.outcome}")
    elif task.state not in (AgentTask.State.QUEUED, AgentTask.State.LEASED):
        transition(run, old=CeilingRun.State.QUEUED, new=CeilingRun.State.RUNNING)


def _take_result(run: CeilingRun, task: AgentTask) -> None:
    try:
        report = tasks.body(task, CeilingBody).report
    except msgspec.ValidationError as error:
        _finish(run, CeilingRun.Outcome.FAILED, f"the agent's answer was not understood ({error}); update the agent")
        return
    tries = msgspec.to_builtins(report.tries)
    if report.bytes_per_second is None:
        reason = "; ".join(report.notes) or "no way of reading gave a rate that can be relied on"
        _finish(run, CeilingRun.Outcome.FAILED, reason, tries=tries)
        return
    with transaction.atomic():
        figures = {"tries": tries, "bytes_per_second": report.bytes_per_second}
        if _finish(run, CeilingRun.Outcome.MEASURED, "; ".join(report.notes), **figures):
            rate, method = report.bytes_per_second, f"ceiling: {report.method}"
            record_ceiling(tier=run.tier, bytes_per_second=rate, client_count=1, method=method)


@transaction.atomic
def _finish(run: CeilingRun, outcome: CeilingRun.Outcome, reason: str, **figures: Any) -> bool:
    ended = transition(
        run,
        old=UNFINISHED,
        new=CeilingRun.State.FINISHED,
        outcome=outcome,
        reason=f"{outcome}: {reason}" if reason else str(outcome),
        finished_at=timezone.now(),
        next_attempt_at=None,
        **figures,
    )
    if ended:
        CeilingRun.objects.filter(pk=run.pk).update(reason=reason)
        announce(f"ceiling:{run.pk}")
    return ended
