"""Polls that wait without announcements: what they hear of, and what all of them together cost."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from django.utils import timezone
from muster_agent.protocol.wire import InventoryParams, PollRequest, RunningTask, TaskKind

from apps.core.wakeups import Waiter
from apps.fleet import polling, tasks
from apps.fleet.agent_api import rereading
from apps.fleet.agent_api.rereading import Rereader
from apps.fleet.models import Agent, AgentTask


def waiting(agent: Agent, **fields: Any) -> tuple[str, PollRequest]:
    """The agent's row, as its poll left it, and that poll."""
    Agent.objects.filter(pk=agent.pk).update(boot_id="boot", poll_seq=3)
    return agent.pk, PollRequest(**{"boot_id": "boot", "seq": 3, "free_slots": 1, **fields})


def task(agent: Agent) -> AgentTask:
    params = InventoryParams(root="/data")
    return tasks.create_task(agent=agent, kind=TaskKind.INVENTORY, params=params, owner_kind="scan", owner_id="none")


@pytest.mark.django_db
def test_a_thousand_waiting_polls_are_looked_at_in_two_queries(django_assert_num_queries: Any) -> None:
    cluster = factories.cluster()
    polls = [waiting(factories.agent(factories.node(cluster, name=f"node-{number}"))) for number in range(20)]
    task(Agent.objects.get(pk=polls[7][0]))
    with django_assert_num_queries(2):
        assert polling.with_news(polls * 50) == {(polls[7][0], 3)}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "change",
    [{"state": "revoked"}, {"boot_id": "another"}, {"poll_seq": 4}, {"drain_requested_at": timezone.now()}],
    ids=lambda change: next(iter(change)),
)
def test_what_changed_on_the_agents_row_is_news(change: dict[str, Any]) -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    poll = waiting(agent)
    assert not polling.with_news([poll])
    Agent.objects.filter(pk=agent.pk).update(**change)
    assert polling.with_news([poll]) == {(agent.pk, 3)}


@pytest.mark.django_db
def test_work_is_no_news_to_an_agent_without_a_slot_and_its_cancellation_is() -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    row = task(agent)
    running = (RunningTask(task_id=row.pk, attempt=1),)
    poll = waiting(agent, free_slots=0, running=running)
    assert not polling.with_news([poll])
    AgentTask.objects.filter(pk=row.pk).update(state=AgentTask.State.CANCELLING)
    assert polling.with_news([poll]) == {(agent.pk, 3)}


async def test_who_waits_is_woken_without_an_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "REREAD_SECONDS", 0.05)
    monkeypatch.setattr(rereading, "WITHOUT_REDIS_SECONDS", 0.05)
    has_news: set[tuple[str, int]] = set()
    monkeypatch.setattr(polling, "with_news", lambda _waiting: has_news)
    request = PollRequest(boot_id="boot", seq=3, free_slots=1)
    async with Waiter("agent:one") as one, Waiter("agent:other") as other:
        rereader = Rereader()
        with rereader.watching(one, "one", request), rereader.watching(other, "other", request):
            assert await one.wait(0.3, is_reread=True) is False
            has_news.add(("one", 3))
            assert await one.wait(10, is_reread=True) is True
            assert await other.wait(0.1, is_reread=True) is False
