"""Every rule that keeps a drill from doing harm, each with what happens when it is broken."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import factories
import msgspec
import pytest
from django.test import Client
from django.utils import timezone
from drill_agents import Yard, advanced, run_to_end, tasks_of

from apps.accounts.models import Role
from apps.checkpoints.models import RunAttempt, RunEvent, TrainingRun
from apps.core.errors import Conflict, InvalidInput
from apps.drills import preview, rules, safety, schedules, services
from apps.drills.models import Drill, DrillPlan, DrillRules, PlanOccurrence
from apps.fleet.inventory import Contents, InventoryNode
from apps.fleet.models import ClusterInventory
from apps.fleet.schedulers.base import SchedulerNode
from apps.storage.models import TierCeiling

pytestmark = pytest.mark.django_db


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    """A cluster that allows disruption, with a job that trains on gpu-1."""
    yard = Yard(tmp_path, node_count=2)
    yard.cluster.allows_disruption = True
    yard.cluster.save()
    now = timezone.now()
    agent, times = yard.agents[0], {"started_at": now - timedelta(hours=1), "last_report_at": now}
    RunAttempt.objects.create(run=yard.run, launch_id="L1", agent=agent, last_step=5, **times)
    return yard


def make(yard: Yard, kind: str = "failover", actor: str = "olga", **spec: Any) -> Drill:
    return services.create_drill(run=yard.run, spec={"kind": kind, **spec}, actor=actor)


def rule(yard: Yard, **changes: Any) -> DrillRules:
    return rules.update_rules(cluster=yard.cluster, changes=changes, actor="ada")


def ended(yard: Yard, outcome: str, minutes_ago: float) -> None:
    at = timezone.now() - timedelta(minutes=minutes_ago)
    values = {"state": "finished", "outcome": outcome, "finished_at": at, "created_at": at, "requested_by": "olga"}
    Drill.objects.create(cluster=yard.cluster, run=yard.run, kind="failover", **values)


# -- off by default ----------------------------------------------------------------------------------------------------
def test_a_disruptive_drill_is_refused_where_nobody_allowed_disruption(yard: Yard) -> None:
    yard.cluster.allows_disruption = False
    yard.cluster.save()
    with pytest.raises(Conflict, match="an admin can allow them"):
        make(yard)


def test_permission_that_is_taken_back_stops_a_drill_that_had_not_begun(yard: Yard) -> None:
    drill = make(yard)
    yard.cluster.allows_disruption = False
    yard.cluster.save()
    assert (advanced(drill).outcome, tasks_of(drill)) == ("skipped", [])


# -- approval ----------------------------------------------------------------------------------------------------------
def test_a_disruptive_drill_waits_for_somebody_else_and_a_reading_one_does_not(yard: Yard) -> None:
    rule(yard, needs_approval=True)
    yard.checkpoint(world_size=2)
    assert run_to_end(make(yard, kind="reload"), yard.agents).outcome == "passed"
    drill = advanced(make(yard))
    assert (drill.state, tasks_of(drill)) == ("waiting", [])
    with pytest.raises(Conflict, match="Somebody else"):
        rules.approve(drill=drill, actor="olga")
    rules.approve(drill=drill, actor="otto")
    assert (drill.approved_by, advanced(drill).state) == ("otto", "running")
    with pytest.raises(Conflict, match="does not wait"):
        rules.approve(drill=drill, actor="otto")


def test_an_approval_that_never_comes_ends_in_skipped(yard: Yard) -> None:
    rule(yard, needs_approval=True)
    drill = make(yard)
    Drill.objects.filter(pk=drill.pk).update(created_at=timezone.now() - timedelta(hours=2))
    drill.refresh_from_db()
    assert advanced(drill).outcome == "skipped"
    assert "until another operator approves" in drill.reason


# -- windows -----------------------------------------------------------------------------------------------------------
def test_outside_its_windows_a_disruptive_drill_is_refused_with_the_next_opening(yard: Yard) -> None:
    rule(yard, windows=["mon-fri 09:00-17:00"], time_zone="Europe/Berlin")
    sunday, monday = datetime(2026, 5, 3, 12, tzinfo=UTC), datetime(2026, 5, 4, 12, tzinfo=UTC)
    with pytest.raises(Conflict, match="next from Mon 2026-05-04 09:00"):
        safety.require_allowed(yard.run, "failover", sunday)
    safety.require_allowed(yard.run, "failover", monday)
    safety.require_allowed(yard.run, "reload", sunday)


def test_a_planned_drill_outside_the_windows_is_skipped_and_says_so(yard: Yard) -> None:
    plan = services.create_plan(run=yard.run, spec={"name": "n", "kind": "failover", "cron": "* * * * *"}, actor="olga")
    tomorrow = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")[(timezone.now().weekday() + 2) % 7]
    rule(yard, windows=[f"{tomorrow} 09:00-10:00"])
    due = timezone.now().replace(second=0, microsecond=0)
    DrillPlan.objects.filter(pk=plan.pk).update(next_at=due)
    assert schedules.fire_due(due) == 0
    assert "run only" in PlanOccurrence.objects.get(plan=plan).skipped_reason


# -- blast radius ------------------------------------------------------------------------------------------------------
def test_a_drill_that_would_touch_too_many_nodes_does_not_begin(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    rule(yard, max_nodes=1)
    drill = advanced(make(yard, kind="reload"))
    assert (drill.outcome, tasks_of(drill)) == ("skipped", [])
    assert drill.reason == "It would touch 2 nodes, and at most 1 may be: ask for fewer."
    assert advanced(make(yard, kind="reload", node_count=1)).state == "running"


def test_a_share_of_the_tier_that_is_too_large_or_not_known_is_refused(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    rule(yard, max_tier_ratio=0.25)
    assert "give a cap" in advanced(make(yard, kind="reload")).reason
    capped = {"kind": "reload", "max_bytes_per_second": 100_000_000}
    assert "nobody has measured it" in advanced(make(yard, **capped)).reason
    ceiling = {"client_count": 2, "method": "test", "measured_at": timezone.now()}
    TierCeiling.objects.create(tier=yard.tier, bytes_per_second=700e6, **ceiling)
    assert "28.6 % of the tier's rate" in advanced(make(yard, **capped)).reason
    TierCeiling.objects.create(tier=yard.tier, bytes_per_second=800e6, **ceiling)
    assert advanced(make(yard, **capped)).state == "running"


# -- circuit breaker ---------------------------------------------------------------------------------------------------
def test_after_two_disruptive_drills_in_a_row_went_wrong_no_other_starts_until_a_reset(yard: Yard) -> None:
    ended(yard, "failed", 30)
    make(yard)
    ended(yard, "lost", 20)
    with pytest.raises(Conflict, match="reset the breaker"):
        make(yard)
    make(yard, kind="reload")
    rules.reset_breaker(cluster=yard.cluster, actor="ada")
    make(yard)


def test_one_that_passed_between_or_an_old_failure_keeps_the_breaker_closed(yard: Yard) -> None:
    for outcome, minutes in (("failed", 30), ("passed", 20), ("failed", 10), ("skipped", 5), ("cancelled", 4)):
        ended(yard, outcome, minutes)
    assert not safety.breaker_is_open(safety.rules_of(yard.cluster), timezone.now())
    ended(yard, "failed", 1)
    assert safety.breaker_is_open(safety.rules_of(yard.cluster), timezone.now())
    assert not safety.breaker_is_open(safety.rules_of(yard.cluster), timezone.now() + timedelta(days=8))


# -- plan-only, protected, kill switch ---------------------------------------------------------------------------------
@pytest.mark.parametrize(("kind", "touched"), [("failover", "gpu-1"), ("reload", "gpu-1, gpu-2, reading")])
def test_a_cluster_that_only_plans_says_what_would_have_happened(yard: Yard, kind: str, touched: str) -> None:
    yard.checkpoint(world_size=2)
    rule(yard, plan_only=True)
    drill = advanced(make(yard, kind=kind))
    assert (drill.outcome, tasks_of(drill)) == ("skipped", [])
    assert f"only plans drills: it would have touched {touched}" in drill.reason


@pytest.mark.parametrize("kind", ["failover", "reload", "herd"])
def test_no_drill_touches_a_protected_run(yard: Yard, kind: str) -> None:
    waiting = make(yard, kind=kind)
    rule(yard, protected_runs=[yard.run.name])
    with pytest.raises(Conflict, match="is protected"):
        make(yard, kind=kind)
    assert (advanced(waiting).outcome, tasks_of(waiting)) == ("skipped", [])
    rule(yard, protected_runs=[])
    make(yard, kind=kind)


def test_the_kill_switch_cancels_what_waits_and_lets_nothing_start(yard: Yard) -> None:
    drill = make(yard)
    assert services.stop_all_drills(actor="ada") == 1
    drill.refresh_from_db()
    assert drill.outcome == "cancelled"
    with pytest.raises(Conflict, match="stopped by ada"):
        make(yard, kind="reload")


# -- nothing is written ------------------------------------------------------------------------------------------------
def test_a_reading_drill_leaves_the_storage_exactly_as_it_was(yard: Yard) -> None:
    yard.checkpoint(world_size=2)
    before = seen(yard.folder.parent)
    assert run_to_end(make(yard, kind="herd", ladder=[1, 2]), yard.agents).outcome == "passed"
    assert seen(yard.folder.parent) == before


def seen(root: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in sorted(root.rglob("*")):
        told = os.lstat(path)
        found[str(path)] = (told.st_size, told.st_mtime_ns, told.st_ino)
    return found


# -- preview and API ---------------------------------------------------------------------------------------------------
def test_a_preview_names_nodes_bytes_and_share_and_starts_nothing(yard: Yard) -> None:
    copy = yard.checkpoint(world_size=2)
    told = preview.preview(yard.run, {"kind": "reload"})
    assert (told.radius.nodes, told.radius.tier_ratio, told.refusals) == (("gpu-1", "gpu-2"), 1.0, ())
    assert told.placement == copy and (told.radius.total_bytes or 0) >= copy.total_bytes
    disruptive = preview.preview(yard.run, {"kind": "failover"})
    assert (disruptive.disrupts, disruptive.radius.nodes, disruptive.refusals) == (True, ("gpu-1",), ())
    assert Drill.objects.count() == 0
    rule(yard, max_nodes=1, plan_only=True)
    assert len(preview.preview(yard.run, {"kind": "reload"}).refusals) == 2


def posted(client: Client, run: TrainingRun, **spec: Any) -> dict[str, Any]:
    """The API's preview of a drill."""
    olga = {"Authorization": f"Bearer {factories.token(factories.user('olga', Role.OPERATOR))}"}
    body = {"run": run.pk, **spec}
    answer = client.post("/api/v1/drills/preview", body, content_type="application/json", headers=olga)
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def ranks(yard: Yard, count: int) -> None:
    """So many processes of the launch that trains, on both nodes."""
    for rank in range(count):
        agent = yard.agents[rank % 2]
        values = {"agent": agent, "source": f"s{rank}", "seq": 1, "kind": "process_started", "mono_seconds": 0.0}
        attempt = RunAttempt.objects.get(launch_id="L1")
        RunEvent.objects.create(run=yard.run, attempt=attempt, at=timezone.now(), rank=rank, pid=100 + rank, **values)


def test_the_api_previews_a_failover_with_the_launch_and_the_workers_it_could_break(yard: Yard, client: Client) -> None:
    ranks(yard, 4)
    told = posted(client, yard.run, kind="failover", signal_name="SIGTERM")
    assert (told["launch_id"], told["last_step"], told["candidate_count"]) == ("L1", 5, 4)
    assert told["candidates"] == [f"rank {rank} on gpu-{rank % 2 + 1}" for rank in range(4)]
    assert (told["effect"], told["refusals"]) == ("The process is ended by SIGTERM.", [])
    assert Drill.objects.count() == 0


def test_a_preview_says_that_nobody_fits_and_that_no_launch_trains(yard: Yard) -> None:
    ranks(yard, 2)
    told = preview.preview(yard.run, {"kind": "failover", "worker_rank": 7})
    assert told.refusals == ("Launch L1 has no worker rank 7; registered are: rank 0 on gpu-1, rank 1 on gpu-2.",)
    RunAttempt.objects.update(last_report_at=timezone.now() - timedelta(hours=1))
    assert "has reported in the last two minutes" in preview.preview(yard.run, {"kind": "failover"}).refusals[0]


def inventoried(yard: Yard, *nodes: SchedulerNode) -> None:
    """As if the cluster's scheduler had told of `nodes` just now."""
    found = Contents(nodes=tuple(InventoryNode(name=node.name, scheduler=node) for node in nodes))
    counts = dict.fromkeys(("usable_count", "gpu_count", "job_count", "change_count"), 0)
    ClusterInventory.objects.create(
        cluster=yard.cluster, taken_at=timezone.now(), seconds=0.1, node_count=len(nodes), scheduler="slurm",
        contents=msgspec.to_builtins(found), **counts,
    )  # fmt: skip


def test_a_standby_drill_is_previewed_from_the_last_inventory_without_asking_the_scheduler(
    yard: Yard, client: Client
) -> None:
    told = posted(client, yard.run, kind="standby")
    assert "inventoried" in told["refusals"][0]
    used = SchedulerNode(name="gpu-1", state="idle", usable=True)
    spare = SchedulerNode(name="gpu-2", state="idle+drain", usable=False, parked=True, reason="muster standby")
    inventoried(yard, used, spare)
    told = preview.preview(yard.run, {"kind": "standby"})
    assert (told.outlook.candidates, told.outlook.spare, told.refusals) == (("gpu-1",), "gpu-2", ())
    assert told.radius.nodes == ("gpu-1", "gpu-2")


def test_a_preview_of_a_node_fault_says_where_the_node_is_out_of_use_already(yard: Yard) -> None:
    ranks(yard, 1)
    inventoried(yard, SchedulerNode(name="gpu-1", state="down", usable=False))
    told = preview.preview(yard.run, {"kind": "failover", "fault": "node"})
    assert told.refusals == ("gpu-1 is out of use already.",)


def test_rules_are_changed_by_admins_and_a_bad_one_names_its_field(yard: Yard, client: Client) -> None:
    def bearer(name: str, role: Role) -> dict[str, str]:
        return {"Authorization": f"Bearer {factories.token(factories.user(name, role))}", "If-Match": "*"}

    url, ada = f"/api/v1/clusters/{yard.cluster.pk}/drill-rules", bearer("ada", Role.ADMIN)
    assert client.get(url, headers=ada).json()["breaker_failures"] == 2
    body = {"windows": ["mon 09:00-10:00"], "max_nodes": 4, "protected_runs": [yard.run.name]}
    answer = client.patch(url, body, content_type="application/json", headers=ada).json()
    assert {name: answer[name] for name in body} == body
    refused = client.patch(url, body, content_type="application/json", headers=bearer("olga", Role.OPERATOR))
    assert refused.status_code == 403
    for wrong in ({"windows": ["noon"]}, {"time_zone": "Mars/Base"}, {"protected_runs": ["who"]}):
        with pytest.raises(InvalidInput) as problem:
            rule(yard, **wrong)
        assert problem.value.pointer == f"/{next(iter(wrong))}"
