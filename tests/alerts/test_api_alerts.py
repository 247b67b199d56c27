from __future__ import annotations

import factories
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import Role
from apps.alerts.models import Alert
from apps.fleet.models import Cluster, ClusterGrant

pytestmark = pytest.mark.django_db


def client(role: Role, name: str) -> APIClient:
    found = APIClient()
    found.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(factories.user(name, role), Role.ADMIN)}")
    return found


def alert(cluster: Cluster, subject: str = "drl_1", **fields: str) -> Alert:
    values = {"rule": "drill_failed", "subject_kind": "drill", "summary": "It failed.", **fields}
    return Alert.objects.create(cluster=cluster, subject_id=subject, opened_at=timezone.now(), **values)


def test_alerts_are_listed_and_narrowed_by_state_and_rule() -> None:
    cluster = factories.cluster()
    alert(cluster)
    alert(cluster, "nod_1", rule="agent_lost", subject_kind="node", state="resolved")
    api = client(Role.VIEWER, "vera")

    def found(query: str) -> list[str]:
        return sorted(item["subject_id"] for item in api.get(f"/api/v1/alerts?{query}").json()["items"])

    assert found("") == ["drl_1", "nod_1"]
    assert found("state=open,acknowledged") == ["drl_1"]
    assert found("rule=agent_lost") == ["nod_1"]
    assert found("cluster=west") == []
    assert api.get("/api/v1/alerts?rule=nothing").status_code == 400


def test_acknowledging_needs_an_operator_who_may_see_it() -> None:
    cluster = factories.cluster()
    row = alert(cluster)
    url = f"/api/v1/alerts/{row.pk}/acknowledge"
    user = factories.user("stefan", Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=factories.cluster("west"), role=Role.OPERATOR)
    stranger = APIClient()
    stranger.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(user, Role.ADMIN)}")
    assert APIClient().post(url).status_code == 401
    assert stranger.post(url).status_code == 404
    assert stranger.get("/api/v1/alerts").json()["items"] == []
    assert client(Role.VIEWER, "vera").post(url).status_code == 403
    body = client(Role.OPERATOR, "olga").post(url).json()
    assert (body["state"], body["acknowledged_by"]) == ("acknowledged", "olga")
    assert client(Role.VIEWER, "viktor").get(f"/api/v1/alerts/{row.pk}").json()["state"] == "acknowledged"


def test_a_resolved_alert_cannot_be_acknowledged() -> None:
    row = alert(factories.cluster(), state="resolved")
    reply = client(Role.OPERATOR, "olga").post(f"/api/v1/alerts/{row.pk}/acknowledge")
    assert reply.status_code == 409
    assert "already been resolved" in reply.json()["detail"]
