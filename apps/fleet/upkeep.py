"""What the sweeper does for fleet, every 10 s: leases that ran out, barriers past their deadline, silent agents."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.utils import timezone

from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.fleet import barrier, tasks
from apps.fleet.models import Agent, AgentEvent, AgentTask

CANCEL_SECONDS = 60
_TASKS_AT_ONCE, _EVENTS_AT_ONCE = 200, 20_000
_WATCHED = (Agent.State.ONLINE, Agent.State.BUSY, Agent.State.DRAINING, Agent.State.STALE)


def expire_leases() -> None:
    """Take back what nobody holds any more. Calling it twice, or in two places at once, changes nothing."""
    now = timezone.now()
    grace = timedelta(seconds=settings.TASK_GRACE_SECONDS)
    cancelled_before = now - timedelta(seconds=CANCEL_SECONDS)
    for task in AgentTask.objects.filter(state=AgentTask.State.LEASED, lease_expires_at__lte=now):
        tasks.requeue_unacknowledged(task, f"not acknowledged within {settings.TASK_ACK_SECONDS} s")
    for task in AgentTask.objects.filter(state__in=AgentTask.HELD, lease_expires_at__lte=now - grace):
        tasks.orphan(task, "its lease ran out: the agent was not heard of")
    for task in AgentTask.objects.filter(state=AgentTask.State.CANCELLING, cancel_requested_at__lte=cancelled_before):
        tasks.give_up(task, f"did not stop within {CANCEL_SECONDS} s of being cancelled")
    for group_id in barrier.overdue():
        barrier.settle(group_id)


def mark_silent_agents() -> None:
    """Online, then stale, then lost, by how long ago the agent polled. The next poll brings it back."""
    now = timezone.now()
    stale_before = now - timedelta(seconds=settings.AGENT_STALE_SECONDS)
    lost_before = now - timedelta(seconds=settings.AGENT_LOST_SECONDS)
    for agent in Agent.objects.filter(state__in=_WATCHED, last_seen_at__lte=stale_before):
        assert agent.last_seen_at is not None
        new = Agent.State.LOST if agent.last_seen_at <= lost_before else Agent.State.STALE
        silent_seconds = (now - agent.last_seen_at).total_seconds()
        if new != agent.state and transition(
            agent, old=agent.state, new=new, reason=f"no poll for {silent_seconds:.0f} s"
        ):
            announce(f"agent:{agent.pk}")
    _give_up_unstarted()


def prune_events(now: datetime | None = None) -> int:
    """Forget events of tasks that ended over `AGENT_EVENT_KEEP_DAYS` ago; gives how many went, a bounded number a call.
    What came of a task is in its own row."""
    if not settings.AGENT_EVENT_KEEP_DAYS:
        return 0
    before = (now or timezone.now()) - timedelta(days=settings.AGENT_EVENT_KEEP_DAYS)
    ended = AgentTask.objects.filter(state__in=AgentTask.FINISHED, finished_at__lt=before)
    with_events = ended.filter(Exists(AgentEvent.objects.filter(task=OuterRef("pk")))).order_by("finished_at")
    tasks_ = list(with_events.values_list("pk", flat=True)[:_TASKS_AT_ONCE])
    events = list(AgentEvent.objects.filter(task__in=tasks_).values_list("pk", flat=True)[:_EVENTS_AT_ONCE])
    for begin in range(0, len(events), 2000):
        AgentEvent.objects.filter(pk__in=events[begin : begin + 2000]).delete()
    return len(events)


def _give_up_unstarted() -> None:
    """Work queued for a lost agent would wait for ever, and its owner (an audit, a scan) with it."""
    waiting = AgentTask.objects.filter(state=AgentTask.State.QUEUED, agent__state=Agent.State.LOST)
    for task in waiting.select_related("agent__node"):
        tasks.give_up(task, f"the agent on {task.agent.node.name} was lost before it took this up")
