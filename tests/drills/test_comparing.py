"""Drills put side by side from their rows, and the earlier one that a drill is held against."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import pytest
from django.utils import timezone
from drill_agents import Yard, run_to_end
from rest_framework.test import APIClient

from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.core.errors import InvalidInput, NotFound
from apps.drills import comparing, selectors, services
from apps.drills.models import Drill, DrillRung
from apps.fleet.models import ClusterGrant

pytestmark = pytest.mark.django_db


def drill(run: TrainingRun, days_ago: float, clients: int | None = 4, **fields: Any) -> Drill:
    values: dict[str, Any] = {
        "kind": "reload",
        "state": "finished",
        "outcome": "passed",
        "seconds": 70.0,
        "requested_by": "olga",
        "created_at": timezone.now() - timedelta(days=days_ago),
    }
    made = Drill.objects.create(cluster=run.cluster, run=run, **{**values, **fields})
    if clients:
        DrillRung.objects.create(drill=made, order=0, client_count=clients, placement=made.placement)
    return made


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


def test_the_last_comparable_drill_did_the_same_and_restored(run: TrainingRun) -> None:
    other = factories.run(run.cluster, "other")
    wanted = drill(run, 6)
    drill(run, 5, backend="host_direct")
    drill(run, 4, clients=8)
    drill(run, 3, kind="herd")
    drill(run, 2, outcome="failed")
    drill(other, 1)
    newest = drill(run, 0)
    assert comparing.last_comparable(newest) == wanted
    assert comparing.last_comparable(wanted) is None


def test_the_last_good_one_was_in_time_and_alike_where_there_is_one(run: TrainingRun) -> None:
    newest = drill(run, 0)
    assert comparing.last_good(newest) is None
    good_but_unlike = drill(run, 3, backend="host_direct", objective_state="met")
    assert comparing.last_good(newest) == good_but_unlike
    alike = drill(run, 4, objective_state="met")
    drill(run, 1, objective_state="breached")
    assert comparing.last_good(newest) == alike


def test_only_visible_drills_are_compared_and_only_two_to_eight(run: TrainingRun) -> None:
    made = [drill(run, day) for day in range(9)]
    with pytest.raises(InvalidInput):
        comparing.comparison(selectors.drills(), [made[0].pk, made[0].pk])
    with pytest.raises(InvalidInput):
        comparing.comparison(selectors.drills(), [one.pk for one in made])
    with pytest.raises(NotFound):
        comparing.comparison(selectors.drills().exclude(pk=made[0].pk), [made[0].pk, made[1].pk])
    found = comparing.comparison(selectors.drills(), [made[0].pk, made[1].pk])
    assert found.drills == [made[1], made[0]]  # the oldest first


def test_what_agents_really_did_is_put_side_by_side(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.checkpoint()
    run = TrainingRun.objects.get()
    for _ in range(2):
        one = services.create_drill(run=run, spec={"kind": "reload"}, actor="olga")
        run_to_end(one, yard.agents)
    drills = list(selectors.drills().order_by("created_at"))
    told = comparing.subjects(drills)
    facts = told[0].facts
    assert facts["client_count"] == 4 and facts["nodes"] == tuple(sorted(agent.node.name for agent in yard.agents))
    assert isinstance(facts["read"], float) and facts["verified"] is not None
    assert facts["effective"] and facts["agent_versions"] is None  # these agents never told a version
    yard.agents[0].version = "0.2.0"
    yard.agents[0].save()
    newest = services.create_drill(run=run, spec={"kind": "reload"}, actor="olga")
    run_to_end(newest, yard.agents)
    newest = selectors.drills().get(pk=newest.pk)
    assert comparing.subjects([newest])[0].facts["agent_versions"] == ("0.2.0",)
    assert comparing.last_comparable(newest) == drills[-1]


def test_eight_drills_cost_as_many_queries_as_two(run: TrainingRun, django_assert_max_num_queries: Any) -> None:
    made = [drill(run, day).pk for day in range(8)]
    with django_assert_max_num_queries(3):
        comparing.comparison(selectors.drills(), made)


def test_the_api_compares_and_hides_what_is_out_of_sight(run: TrainingRun) -> None:
    first, second = drill(run, 1, phases={"read": 30.0}), drill(run, 0, seconds=140.0, phases={"read": 95.0})
    api = APIClient()
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(factories.user('vera', Role.VIEWER))}")
    body = api.get(f"/api/v1/drills/compare?ids={second.pk},{first.pk}").json()
    assert body["letters"] == ["A", "B"] and [item["id"] for item in body["items"]] == [first.pk, second.pk]
    assert body["verdict"].startswith("B took 2 min 20 s, 2.00 times the 70 s of A. Read took 65 s longer")
    read = next(line for line in body["differences"] if line["name"] == "read")
    assert read == {
        "name": "read", "label": "Read", "topic": "phases", "unit": "seconds", "differs": True, "values": [30.0, 95.0],
    }  # fmt: skip
    assert api.get(f"/api/v1/drills/compare?ids={first.pk}").status_code == 400
    user = factories.user("stefan", Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=factories.cluster("elsewhere"), role=Role.ADMIN)
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(user, Role.ADMIN)}")
    assert api.get(f"/api/v1/drills/compare?ids={second.pk},{first.pk}").status_code == 404
