"""The REST API of fleet: what it shows, who may do what, and how many queries a list takes."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from factories import agent, cluster, node, token, user
from muster_agent.protocol.wire import InventoryParams, TaskKind

from apps.accounts.models import Role
from apps.fleet import services, tasks
from apps.fleet.models import Agent, AgentEvent, AgentTask, Cluster, ClusterGrant, JoinToken

pytestmark = pytest.mark.django_db


class Caller:
    """Somebody with a token."""

    def __init__(self, role: Role, name: str | None = None) -> None:
        self.user = user(name or f"a-{role.value or 'nobody'}", role)
        self._headers = {"authorization": f"Bearer {token(self.user, role if role else Role.ADMIN)}", "if-match": "*"}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        content = {} if body is None else {"data": body, "content_type": "application/json"}
        return getattr(Client(), method)(f"/api/v1{path}", headers=self._headers, **content)

    def get(self, path: str) -> Any:
        return self.call("get", path)


@pytest.fixture
def fleet() -> Agent:
    """One cluster, node, agent, task and event."""
    worker = agent(node(cluster()), state=Agent.State.PENDING)
    task = tasks.create_task(
        agent=worker, kind=TaskKind.INVENTORY, params=InventoryParams(root="/d"), owner_kind="scan", owner_id="s"
    )
    AgentEvent.objects.create(
        task=task, attempt=1, seq=1, kind="log", at=task.created_at, mono_seconds=1.0, data={"message": "hello"}
    )
    services.create_join_token(cluster=worker.node.cluster, actor="ada")
    return worker


def test_a_viewer_reads_everything(fleet: Agent) -> None:
    viewer, task = Caller(Role.VIEWER), AgentTask.objects.get()
    for path, key, expected in (
        ("/clusters/", "name", "east"),
        ("/nodes/", "name", "gpu-1"),
        ("/agents/", "id", fleet.pk),
        ("/join-tokens/", "uses", 0),
        ("/tasks/", "id", task.pk),
        (f"/tasks/{task.pk}/events/", "data", {"message": "hello"}),
    ):
        [item] = viewer.get(path).json()["items"]
        assert item[key] == expected
    assert viewer.get(f"/nodes/{fleet.node_id}/").json()["agent"]["state"] == "pending"
    assert viewer.get(f"/tasks/{task.pk}/").json()["params"]["root"] == "/d"
    assert "secret" not in str(viewer.get("/join-tokens/").json())


def test_a_node_without_an_agent_shows_none() -> None:
    bare = node(cluster())
    assert Caller(Role.VIEWER).get(f"/nodes/{bare.pk}/").json()["agent"] is None


def operations(worker: Agent) -> list[tuple[str, str, Any, int]]:
    """Every operation that only an admin may do, with the status that an admin gets."""
    east, join_token = worker.node.cluster_id, JoinToken.objects.get().pk
    return [
        ("post", "/clusters/", {"name": "west"}, 201),
        ("patch", f"/clusters/{east}/", {"allows_disruption": True}, 200),
        ("post", "/join-tokens/", {"cluster": east}, 201),
        ("delete", f"/join-tokens/{join_token}/", None, 204),
        ("post", f"/agents/{worker.pk}/approve/", None, 200),
        ("post", f"/agents/{worker.pk}/drain/", None, 200),
        ("post", f"/agents/{worker.pk}/resume/", None, 200),
        ("post", f"/agents/{worker.pk}/revoke/", {"reason": "gone"}, 200),
    ]


def test_only_an_admin_manages(fleet: Agent) -> None:
    callers = {Role.VIEWER: Caller(Role.VIEWER), Role.OPERATOR: Caller(Role.OPERATOR)}
    for method, path, body, _status in operations(fleet):
        for caller in callers.values():
            response = caller.call(method, path, body)
            assert response.status_code == 403, (method, path)
            assert "admin" in response.json()["detail"]
    admin = Caller(Role.ADMIN)
    for method, path, body, status in operations(fleet):
        assert admin.call(method, path, body).status_code == status, (method, path)
    fleet.refresh_from_db()
    assert fleet.state == Agent.State.REVOKED


def test_nobody_gets_in_without_a_token(fleet: Agent) -> None:
    for method, path, body, _status in operations(fleet):
        content = {} if body is None else {"data": body, "content_type": "application/json"}
        assert getattr(Client(), method)(f"/api/v1{path}", **content).status_code == 401
    for path in ("/clusters/", "/nodes/", "/agents/", "/join-tokens/", "/tasks/"):
        assert Client().get(f"/api/v1{path}").status_code == 401


def test_another_clusters_rows_do_not_exist_for_a_stranger(fleet: Agent) -> None:
    stranger = Caller(Role.NONE)
    ClusterGrant.objects.create(user=stranger.user, cluster=cluster("west"), role=Role.ADMIN)
    task = AgentTask.objects.get()
    assert [one["name"] for one in stranger.get("/clusters/").json()["items"]] == ["west"]
    for path in ("/nodes/", "/agents/", "/join-tokens/", "/tasks/"):
        found = stranger.get(path).json()
        assert (found["items"], found["total"]["value"]) == ([], 0)
    for path in (f"/agents/{fleet.pk}/", f"/tasks/{task.pk}/", f"/tasks/{task.pk}/events/"):
        assert stranger.get(path).status_code == 404
    for method, path, body, _status in operations(fleet)[1:]:
        assert stranger.call(method, path, body).status_code in (404, 422), path
    assert stranger.call("post", "/clusters/", {"name": "north"}).status_code == 403
    fleet.refresh_from_db()
    assert fleet.state == Agent.State.PENDING


def test_a_join_tokens_secret_is_in_the_answer_to_its_creation_only(fleet: Agent) -> None:
    admin = Caller(Role.ADMIN)
    made = admin.call("post", "/join-tokens/", {"cluster": fleet.node.cluster_id, "max_uses": 5, "hours": 1}).json()
    assert made["secret"].startswith("mjt_")
    assert made["secret"] not in admin.get("/join-tokens/").content.decode()


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/clusters/", {"name": "not a slug"}, "/name"),
        ("/clusters/", {"name": "west", "colour": "red"}, "/colour"),
        ("/join-tokens/", {"cluster": "cls_none"}, "/cluster"),
        ("/join-tokens/", {"hours": 25}, "/hours"),
    ],
)
def test_a_bad_field_is_named(path: str, body: dict[str, Any], pointer: str) -> None:
    response = Caller(Role.ADMIN).call("post", path, body)
    assert response.status_code in (400, 422)
    assert pointer in [error["pointer"] for error in response.json()["errors"]]


def test_a_list_takes_the_same_queries_for_one_row_and_for_many(fleet: Agent) -> None:
    viewer, east = Caller(Role.VIEWER), Cluster.objects.get()
    paths = ("/clusters/", "/nodes/", "/agents/", "/join-tokens/", "/tasks/")

    def counts() -> list[int]:
        found = []
        for path in paths:
            with CaptureQueriesContext(connection) as queries:
                viewer.get(path)
            found.append(len(queries))
        return found

    counts()  # the first call notes when the token was last used
    before = counts()
    for number in range(20):
        worker = agent(node(east, f"more-{number}"))
        cluster(f"more-{number}")
        services.create_join_token(cluster=east, actor="ada")
        tasks.create_task(
            agent=worker, kind=TaskKind.INVENTORY, params=InventoryParams(root="/d"), owner_kind="scan", owner_id="s"
        )
    assert counts() == before
    assert max(before) <= 4


def test_lists_are_narrowed(fleet: Agent) -> None:
    viewer = Caller(Role.VIEWER)
    other = agent(node(cluster("west"), "other"))
    west = other.node.cluster_id
    assert [one["id"] for one in viewer.get(f"/agents/?cluster={west}").json()["items"]] == [other.pk]
    assert [one["id"] for one in viewer.get("/agents/?state=pending").json()["items"]] == [fleet.pk]
    assert [one["name"] for one in viewer.get("/nodes/?state=online").json()["items"]] == ["other"]
    assert viewer.get("/tasks/?owner_kind=drill").json()["items"] == []
    assert viewer.get("/agents/?state=asleep").status_code == 400
