"""Clusters, join tokens and agents, as people manage them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from factories import agent, cluster, node
from muster_agent.protocol.wire import InventoryParams, TaskKind

from apps.accounts.models import ActivityEntry
from apps.core.errors import Conflict, InvalidInput
from apps.fleet import selectors, services, tasks, upkeep
from apps.fleet.models import Agent, AgentTask, JoinToken

pytestmark = pytest.mark.django_db


def test_a_clusters_name_is_taken_once() -> None:
    services.create_cluster(name="east", actor="ada")
    with pytest.raises(Conflict):
        services.create_cluster(name="east", actor="ada")
    assert ActivityEntry.objects.get().action == "cluster.create"


def test_only_what_may_change_on_a_cluster_changes() -> None:
    east = cluster()
    services.update_cluster(cluster=east, changes={"allows_disruption": True, "gpu_count": 64}, actor="ada")
    east.refresh_from_db()
    assert (east.allows_disruption, east.gpu_count) == (True, 64)
    with pytest.raises(InvalidInput):
        services.update_cluster(cluster=east, changes={"name": "west"}, actor="ada")


def test_a_join_tokens_secret_is_kept_only_as_its_digest() -> None:
    token, secret = services.create_join_token(cluster=cluster(), actor="ada")
    assert secret.startswith("mjt_")
    assert secret not in str(JoinToken.objects.values().get())
    assert token.expires_at - token.created_at == timedelta(hours=24)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"hours": 24.1}, "/hours"),
        ({"hours": 0}, "/hours"),
        ({"max_uses": 0}, "/max_uses"),
        ({"cidr": "10.0.0.0/33"}, "/cidr"),
        ({"cidr": "everywhere"}, "/cidr"),
    ],
)
def test_a_join_token_that_promises_too_much_is_refused(fields: dict[str, object], pointer: str) -> None:
    with pytest.raises(InvalidInput) as bad:
        services.create_join_token(cluster=cluster(), actor="ada", **fields)  # type: ignore[arg-type]
    assert bad.value.pointer == pointer


def test_revoking_an_agent_gives_up_its_work() -> None:
    worker = agent(node(cluster()))
    for _number in range(2):
        tasks.create_task(
            agent=worker, kind=TaskKind.INVENTORY, params=InventoryParams(root="/d"), owner_kind="scan", owner_id="s"
        )
    [claimed] = tasks.claim(agent=worker, slots=1)
    tasks.acknowledge(agent=worker, task_id=claimed.pk, attempt=1)
    services.revoke_agent(agent=worker, actor="ada", reason="left the fleet")
    assert worker.state == Agent.State.REVOKED
    assert sorted(AgentTask.objects.values_list("outcome", flat=True)) == ["cancelled", "lost"]
    services.revoke_agent(agent=worker, actor="ada")  # twice changes nothing


def test_only_a_pending_agent_is_approved() -> None:
    worker = agent(node(cluster()), state=Agent.State.PENDING)
    services.approve_agent(agent=worker, actor="ada")
    assert worker.state == Agent.State.ONLINE
    with pytest.raises(Conflict):
        services.approve_agent(agent=worker, actor="ada")


def test_a_drained_agent_is_not_usable_until_it_is_resumed() -> None:
    east = cluster()
    worker = agent(node(east))
    services.drain_agent(agent=worker, actor="ada")
    assert list(selectors.usable_agents(east)) == []
    services.resume_agent(agent=worker, actor="ada")
    assert list(selectors.usable_agents(east)) == [worker]


def test_agents_reach_what_lies_under_their_roots_component_by_component() -> None:
    east, west = cluster(), cluster("west")
    reaching = agent(node(east, "b"), roots=["/data", "/scratch"])
    everything = agent(node(east, "a"), roots=["/"])
    agent(node(east, "c"), roots=["/data2"])
    agent(node(east, "d"), roots=["/data"], state=Agent.State.LOST)
    agent(node(west, "e"), roots=["/data"])
    assert selectors.agents_reaching("/data/run", east) == [everything, reaching]
    assert selectors.agents_reaching("/data/../etc", east) == []


def test_silent_agents_become_stale_then_lost_and_say_since_when() -> None:
    worker = agent(node(cluster()))

    def after(seconds: float) -> str:
        Agent.objects.update(last_seen_at=timezone.now() - timedelta(seconds=seconds))
        upkeep.mark_silent_agents()
        worker.refresh_from_db()
        return str(worker.state)

    assert [after(seconds) for seconds in (89, 91, 299, 301, 1000)] == ["online", "stale", "stale", "lost", "lost"]
