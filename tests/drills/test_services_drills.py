"""Creating and cancelling drills, and the switch that stops them all."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import pytest
from django.utils import timezone
from drill_agents import Yard, advanced, run_to_end, tasks_of

from apps.accounts.models import ActivityEntry
from apps.core.errors import Conflict, InvalidInput
from apps.drills import services
from apps.drills.models import Drill
from apps.fleet import tasks
from apps.fleet.models import AgentTask

pytestmark = pytest.mark.django_db


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


def make(yard: Yard, **spec: object) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": "reload", **spec}, actor="olga")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"kind": "explode"}, "/kind"),
        ({"kind": None}, "/kind"),
        ({"choice": "newest"}, "/choice"),
        ({"choice": "named"}, "/step"),
        ({"step": 10}, "/step"),
        ({"choice": "named", "step": "ten"}, "/step"),
        ({"choice": "named", "step": True}, "/step"),
        ({"window_days": 0}, "/window_days"),
        ({"node_count": 0}, "/node_count"),
        ({"node_count": 1.5}, "/node_count"),
        ({"ladder": [1, 2]}, "/ladder"),
        ({"kind": "herd", "ladder": [2, 1]}, "/ladder"),
        ({"kind": "herd", "ladder": "1,2"}, "/ladder"),
        ({"kind": "herd", "ladder": [1, 2], "node_count": 2}, "/node_count"),
        ({"backend": "s3fs"}, "/backend"),
        ({"signal_name": "SIGFOO"}, "/signal_name"),
        ({"max_bytes_per_second": 10}, "/max_bytes_per_second"),
        ({"objective_seconds": -1}, "/objective_seconds"),
        ({"objective_seconds": "fast"}, "/objective_seconds"),
        ({"deadline_seconds": 1}, "/deadline_seconds"),
        ({"tier": "tir_unknown"}, "/tier"),
        ({"seed": -1}, "/seed"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_bad_setting_is_refused_by_name(yard: Yard, spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        make(yard, **spec)
    assert problem.value.pointer == field
    assert not Drill.objects.exists()


def test_a_step_that_is_not_known_is_refused_with_those_that_are(yard: Yard) -> None:
    factories.placement(yard.run, yard.tier, 10)
    factories.placement(yard.run, yard.tier, 20)
    factories.placement(yard.run, yard.tier, 41, status="missing")
    with pytest.raises(InvalidInput) as problem:
        make(yard, choice="named", step=41)
    assert problem.value.detail == "No checkpoint of step 41 is known; the newest known are 20, 10."
    assert problem.value.pointer == "/step" and not Drill.objects.exists()
    nas = factories.tier(yard.cluster, "nas", "/nas")
    with pytest.raises(InvalidInput, match="of step 10 is known; none is known: scan its tier"):
        make(yard, choice="named", step=10, tier=nas.pk)
    assert make(yard, choice="named", step=10).step == 10


def test_a_tier_of_another_cluster_does_not_exist_here(yard: Yard) -> None:
    foreign = factories.tier(factories.cluster("west"), "nvme")
    with pytest.raises(InvalidInput, match="no such storage tier"):
        make(yard, tier=foreign.pk)


def test_a_drill_reads_from_the_tier_that_was_asked_for(yard: Yard) -> None:
    yard.checkpoint(20)
    slow = factories.tier(yard.cluster, "nas", uri=str(yard.folder.parent), speed_order=3)
    copy = factories.placement(yard.run, slow, 20, path=str(yard.folder / "step-00000020-copy"), trust="verified")
    drill = advanced(make(yard, tier=slow.pk))
    assert drill.placement_id == copy.pk


def test_an_archived_run_is_not_drilled(yard: Yard) -> None:
    yard.run.archived_at = timezone.now()
    yard.run.save()
    with pytest.raises(Conflict, match="archived"):
        make(yard)


def test_who_started_and_cancelled_a_drill_is_in_the_activity_log(yard: Yard) -> None:
    drill = make(yard)
    services.cancel_drill(drill=drill, actor="otto")
    rows = ActivityEntry.objects.filter(target_id=drill.pk).order_by("id")
    assert [(row.actor, row.action) for row in rows] == [("olga", "drill.create"), ("otto", "drill.cancel")]


def test_a_drill_that_has_not_begun_is_cancelled_at_once(yard: Yard) -> None:
    drill = services.cancel_drill(drill=make(yard), actor="otto")
    assert (drill.state, drill.outcome) == ("finished", "cancelled")


def test_a_running_drill_is_cancelled_once_its_agents_have_stopped(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    services.cancel_drill(drill=drill, actor="otto")
    assert all(task.outcome == "cancelled" for task in tasks_of(drill))
    assert advanced(drill).outcome == "cancelled"
    assert drill.reason == "Cancelled."


def test_an_agent_that_does_not_confirm_holds_a_cancellation_up_for_seconds_only(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    task = tasks_of(drill)[2]
    [claimed] = tasks.claim(agent=task.agent, slots=1)
    tasks.acknowledge(agent=claimed.agent, task_id=claimed.pk, attempt=claimed.attempt)
    services.cancel_drill(drill=drill, actor="otto")
    assert advanced(drill).state == "running"
    assert AgentTask.objects.get(pk=task.pk).state == "cancelling"
    Drill.objects.filter(pk=drill.pk).update(cancel_requested_at=timezone.now() - timedelta(seconds=9))
    assert advanced(drill).outcome == "cancelled"
    assert "gpu-3 had not confirmed" in drill.reason


def test_cancelling_again_while_it_stops_changes_nothing(yard: Yard) -> None:
    yard.checkpoint()
    drill = advanced(make(yard))
    services.cancel_drill(drill=drill, actor="otto")
    services.cancel_drill(drill=drill, actor="otto")
    assert ActivityEntry.objects.filter(target_id=drill.pk, action="drill.cancel").count() == 1


def test_a_finished_drill_cannot_be_cancelled_and_says_so(yard: Yard) -> None:
    yard.checkpoint()
    drill = run_to_end(make(yard), yard.agents)
    with pytest.raises(Conflict, match=r"already finished \(passed\)"):
        services.cancel_drill(drill=drill, actor="otto")
    assert Drill.objects.get(pk=drill.pk).outcome == "passed"


def test_the_kill_switch_cancels_what_runs_and_refuses_what_would_start(yard: Yard) -> None:
    yard.checkpoint()
    running, waiting = advanced(make(yard)), make(yard)
    assert services.stop_all_drills(actor="ada", reason="storage maintenance") == 2
    assert advanced(running).outcome == advanced(waiting).outcome == "cancelled"
    with pytest.raises(Conflict, match="stopped by ada: storage maintenance"):
        make(yard)
    services.allow_drills(actor="ada")
    assert advanced(make(yard)).state == "running"


def test_a_drill_created_just_before_the_switch_does_not_begin(yard: Yard) -> None:
    yard.checkpoint()
    drill = make(yard)
    from apps.drills.models import DrillControl

    DrillControl.objects.create(stopped_at=timezone.now(), stopped_by="ada")
    assert advanced(drill).outcome == "skipped"
    assert tasks_of(drill) == []
