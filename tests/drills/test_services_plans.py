from __future__ import annotations

from typing import Any

import factories
import pytest

from apps.checkpoints.models import TrainingRun
from apps.core.errors import Conflict, InvalidInput
from apps.drills import services
from apps.drills.models import Drill, DrillPlan

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


def create(run: TrainingRun, **spec: object) -> DrillPlan:
    values = {"name": "nightly", "kind": "reload", "cron": "0 3 * * *", **spec}
    return services.create_plan(run=run, spec=values, actor="olga")


def test_a_plan_knows_when_it_is_due_next(run: TrainingRun) -> None:
    row = create(run, time_zone="Europe/Berlin")
    assert row.next_at is not None and row.next_at.minute == 0 and row.next_at.hour in (1, 2)


def test_a_plan_without_cron_text_is_only_started_by_hand(run: TrainingRun) -> None:
    row = create(run, cron="")
    assert row.next_at is None
    assert services.start_plan(plan=row, actor="olga").plan_id == row.pk


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"name": ""}, "/name"),
        ({"name": "  "}, "/name"),
        ({"name": "n" * 101}, "/name"),
        ({"cron": "every day"}, "/cron"),
        ({"cron": "every day", "enabled": False}, "/cron"),
        ({"cron": 5}, "/cron"),
        ({"time_zone": "CET/Nowhere"}, "/time_zone"),
        ({"cron": "", "time_zone": "CET/Nowhere"}, "/time_zone"),
        ({"missed": "run_all"}, "/missed"),
        ({"enabled": "yes"}, "/enabled"),
        ({"kind": "explode"}, "/kind"),
        ({"seed": 3}, "/seed"),
    ],
)
def test_a_bad_plan_is_refused_by_field(run: TrainingRun, spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        create(run, **spec)
    assert problem.value.pointer == field
    assert not DrillPlan.objects.exists()


def test_two_plans_of_one_run_have_two_names(run: TrainingRun) -> None:
    create(run)
    with pytest.raises(InvalidInput, match="already has a plan named 'nightly'"):
        create(run)
    create(factories.run(run.cluster, "other"))


def test_a_failover_plan_needs_a_cluster_that_allows_disruption(run: TrainingRun) -> None:
    with pytest.raises(Conflict, match="Disruptive drills are off"):
        create(run, kind="failover")


def test_changing_a_plan_moves_its_next_time_and_leaves_past_drills_alone(run: TrainingRun) -> None:
    row = create(run, objective_seconds=90.0)
    drill = services.start_plan(plan=row, actor="olga")
    before = row.next_at
    services.update_plan(plan=row, changes={"cron": "30 4 * * *", "objective_seconds": 60.0}, actor="olga")
    row.refresh_from_db()
    assert row.next_at != before and row.next_at is not None and (row.next_at.hour, row.next_at.minute) == (4, 30)
    assert (row.objective_seconds, Drill.objects.get(pk=drill.pk).objective_seconds) == (60.0, 90.0)


def test_an_objective_can_be_taken_away_again(run: TrainingRun) -> None:
    row = create(run, objective_seconds=90.0)
    services.update_plan(plan=row, changes={"objective_seconds": None}, actor="olga")
    row.refresh_from_db()
    assert row.objective_seconds is None


def test_a_step_goes_with_the_choice_that_needed_it(run: TrainingRun) -> None:
    row = create(run, choice="named", step=10)
    services.update_plan(plan=row, changes={"choice": "latest"}, actor="olga")
    row.refresh_from_db()
    assert (row.choice, row.step) == ("latest", None)


def test_a_change_over_somebody_elses_change_is_refused(run: TrainingRun) -> None:
    row = create(run)
    stale = DrillPlan.objects.get(pk=row.pk)
    services.update_plan(plan=row, changes={"name": "weekly"}, actor="olga")
    with pytest.raises(Conflict, match="changed this plan meanwhile"):
        services.update_plan(plan=stale, changes={"name": "daily"}, actor="otto")
    assert DrillPlan.objects.get(pk=row.pk).name == "weekly"


def test_deleting_a_plan_keeps_its_drills(run: TrainingRun) -> None:
    row = create(run)
    drill = services.start_plan(plan=row, actor="olga")
    services.delete_plan(plan=row, actor="olga")
    assert Drill.objects.get(pk=drill.pk).plan_id is None
