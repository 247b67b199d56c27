"""What the sweeper does about agents that are silent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from factories import agent, cluster, node

from apps.core.models import Transition
from apps.fleet import upkeep
from apps.fleet.models import Agent, AgentTask

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
