"""What the sweeper does about agents that are silent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from factories import agent, cluster, node

from apps.core.models import Transition
from apps.fleet import upkeep
from apps.fleet.models import Agent, AgentEvent, AgentTask

pytestmark = pytest.mark.django_db


def silent_for(seconds: float) -> Agent:
    return agent(node(cluster()), last_seen_at=timezone.now() - timedelta(seconds=seconds))


def queued_for(an_agent: Agent) -> AgentTask:
    return AgentTask.objects.create(
        agent=an_agent, owner_kind="audit", owner_id="aud_x", kind="verify", params={}, created_at=timezone.now()
    )


@pytest.mark.parametrize(("seconds", "state"), [(80, "online"), (100, "stale"), (400, "lost")])
def test_a_silent_agent_becomes_stale_then_lost(seconds: float, state: str) -> None:
    silent_for(seconds)
    upkeep.mark_silent_agents()
    upkeep.mark_silent_agents()
    assert Agent.objects.get().state == state
    assert Transition.objects.filter(owner_kind="agent").count() == (0 if state == "online" else 1)


def test_work_queued_for_a_lost_agent_is_given_up_with_the_reason() -> None:
    task = queued_for(silent_for(400))
    upkeep.mark_silent_agents()
    task.refresh_from_db()
    assert (task.state, task.outcome) == ("lost", "lost")
    assert "gpu-1 was lost before it took this up" in task.error


def test_work_queued_for_a_stale_agent_still_waits_for_it() -> None:
    task = queued_for(silent_for(100))
    upkeep.mark_silent_agents()
    task.refresh_from_db()
    assert task.state == "queued"


def with_events(an_agent: Agent, days_ago: float, **fields: object) -> AgentTask:
    """A task with 3 events, ended so long ago unless told otherwise."""
    at = timezone.now() - timedelta(days=days_ago)
    task = queued_for(an_agent)
    AgentTask.objects.filter(pk=task.pk).update(**{"state": "done", "finished_at": at, **fields})
    for seq in range(3):
        AgentEvent.objects.create(task=task, attempt=1, seq=seq, kind="progress", at=at, mono_seconds=seq)
    return task


@pytest.mark.parametrize(("days", "left"), [(90, 2), (3, 1), (0, 3)])
def test_events_of_tasks_that_ended_long_ago_go_and_the_tasks_stay(days: int, left: int, settings: Any) -> None:
    settings.AGENT_EVENT_KEEP_DAYS = days
    one = silent_for(0)
    with_events(one, 100)
    with_events(one, 10)
    with_events(one, 100, state="running", finished_at=None)
    upkeep.prune_events()
    assert upkeep.prune_events() == 0
    assert AgentEvent.objects.values("task").distinct().count() == left
    assert AgentTask.objects.count() == 3


def test_one_call_forgets_a_bounded_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_EVENTS_AT_ONCE", 4)
    one = silent_for(0)
    for _task in range(2):
        with_events(one, 100)
    assert [upkeep.prune_events() for _call in range(3)] == [4, 2, 0]
