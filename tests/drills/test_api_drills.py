"""Drills, plans and the switch over REST: shapes, roles, scope, problems, and what lists cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from drill_agents import Yard, advanced, run_to_end
from rest_framework.test import APIClient

from apps.accounts.models import Role
from apps.drills.models import Drill, DrillPlan, DrillRung, DrillStep, PlanOccurrence
from apps.fleet.models import ClusterGrant

pytestmark = pytest.mark.django_db
PLAN = {"name": "nightly", "kind": "reload", "cron": "0 3 * * *", "time_zone": "Europe/Berlin"}


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def client(role: Role = Role.OPERATOR, name: str = "olga") -> APIClient:
    found = APIClient()
    secret = factories.token(factories.user(name, role), Role.ADMIN)
    found.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}", HTTP_IF_MATCH="*")
    return found


def stranger() -> APIClient:
    """An operator, but of another cluster."""
    user = factories.user("stefan", Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=factories.cluster("elsewhere"), role=Role.OPERATOR)
    found = APIClient()
    found.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(user, Role.ADMIN)}", HTTP_IF_MATCH="*")
    return found


def post(api: APIClient, path: str, **body: Any) -> Any:
    return api.post(f"/api/v1/{path}", body, format="json")


def test_a_drill_is_started_followed_and_read_back(yard: Yard) -> None:
    yard.checkpoint()
    api = client()
    reply = post(api, "drills", run="llama-70b", kind="reload", objective_seconds=60)
    assert reply.status_code == 201, reply.data
    drill = Drill.objects.get(pk=reply.data["id"])
    assert (drill.requested_by, drill.objective_seconds) == ("olga", 60)
    run_to_end(drill, yard.agents)
    body = api.get(f"/api/v1/drills/{drill.pk}").json()
    assert (body["outcome"], body["objective_state"], body["is_storage_only"]) == ("passed", "met", True)
    assert body["phases"]["first_step"] is None and body["phases"]["read"] > 0
    assert list(body["phases"])[0] == "detect"
    assert [rung["client_count"] for rung in body["rungs"]] == [4]
    assert body["facts"]["slowest"]["node"].startswith("gpu-")
    ranks = api.get(f"/api/v1/drills/{drill.pk}/ranks").json()
    assert [(row["rank"], row["ranks"], row["node_name"]) for row in ranks["items"]] == [
        (number, [number], f"gpu-{number + 1}") for number in range(4)
    ][::1]
    assert all(row["effective"].startswith("host_") and row["verified"] for row in ranks["items"])


def test_rounds_and_steps_are_told_in_their_order_whatever_the_database_gives_first(yard: Yard) -> None:
    drill = Drill.objects.create(cluster=yard.cluster, run=yard.run, kind="herd", created_at=timezone.now())
    for order in (2, 0, 1):
        DrillRung.objects.create(drill=drill, order=order, client_count=order + 1)
        DrillStep.objects.create(drill=drill, order=order, what=f"step-{order}", began_at=timezone.now())
    body = client().get(f"/api/v1/drills/{drill.pk}").json()
    assert [rung["client_count"] for rung in body["rungs"]] == [1, 2, 3]
    assert [step["what"] for step in body["steps"]] == ["step-0", "step-1", "step-2"]


def test_the_list_is_narrowed_by_run_state_outcome_and_kind(yard: Yard) -> None:
    api = client()
    other = factories.run(yard.cluster, "other")
    for run, kind, outcome in ((yard.run, "reload", "passed"), (yard.run, "herd", "failed"), (other, "reload", "")):
        state = "finished" if outcome else "running"
        Drill.objects.create(
            cluster=yard.cluster, run=run, kind=kind, outcome=outcome, state=state, created_at=timezone.now()
        )

    def found(query: str) -> list[tuple[str, str]]:
        items = api.get(f"/api/v1/drills?{query}").json()["items"]
        return sorted((item["run_name"], item["kind"]) for item in items)

    assert len(found("")) == 3
    assert found("run=other") == [("other", "reload")]
    assert found(f"run={yard.run.pk}&kind=herd") == [("llama-70b", "herd")]
    assert found("outcome=failed,passed") == [("llama-70b", "herd"), ("llama-70b", "reload")]
    assert found("state=running") == [("other", "reload")]
    assert found("cluster=east&kind=reload") == [("llama-70b", "reload"), ("other", "reload")]
    assert api.get("/api/v1/drills?state=exploded").status_code == 400


def test_a_list_of_many_drills_costs_a_constant_number_of_queries(yard: Yard) -> None:
    placement = yard.checkpoint()
    plan = DrillPlan.objects.create(run=yard.run, name="p", kind="reload", created_by="o", created_at=timezone.now())
    for _number in range(60):
        Drill.objects.create(
            cluster=yard.cluster, run=yard.run, kind="reload", plan=plan, placement=placement, created_at=timezone.now()
        )
    api = client()
    with CaptureQueriesContext(connection) as queries:
        body = api.get("/api/v1/drills").json()
    assert (len(body["items"]), body["total"]["value"]) == (50, 60)
    assert len(queries) <= 5
    with CaptureQueriesContext(connection) as queries:
        api.get("/api/v1/plans")
    assert len(queries) <= 5


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"kind": "reload"}, 400, "/run"),
        ({"run": "llama-70b"}, 400, "/kind"),
        ({"run": "llama-70b", "kind": "explode"}, 400, "/kind"),
        ({"run": "llama-70b", "kind": "reload", "colour": "red"}, 400, "/colour"),
        ({"run": "llama-70b", "kind": "reload", "choice": "named"}, 422, "/step"),
        ({"run": "llama-70b", "kind": "reload", "node_count": 0}, 422, "/node_count"),
        ({"run": "llama-70b", "kind": "reload", "node_count": "many"}, 400, "/node_count"),
        ({"run": "llama-70b", "kind": "herd", "ladder": [4, 2]}, 422, "/ladder"),
        ({"run": "llama-70b", "kind": "reload", "tier": "tir_0"}, 422, "/tier"),
        ({"run": "llama-70b", "kind": "reload", "step": 2**80, "choice": "named"}, 422, "/step"),
    ],
)
def test_a_bad_drill_is_a_problem_that_names_the_field(
    yard: Yard, body: dict[str, Any], status: int, pointer: str
) -> None:
    reply = post(client(), "drills", **body)
    assert (reply.status_code, reply["content-type"]) == (status, "application/problem+json")
    assert reply.json()["errors"][0]["pointer"] == pointer
    assert not Drill.objects.exists()


def test_an_unknown_run_is_404_and_two_of_one_name_are_409(yard: Yard) -> None:
    api = client()
    assert post(api, "drills", run="nothing", kind="reload").status_code == 404
    factories.run(factories.cluster("west"))
    assert post(api, "drills", run="llama-70b", kind="reload").status_code == 409
    assert post(api, "drills", run="west/llama-70b", kind="reload").status_code == 201


def test_cancelling_stops_and_a_finished_drill_says_there_is_nothing_to_cancel(yard: Yard) -> None:
    yard.checkpoint()
    api = client()
    drill = advanced(Drill.objects.get(pk=post(api, "drills", run="llama-70b", kind="reload").data["id"]))
    assert post(api, f"drills/{drill.pk}/cancel").status_code == 200
    assert advanced(drill).outcome == "cancelled"
    reply = post(api, f"drills/{drill.pk}/cancel")
    assert reply.status_code == 409
    assert "already finished (cancelled)" in reply.json()["detail"]


def test_a_failover_is_refused_where_disruption_is_not_allowed(yard: Yard) -> None:
    reply = post(client(), "drills", run="llama-70b", kind="failover")
    assert reply.status_code == 409
    assert "an admin can allow them" in reply.json()["detail"]


def test_events_of_a_drills_agents_are_listed(yard: Yard) -> None:
    from drill_agents import tasks_of

    from apps.fleet.models import AgentEvent

    yard.checkpoint()
    api = client()
    drill = advanced(Drill.objects.get(pk=post(api, "drills", run="llama-70b", kind="reload").data["id"]))
    for seq, task in enumerate(tasks_of(drill)):
        AgentEvent.objects.create(
            task=task, attempt=1, seq=seq, kind="progress", at=timezone.now(), mono_seconds=1.0, data={"done_bytes": 5}
        )
    items = api.get(f"/api/v1/drills/{drill.pk}/events").json()["items"]
    assert len(items) == 4


def test_a_plan_is_made_changed_started_and_deleted(yard: Yard) -> None:
    api = client()
    reply = post(api, "plans", run="llama-70b", **PLAN)
    assert reply.status_code == 201, reply.data
    plan = DrillPlan.objects.get(pk=reply.data["id"])
    assert reply.data["next_at"] is not None
    assert len(reply.data["next_times"]) == 5 and reply.data["next_times"] == sorted(reply.data["next_times"])
    reply = api.patch(f"/api/v1/plans/{plan.pk}", {"cron": "", "choice": "latest"}, format="json")
    assert (reply.status_code, reply.data["next_at"], reply.data["choice"]) == (200, None, "latest")
    reply = post(api, f"plans/{plan.pk}/start")
    assert (reply.status_code, reply.data["plan"]) == (201, plan.pk)
    assert api.delete(f"/api/v1/plans/{plan.pk}").status_code == 204
    assert Drill.objects.get(pk=reply.data["id"]).plan_id is None


@pytest.mark.parametrize(
    ("change", "status", "pointer"),
    [
        ({"cron": "daily"}, 422, "/cron"),
        ({"time_zone": "Mars/Olympus"}, 422, "/time_zone"),
        ({"missed": "run_all"}, 400, "/missed"),
        ({"name": ""}, 400, "/name"),
        ({"run": "other"}, 400, "/run"),
        ({"kind": "herd", "ladder": [0]}, 422, "/ladder"),
    ],
)
def test_a_bad_change_of_a_plan_names_the_field(yard: Yard, change: dict[str, Any], status: int, pointer: str) -> None:
    api = client()
    plan_id = post(api, "plans", run="llama-70b", **PLAN).data["id"]
    reply = api.patch(f"/api/v1/plans/{plan_id}", change, format="json")
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (status, pointer)
    assert DrillPlan.objects.get(pk=plan_id).version == 1


def test_occurrences_show_the_drill_or_the_reason(yard: Yard) -> None:
    plan_id = post(client(), "plans", run="llama-70b", **PLAN).data["id"]
    PlanOccurrence.objects.create(
        plan_id=plan_id, planned_at=timezone.now(), skipped_reason="Missed.", created_at=timezone.now()
    )
    items = client(Role.VIEWER, "vera").get(f"/api/v1/plans/{plan_id}/occurrences").json()["items"]
    assert [(item["drill"], item["skipped_reason"]) for item in items] == [(None, "Missed.")]


def test_the_switch_stops_everything_until_it_is_taken_back(yard: Yard) -> None:
    api = client()
    assert api.get("/api/v1/drill-control").json()["stopped"] is False
    post(api, "drills", run="llama-70b", kind="reload")
    assert post(api, "drill-control/stop", reason="maintenance").json() == {"cancelled_count": 1}
    assert api.get("/api/v1/drill-control").json()["reason"] == "maintenance"
    assert post(api, "drills", run="llama-70b", kind="reload").status_code == 409
    assert post(api, "drill-control/allow").json()["stopped"] is False
    assert post(api, "drills", run="llama-70b", kind="reload").status_code == 201


OPERATIONS = [
    ("get", "drills", Role.VIEWER),
    ("get", "drills/{drill}", Role.VIEWER),
    ("get", "drills/{drill}/ranks", Role.VIEWER),
    ("get", "drills/{drill}/events", Role.VIEWER),
    ("post", "drills", Role.OPERATOR),
    ("post", "drills/{drill}/cancel", Role.OPERATOR),
    ("get", "plans", Role.VIEWER),
    ("get", "plans/{plan}", Role.VIEWER),
    ("get", "plans/{plan}/occurrences", Role.VIEWER),
    ("post", "plans", Role.OPERATOR),
    ("patch", "plans/{plan}", Role.OPERATOR),
    ("delete", "plans/{plan}", Role.OPERATOR),
    ("post", "plans/{plan}/start", Role.OPERATOR),
    ("get", "drill-control", Role.VIEWER),
    ("post", "drill-control/stop", Role.OPERATOR),
    ("post", "drill-control/allow", Role.OPERATOR),
]


@pytest.mark.parametrize(("method", "path", "needed"), OPERATIONS)
def test_each_operation_asks_for_its_role(yard: Yard, method: str, path: str, needed: Role) -> None:
    drill = Drill.objects.create(cluster=yard.cluster, run=yard.run, kind="reload", created_at=timezone.now())
    plan = DrillPlan.objects.create(run=yard.run, name="p", kind="reload", created_by="o", created_at=timezone.now())
    url = "/api/v1/" + path.format(drill=drill.pk, plan=plan.pk)
    body = (
        {"run": yard.run.pk, "kind": "reload", **({"name": "q"} if path == "plans" else {})}
        if path
        in (
            "drills",
            "plans",
        )
        else {}
    )

    def status(api: APIClient) -> int:
        return int(getattr(api, method)(url, body if method != "get" else None, format="json").status_code)

    assert status(APIClient()) == 401
    hidden = "{" in path or (method == "post" and path in ("drills", "plans"))
    if hidden:
        assert status(stranger()) == 404
    if needed == Role.OPERATOR:
        assert status(client(Role.VIEWER, "vera")) == 403
    assert status(client(needed, "nora")) in (200, 201, 204)


def test_a_stranger_sees_no_drill_and_no_count(yard: Yard) -> None:
    Drill.objects.create(cluster=yard.cluster, run=yard.run, kind="reload", created_at=timezone.now())
    body = stranger().get("/api/v1/drills").json()
    assert (body["items"], body["total"]["value"]) == ([], 0)


def test_a_run_is_found_by_its_exact_name_spaces_included(db: None) -> None:
    cluster = factories.cluster()
    wanted = {name: factories.run(cluster, name) for name in ("llama", " llama ")}
    api = client()
    for name, run in wanted.items():
        drill = post(api, "drills", run=name, kind="reload")
        plan = post(api, "plans", run=name, **PLAN)
        assert (drill.data["run"], plan.data["run"]) == (run.pk, run.pk)
