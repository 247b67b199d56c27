"""Start window, overlap, smear, pausing, and the calendar of plans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import factories
import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints.models import TrainingRun
from apps.core.errors import InvalidInput
from apps.drills import engine, schedules, services
from apps.drills.calendar import Planned, conflicts, smear
from apps.drills.coming import coming
from apps.drills.models import Drill, DrillPlan, PlanOccurrence
from apps.fleet.models import ClusterGrant

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def run(db: None) -> TrainingRun:
    return factories.run(factories.cluster())


def plan(run: TrainingRun, name: str = "hourly", cron: str = "0 * * * *", **spec: object) -> DrillPlan:
    row = services.create_plan(run=run, spec={"name": name, "kind": "reload", "cron": cron, **spec}, actor="olga")
    DrillPlan.objects.filter(pk=row.pk).update(next_at=NOON)
    row.refresh_from_db()
    return row


# -- start window, overlap, smear, pause -------------------------------------------------------------------------------
@pytest.mark.parametrize(("window", "late", "started"), [(60, 2, 0), (300, 2, 1), (300, 6, 0)])
def test_a_due_time_starts_within_its_window_and_is_missed_after_it(
    run: TrainingRun, window: int, late: int, started: int
) -> None:
    plan(run, start_window_seconds=window)
    assert schedules.fire_due(NOON + late * MINUTE) == started


def test_overlap_skips_waits_or_cancels_the_drill_before(run: TrainingRun) -> None:
    row = plan(run)
    schedules.fire_due(NOON)
    first = Drill.objects.get()
    assert schedules.fire_due(NOON + 60 * MINUTE) == 0
    DrillPlan.objects.filter(pk=row.pk).update(overlap="wait")
    assert schedules.fire_due(NOON + 120 * MINUTE) == 1
    first.refresh_from_db()
    assert first.state != "finished"
    DrillPlan.objects.filter(pk=row.pk).update(overlap="cancel")
    assert schedules.fire_due(NOON + 180 * MINUTE) == 1
    assert set(Drill.objects.filter(outcome="cancelled").values_list("pk", flat=True)) >= {first.pk}
    assert Drill.objects.exclude(state="finished").count() == 1


def test_a_smeared_drill_begins_later_and_always_at_the_same_moment(run: TrainingRun) -> None:
    row = plan(run, smear_seconds=600)
    assert schedules.fire_due(NOON) == 1
    drill = Drill.objects.get()
    assert drill.not_before_at == NOON + smear(row.pk, NOON, 600)
    Drill.objects.filter(pk=drill.pk).update(not_before_at=timezone.now() + MINUTE)
    engine.advance(drill.pk)
    drill.refresh_from_db()
    assert drill.state == "scheduled"
    Drill.objects.filter(pk=drill.pk).update(not_before_at=timezone.now() - MINUTE)
    engine.advance(drill.pk)
    drill.refresh_from_db()
    assert drill.state == "finished"  # it began, and found no checkpoint


def test_smears_spread_over_their_whole_range_and_0_smears_nothing() -> None:
    found = [smear("pln_1", NOON + hour * timedelta(hours=1), 100).total_seconds() for hour in range(500)]
    assert min(found) >= 0 and max(found) <= 100 and len(set(found)) > 80
    assert smear("pln_1", NOON, 0) == timedelta(0)


def test_while_all_plans_are_paused_what_comes_due_is_skipped_and_says_so(run: TrainingRun) -> None:
    row = plan(run)
    services.pause_plans(actor="ada")
    assert schedules.fire_due(NOON) == 0
    assert PlanOccurrence.objects.get(plan=row).skipped_reason == "All plans were paused by ada."
    services.create_drill(run=run, spec={"kind": "reload"}, actor="olga")  # by hand it goes on
    services.resume_plans(actor="ada")
    Drill.objects.all().delete()
    assert schedules.fire_due(NOON + 60 * MINUTE) == 1


@pytest.mark.parametrize(
    ("field", "value"), [("overlap", "both"), ("start_window_seconds", 1), ("smear_seconds", 9999)]
)
def test_a_schedule_setting_that_is_none_names_its_field(run: TrainingRun, field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as problem:
        plan(run, **{field: value})
    assert problem.value.pointer == f"/{field}"


# -- calendar ----------------------------------------------------------------------------------------------------------
def planned(plan_id: str, minute: float, minutes: float = 10, cluster: str = "east") -> Planned:
    at = NOON + minute * MINUTE
    return Planned(plan_id=plan_id, cluster_id=cluster, planned_at=at, begins_at=at, seconds=minutes * 60)


def test_times_that_meet_on_one_cluster_name_each_other() -> None:
    rows = [planned("c", 40), planned("a", 0), planned("b", 5), planned("d", 5, cluster="west"), planned("e", 15)]
    found = {one.plan_id: others for one, others in conflicts(rows)}
    assert found == {"a": ("b",), "b": ("a",), "d": (), "e": (), "c": ()}


def test_a_long_drill_meets_everything_that_begins_before_it_ends() -> None:
    found = conflicts([planned("long", 0, minutes=100), planned("x", 20, 1), planned("y", 90, 1), planned("z", 100, 1)])
    assert [others for _one, others in found] == [("x", "y"), ("long",), ("long",), ()]


def test_the_calendar_gives_the_next_seven_days_with_what_each_plan_usually_takes(run: TrainingRun) -> None:
    nightly = plan(run, "nightly", "0 3 * * *")
    plan(run, "weekly", "20 3 * * 1")
    plan(run, "off", "0 4 * * *", enabled=False)
    for minutes in (30, 40, 50):
        times = {"started_at": NOON, "finished_at": NOON + minutes * MINUTE, "created_at": NOON}
        Drill.objects.create(cluster=run.cluster, run=run, plan=nightly, kind="reload", requested_by="p", **times)
    found = coming(DrillPlan.objects.all(), 7, NOON)
    assert [one.plan.name for one in found].count("nightly") == 7
    assert {one.plan.name for one in found} == {"nightly", "weekly"}
    assert {one.expected_seconds for one in found if one.plan.name == "nightly"} == {2400.0}
    meeting = [one for one in found if one.conflicts]
    assert [(one.plan.name, one.begins_at.isoformat()) for one in meeting] == [
        ("nightly", "2026-05-11T03:00:00+00:00"),
        ("weekly", "2026-05-11T03:20:00+00:00"),
    ]


def test_a_plan_of_every_minute_does_not_flood_the_calendar(run: TrainingRun) -> None:
    plan(run, "often", "* * * * *")
    assert len(coming(DrillPlan.objects.all(), 7, NOON)) == 500


def test_the_api_gives_the_calendar_and_pauses_plans(run: TrainingRun, client: Client) -> None:
    plan(run, "nightly", "0 3 * * *")
    bearer = {"Authorization": f"Bearer {factories.token(factories.user('olga', Role.OPERATOR))}"}
    assert client.post("/api/v1/drill-control/pause-plans", headers=bearer).json()["plans_paused_by"] == "olga"
    body = client.get("/api/v1/plans/calendar?days=2", headers=bearer).json()
    assert (body["paused"], len(body["items"]), body["items"][0]["conflicts"]) == (True, 2, [])
    assert client.post("/api/v1/drill-control/resume-plans", headers=bearer).json()["plans_paused_at"] is None
    assert client.get("/api/v1/plans/calendar?days=0", headers=bearer).status_code == 400
    stranger = factories.user("stan", Role.NONE)
    ClusterGrant.objects.create(user=stranger, cluster=factories.cluster("west"), role=Role.ADMIN)
    foreign = {"Authorization": f"Bearer {factories.token(stranger, Role.ADMIN)}"}
    assert client.get("/api/v1/plans/calendar", headers=foreign).json()["items"] == []
