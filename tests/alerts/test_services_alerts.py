"""Alerts open when something is wrong, once, and resolve when it no longer is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from listings import answer, listing, scanned, shard_map
from listings import finding as listed_finding
from muster_agent.formats.base import Status
from muster_agent.protocol.wire import RootMark

from apps.accounts.models import ActivityEntry
from apps.alerts import services
from apps.alerts.models import Alert
from apps.checkpoints import scans
from apps.checkpoints.models import Finding, Placement, TrainingRun
from apps.core.errors import Conflict
from apps.core.models import Transition
from apps.drills.models import Drill, DrillPlan, PlanOccurrence
from apps.fleet.models import Agent
from apps.fleet.tasks import tasks_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


def drill(run: TrainingRun, **fields: Any) -> Drill:
    values: dict[str, Any] = {"kind": "reload", "state": "finished", "outcome": "passed", "created_at": timezone.now()}
    return Drill.objects.create(cluster=run.cluster, run=run, **{**values, **fields})


def standing() -> list[tuple[str, str, str]]:
    services.evaluate()
    rows = Alert.objects.exclude(state="resolved").order_by("rule")
    return [(row.rule, row.subject_kind, row.subject_id) for row in rows]


def test_nothing_wrong_opens_nothing(run: TrainingRun) -> None:
    factories.placement(run, factories.tier(run.cluster))
    factories.agent(factories.node(run.cluster))
    drill(run)
    assert standing() == []


def test_damage_opens_one_alert_for_the_checkpoint_and_resolves_with_it(run: TrainingRun) -> None:
    placement = factories.placement(run, factories.tier(run.cluster), damaged_at=timezone.now())
    Finding.objects.create(
        placement=placement,
        code="digest_mismatch",
        severity="damage",
        detail="rank-00002 differs at bytes 12 to 16",
        cure="",
        source_kind="audit",
        source_id="aud_1",
        found_at=timezone.now(),
    )
    assert standing() == standing() == [("damage", "checkpoint", placement.checkpoint_id)]
    alert = Alert.objects.get()
    assert alert.summary == "Step 10 of llama-70b on nvme: rank-00002 differs at bytes 12 to 16"
    placement.damaged_at = None
    placement.save()
    assert standing() == []
    alert.refresh_from_db()
    assert alert.state == "resolved" and alert.resolved_at is not None


def test_the_alert_of_a_damaged_copy_ends_when_the_copy_is_gone(run: TrainingRun) -> None:
    placement = factories.placement(run, factories.tier(run.cluster), damaged_at=timezone.now(), status="corrupt")
    assert standing() == [("damage", "checkpoint", placement.checkpoint_id)]
    placement.status = placement.listed_status = "missing"
    placement.save()
    assert standing() == []


def test_damage_that_comes_back_opens_a_new_alert(run: TrainingRun) -> None:
    placement = factories.placement(run, factories.tier(run.cluster), status="corrupt")
    standing()
    type(placement).objects.update(status="complete")
    standing()
    type(placement).objects.update(status="corrupt")
    standing()
    assert sorted(Alert.objects.values_list("state", flat=True)) == ["open", "resolved"]


def test_a_lost_agent_opens_and_its_return_resolves(run: TrainingRun) -> None:
    agent = factories.agent(factories.node(run.cluster), state=Agent.State.LOST)
    assert standing() == [("agent_lost", "node", agent.node_id)]
    Agent.objects.update(state=Agent.State.ONLINE)
    assert standing() == []


def test_a_stale_or_revoked_agent_is_not_lost(run: TrainingRun) -> None:
    factories.agent(factories.node(run.cluster, "a"), state=Agent.State.STALE)
    factories.agent(factories.node(run.cluster, "b"), state=Agent.State.REVOKED)
    assert standing() == []


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_a_failed_drill_stands_until_a_later_one_passes(run: TrainingRun, outcome: str) -> None:
    bad = drill(run, outcome=outcome, reason="gpu-2 (rank 1) failed: the disk went away.")
    assert standing() == [("drill_failed", "drill", bad.pk)]
    assert "the disk went away" in Alert.objects.get().summary
    drill(run)
    assert standing() == []


def test_a_failed_failover_is_not_ended_by_a_reload_that_passes(run: TrainingRun) -> None:
    bad = drill(run, kind="failover", outcome="failed")
    drill(run)
    assert standing() == [("drill_failed", "drill", bad.pk)]


def test_skipped_and_cancelled_drills_neither_open_nor_end_an_alert(run: TrainingRun) -> None:
    bad = drill(run, outcome="failed")
    drill(run, outcome="skipped")
    drill(run, outcome="cancelled")
    assert standing() == [("drill_failed", "drill", bad.pk)]


def test_restored_but_late_is_a_breach_and_not_a_failure(run: TrainingRun) -> None:
    late = drill(run, objective_state="breached", seconds=137.0, objective_seconds=90.0)
    assert standing() == [("objective_breached", "drill", late.pk)]
    assert Alert.objects.get().summary == "The reload drill of llama-70b took 2 min 17 s; its objective is 90 s."


def plan(run: TrainingRun) -> DrillPlan:
    return DrillPlan.objects.create(
        run=run, name="nightly", kind="reload", created_by="olga", created_at=timezone.now()
    )


def occurrence(of: DrillPlan, hours_ago: int, **fields: Any) -> PlanOccurrence:
    now = timezone.now()
    return PlanOccurrence.objects.create(plan=of, planned_at=now - timedelta(hours=hours_ago), created_at=now, **fields)


def test_a_missed_schedule_stands_until_the_next_occurrence_drills(run: TrainingRun) -> None:
    row = plan(run)
    occurrence(row, 2, skipped_reason="Missed: nothing was running at that time to start it.")
    assert standing() == [("schedule_missed", "plan", row.pk)]
    occurrence(row, 1, drill=drill(run, plan=row))
    assert standing() == []


def test_an_occurrence_whose_drill_was_skipped_is_missed_too(run: TrainingRun) -> None:
    row = plan(run)
    occurrence(row, 1, drill=drill(run, outcome="skipped", reason="No online agent can read it."))
    assert standing() == [("schedule_missed", "plan", row.pk)]
    assert "No online agent" in Alert.objects.get().summary


def test_a_plan_that_is_off_is_missed_by_nobody(run: TrainingRun) -> None:
    row = plan(run)
    occurrence(row, 2, skipped_reason="Missed.")
    DrillPlan.objects.update(enabled=False)
    assert standing() == []


def test_acknowledging_names_who_and_keeps_the_alert_until_its_cause_is_gone(run: TrainingRun) -> None:
    drill(run, outcome="failed")
    standing()
    alert = services.acknowledge(alert=Alert.objects.get(), actor="olga")
    services.acknowledge(alert=alert, actor="otto")
    alert.refresh_from_db()
    assert (alert.state, alert.acknowledged_by) == ("acknowledged", "olga")
    assert ActivityEntry.objects.filter(action="alert.acknowledge").count() == 1
    assert len(standing()) == 1
    drill(run)
    assert standing() == []
    with pytest.raises(Conflict, match="already been resolved"):
        services.acknowledge(alert=alert, actor="olga")


def test_every_change_leaves_its_transition_row(run: TrainingRun) -> None:
    drill(run, outcome="failed")
    standing()
    drill(run)
    standing()
    assert list(Transition.objects.filter(owner_kind="alert").order_by("id").values_list("new", flat=True)) == [
        "open",
        "resolved",
    ]


def test_evaluating_costs_the_same_number_of_queries_however_much_is_there(run: TrainingRun) -> None:
    tier, counts = factories.tier(run.cluster), []
    for steps in (range(1, 3), range(3, 30)):
        for step in steps:
            factories.placement(run, tier, step, shards=1, damaged_at=timezone.now())
            drill(run, kind="herd", outcome="failed")
        services.evaluate()
        with CaptureQueriesContext(connection) as queries:
            services.evaluate()
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 24


def test_a_tier_that_could_not_be_read_opens_an_alert_until_it_can(run: TrainingRun) -> None:
    tier = factories.tier(run.cluster)
    factories.agent(factories.node(run.cluster))
    scanned(tier, listing(shard_map(10)))
    failing = scans.request_scan(tier=tier, actor="olga")
    error = "/ckpt: there is no such file or folder"
    answer(tasks_of("scan", failing.pk).get(), None, outcome="failed", error=error, code="root_unreadable")
    scans.advance(failing.pk)
    assert standing() == [("tier_unreadable", "tier", tier.pk)]
    assert Alert.objects.get().summary == f"Tier nvme, as gpu-1 sees it: {error}. Nothing was taken for gone."
    lost = scans.request_scan(tier=tier, actor="olga")
    answer(tasks_of("scan", lost.pk).get(), None, outcome="lost")
    scans.advance(lost.pk)
    assert len(standing()) == 1, "an agent that was lost tells nothing about the storage"
    scanned(tier, listing(shard_map(10)))
    assert standing() == []


def test_an_empty_folder_in_place_of_the_mount_opens_an_alert_and_changes_nothing(run: TrainingRun) -> None:
    tier = factories.tier(run.cluster)
    factories.agent(factories.node(run.cluster))
    scanned(tier, listing(shard_map(10)))
    bare = RootMark(mount_point="/", device=1, inode=9)
    scanned(tier, listing(root_mark=bare))
    assert standing() == [("tier_unreadable", "tier", tier.pk)]
    assert "is now on that at /" in Alert.objects.get().summary
    assert Placement.objects.get().status == "complete"
    scanned(tier, listing(root_mark=bare), accepts_loss=True)
    assert standing() == [] and Placement.objects.get().status == "missing"


def test_a_cold_tier_that_falls_behind_opens_an_alert_until_it_has_caught_up(run: TrainingRun) -> None:
    hot, cold = factories.tier(run.cluster), factories.tier(run.cluster, "nas", "/nas", speed_order=1)
    for step in range(9, 31):
        factories.placement(run, hot, step, shards=1)
    factories.placement(run, cold, 9, shards=1)
    factories.placement(run, cold, 30, shards=1, status="incomplete")
    assert standing() == [("tier_behind", "run", run.pk)]
    assert "nas is behind: its newest whole checkpoint is step 9" in Alert.objects.get().summary
    Placement.objects.filter(tier=cold, checkpoint__step=30).update(status="complete")
    assert standing() == []


@pytest.fixture
def listed_tier() -> Any:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    return factories.tier(cluster)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (Status.INCOMPLETE, "shard_missing"),
        (Status.CORRUPT, "shard_truncated"),
        (Status.COMPLETE, "metadata_unsafe"),
        (Status.UNCOMMITTED, "ranges_gap"),
    ],
)
def test_damage_that_a_scan_finds_opens_an_alert_at_any_status(listed_tier: Any, status: Status, code: str) -> None:
    scanned(listed_tier, listing(shard_map(10, status=status, findings=(listed_finding(code, "damage"),))))
    assert standing() == [("damage", "checkpoint", Placement.objects.get().checkpoint_id)]
    assert Alert.objects.get().summary == f"Step 10 of llama-70b on nvme: {code} at x"
    scanned(listed_tier, listing(shard_map(10)))
    assert standing() == []


def test_warnings_running_saves_and_what_is_gone_open_no_alert_of_damage(listed_tier: Any) -> None:
    damage = (listed_finding("shard_missing", "damage"),)
    saving = shard_map(20, status=Status.IN_PROGRESS, findings=damage)
    warned = shard_map(10, findings=(listed_finding("shard_orphaned", "warning"),))
    scanned(listed_tier, listing(warned, saving, shard_map(5, status=Status.INCOMPLETE, findings=damage)))
    scanned(listed_tier, listing(warned, saving))
    assert standing() == []


def test_damage_that_belongs_to_no_listed_checkpoint_opens_an_alert_of_its_tier(listed_tier: Any) -> None:
    pointer = listed_finding("pointer_dangling", "damage", "/ckpt/llama-70b/latest")
    loose = shard_map(None, path="/ckpt/final.pt", findings=(listed_finding("metadata_unsafe", "damage", ""),))
    scanned(listed_tier, listing(shard_map(10), loose, findings=(pointer,)))
    assert standing() == [("damage", "tier", listed_tier.pk)]
    assert Alert.objects.get().summary == (
        "The newest scan of nvme found damage beside its listed checkpoints: "
        "/ckpt/llama-70b/latest: pointer_dangling at /ckpt/llama-70b/latest (and 1 more)"
    )
    scanned(listed_tier, listing(shard_map(10)))
    assert standing() == []
