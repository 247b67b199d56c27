"""Every run against its objectives: the order that the database sorts by, what the trials prove, and lost work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import Role
from apps.checkpoints.models import RunAttempt, StepReport, TrainingRun
from apps.drills.models import Drill
from apps.fleet.models import Cluster, ClusterGrant
from apps.recovery import readiness
from apps.recovery.objectives import Objective, State, objectives_of, ranked

pytestmark = pytest.mark.django_db


@pytest.fixture
def east() -> Cluster:
    return factories.cluster("east")


def drills(run: TrainingRun, count: int, misses: int = 0, **fields: Any) -> None:
    """`count` of them over the last 25 days; the newest `misses` were late."""
    now = timezone.now()
    values: dict[str, Any] = {
        "cluster": run.cluster,
        "run": run,
        "kind": "failover",
        "state": "finished",
        "outcome": "passed",
        "objective_seconds": 90.0,
        "requested_by": "olga",
    }
    Drill.objects.bulk_create(
        Drill(
            **{
                **values,
                "seconds": 95.0 if number < misses else 70.0,
                "objective_state": "breached" if number < misses else "met",
                "created_at": now - timedelta(days=25 * (number + 1) / (count + 1)),
                **fields,
            }
        )
        for number in range(count)
    )


def found() -> dict[str, Objective]:
    rows = ranked(readiness.runs_to_judge()).order_by("standing", "pk")
    return {one.run.name: one for one in objectives_of(list(rows))}


def run(east: Cluster, name: str, **fields: Any) -> TrainingRun:
    return factories.run(east, name, **{"rto_objective_seconds": 90.0, **fields})


def test_the_worst_comes_first_and_the_order_is_that_of_the_pure_budget(east: Cluster) -> None:
    drills(run(east, "in-time"), 12)
    run(east, "never-drilled")
    factories.run(east, "no-objective")
    drills(run(east, "one-miss"), 12, misses=1)
    drills(run(east, "two-misses"), 12, misses=2)
    drills(run(east, "two-of-forty"), 40, misses=2)
    drills(run(east, "three-of-forty"), 40, misses=3)
    rows = found()
    assert list(rows) == [
        "three-of-forty", "two-misses", "two-of-forty", "one-miss", "never-drilled", "no-objective", "in-time",
    ]  # fmt: skip
    over = {name for name, one in rows.items() if one.state is State.OVER_BUDGET}
    assert over == {name for name, one in rows.items() if one.summary.budget.left < 0}
    assert rows["two-of-forty"].summary.budget.allowed == 2 and rows["two-of-forty"].state is State.MISSED


@pytest.mark.parametrize(("count", "misses"), [(1, 1), (19, 1), (39, 2), (40, 2), (41, 3), (60, 3), (60, 4)])
def test_over_the_budget_is_the_same_in_the_database_and_in_the_arithmetic(
    east: Cluster, count: int, misses: int
) -> None:
    drills(run(east, "one"), count, misses)
    one = found()["one"]
    assert (one.state is State.OVER_BUDGET) == (one.summary.budget.left < 0)
    assert (one.summary.budget.trial_count, one.summary.budget.used) == (count, misses)


def test_a_failover_judges_before_a_reload_and_says_whether_it_is_the_storage_part(east: Cluster) -> None:
    both, only = run(east, "both"), run(east, "only")
    for one in (both, only):
        drills(one, 3, kind="reload")
    drills(both, 2, misses=1)
    rows = found()
    told = {name: (one.kind, one.is_storage_only, one.summary.judged_count) for name, one in rows.items()}
    assert told == {"both": ("failover", False, 2), "only": ("reload", True, 3)}


def test_what_did_not_restore_is_a_miss_and_what_was_cancelled_is_nothing(east: Cluster) -> None:
    one = run(east, "one")
    drills(one, 1, outcome="lost", seconds=None, objective_state="none")
    drills(one, 5, outcome="cancelled", seconds=None, objective_state="none")
    row = found()["one"]
    assert (row.summary.failed_count, row.summary.judged_count, row.state) == (1, 1, State.MISSED)


def test_lost_work_is_the_number_of_readiness(east: Cluster) -> None:
    one = run(east, "one", rpo_objective_seconds=100.0)
    factories.placement(one, factories.tier(east), 400)
    now = timezone.now()
    launch = RunAttempt.objects.create(run=one, launch_id="l", last_step=480, started_at=now, last_report_at=now)
    StepReport.objects.create(attempt=launch, step=400, at=now - timedelta(seconds=195))
    StepReport.objects.create(attempt=launch, step=480, at=now - timedelta(seconds=3))
    row = found()["one"]
    assert row.lost_seconds == pytest.approx(192.0) == readiness.row_of(one).lost_seconds
    assert row.rpo_is_met is False


def test_the_api_lists_them_worst_first_in_pages_and_hides_other_clusters(east: Cluster) -> None:
    drills(run(east, "late"), 4, misses=2)
    drills(run(east, "fine"), 4)
    run(factories.cluster("west"), "foreign")
    user = factories.user("stefan", Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=east, role=Role.VIEWER)
    api = APIClient()
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(user, Role.VIEWER)}")
    first = api.get("/api/v1/objectives?limit=1").json()
    assert [item["run_name"] for item in first["items"]] == ["late"] and first["total"]["value"] == 2
    item = first["items"][0]
    assert (item["state"], item["met_count"], item["breached_count"]) == ("over_budget", 2, 2)
    assert item["budget"]["left"] == -1 and item["more_passes_needed"] == 120
    assert 0 < item["met_ratio_low"] < 0.5 < item["met_ratio_high"] < 1
    assert item["p95_seconds"] is None and item["max_seconds"] == 95.0
    second = api.get(f"/api/v1/objectives?limit=1&cursor={first['next_cursor']}").json()
    assert [item["run_name"] for item in second["items"]] == ["fine"] and second["next_cursor"] is None


def test_fifty_runs_cost_as_many_queries_as_one(east: Cluster, django_assert_max_num_queries: Any) -> None:
    tier = factories.tier(east)
    for number in range(50):
        one = run(east, f"run-{number}")
        factories.placement(one, tier, 10)
        drills(one, 3)
    rows = list(ranked(readiness.runs_to_judge()).order_by("standing", "pk"))
    with django_assert_max_num_queries(5):
        assert len(objectives_of(rows)) == 50
