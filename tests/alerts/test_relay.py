"""Changes of drills, agents, audits, scans and transfers become events for the webhooks that asked for them, once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.alerts import relay
from apps.alerts.models import Channel, Event
from apps.audits.models import Audit
from apps.checkpoints.models import Checkpoint, InventoryScan, Placement, TrainingRun
from apps.core.models import Transition
from apps.core.transitions import record, transition
from apps.drills import finish
from apps.drills.models import Drill
from apps.fleet.models import Agent
from apps.storage.models import StorageTier
from apps.transfers.models import Transfer

pytestmark = pytest.mark.django_db
URL = "https://93.184.215.14/hook"


@pytest.fixture
def run() -> TrainingRun:
    Transition.objects.all().delete()
    return factories.run(factories.cluster())


@pytest.fixture
def hook(channel: Callable[..., Channel]) -> Channel:
    return channel(target=URL, event_types=["*"])


def drill(run: TrainingRun, **fields: Any) -> Drill:
    values = {"kind": "reload", "state": "running", "created_at": timezone.now()}
    return Drill.objects.create(cluster=run.cluster, run=run, **{**values, **fields})


def events() -> list[str]:
    relay.relay()
    return list(Event.objects.order_by("pk").values_list("type", flat=True))


@pytest.mark.parametrize(
    ("outcome", "objective", "told"),
    [
        ("passed", "met", "drill.passed"),
        ("passed", "breached", "drill.breached"),
        ("failed", "none", "drill.failed"),
        ("lost", "none", "drill.lost"),
        ("cancelled", "none", "drill.cancelled"),
        ("skipped", "none", "drill.skipped"),
    ],
)
def test_the_end_of_a_drill_is_told_with_its_outcome(
    run: TrainingRun, hook: Channel, outcome: str, objective: str, told: str
) -> None:
    one = drill(run, objective_state=objective, seconds=95.0, objective_seconds=90.0)
    finish.finish(one, Drill.Outcome(outcome), "the reason: of it")
    assert [one for one in events() if one.startswith("drill.")] == [told]
    event = Event.objects.get(type=told)
    assert (event.subject, event.cluster_id) == (f"drill/{one.pk}", run.cluster_id)
    assert event.data["seconds"] == 95.0 and event.data["run_name"] == "llama-70b"
    assert "the reason: of it" in event.data["summary"]


def test_agents_that_are_lost_and_come_back_are_told(run: TrainingRun, hook: Channel) -> None:
    agent = factories.agent(factories.node(run.cluster))
    transition(agent, old="online", new=Agent.State.STALE)
    transition(agent, old="stale", new=Agent.State.LOST, reason="no poll for 301 s")
    transition(agent, old="lost", new=Agent.State.ONLINE)
    assert events() == ["agent.lost", "agent.recovered"]


def test_audits_tell_of_proven_and_of_damaged_checkpoints(run: TrainingRun, hook: Channel) -> None:
    copy = factories.placement(run, factories.tier(run.cluster))
    for mode, outcome, ratio in (
        ("verify", "passed", 1.0),
        ("verify", "passed", 0.1),
        ("seal", "passed", 1.0),
        ("verify", "damaged", 0.1),
        ("verify", "failed", 1.0),
    ):
        audit = Audit.objects.create(
            placement=copy, mode=mode, outcome=outcome, sample_ratio=ratio, state="running", requested_by="x",
            created_at=timezone.now(),
        )  # fmt: skip
        transition(audit, old="running", new="finished")
    assert events() == ["checkpoint.verified", "checkpoint.corrupt"], "a sample proves no whole checkpoint"


def test_scans_are_told_by_how_they_ended(run: TrainingRun, hook: Channel) -> None:
    tier = factories.tier(run.cluster)
    for end in ("finished", "failed"):
        scan = InventoryScan.objects.create(
            tier=tier, root="/ckpt", state="running", requested_by="x", created_at=timezone.now()
        )
        transition(scan, old="running", new=end)
    assert events() == ["scan.finished", "scan.failed"]


def test_what_no_channel_asked_for_leaves_no_row(run: TrainingRun, channel: Callable[..., Channel]) -> None:
    channel(target=URL, event_types=["drill.failed"])
    finish.finish(drill(run), Drill.Outcome.PASSED, "")
    assert events() == []
    assert not Transition.objects.filter(processed_at=None).exists()
    finish.finish(drill(run), Drill.Outcome.FAILED, "x")
    assert events() == ["drill.failed"]


def test_a_change_is_looked_at_once_and_one_whose_row_is_gone_does_no_harm(run: TrainingRun, hook: Channel) -> None:
    finish.finish(drill(run), Drill.Outcome.FAILED, "x")
    record("drill", "drl_gone", old="running", new="finished", reason="failed: x")
    assert events() == events() == ["drill.failed"]
    assert relay.relay() == 0


def test_a_webhook_of_another_cluster_is_not_told(run: TrainingRun, channel: Callable[..., Channel]) -> None:
    channel(target=URL, event_types=["*"], clusters=[factories.cluster("west")])
    finish.finish(drill(run), Drill.Outcome.FAILED, "x")
    assert events() == []


@pytest.mark.django_db(transaction=True)
def test_two_beats_at_once_tell_each_change_once(channel: Callable[..., Channel]) -> None:
    run = factories.run(factories.cluster())
    channel(target=URL, event_types=["drill.*"])
    for _number in range(6):
        finish.finish(drill(run), Drill.Outcome.FAILED, "x")

    def one() -> None:
        try:
            relay.relay()
        finally:
            connection.close()

    beats = [threading.Thread(target=one) for _ in range(3)]
    for beat in beats:
        beat.start()
    for beat in beats:
        beat.join()
    assert Event.objects.count() == 6
    assert not Transition.objects.filter(processed_at=None).exists()


# -- checkpoints and objectives ----------------------------------------------------------------------------------------
def seen(run: TrainingRun, old: str, new: str, **fields: Any) -> Placement:
    """A copy with the change that a scan writes."""
    fields.setdefault("tier", StorageTier.objects.filter(cluster=run.cluster).first() or factories.tier(run.cluster))
    copy = factories.placement(run, fields.pop("tier"), **fields)
    record("placement", copy.pk, old=old, new=new, reason="seen by scn_1")
    return copy


def test_a_checkpoint_is_told_once_when_known_and_once_when_complete(run: TrainingRun, hook: Channel) -> None:
    copy = seen(run, "", "in_progress", status="in_progress")
    assert events() == ["checkpoint.registered"]
    record("placement", copy.pk, old="in_progress", new="complete")
    assert events() == ["checkpoint.registered", "checkpoint.completed"]
    event = Event.objects.get(type="checkpoint.completed")
    assert (event.subject, event.cluster_id) == (f"checkpoint/{copy.checkpoint_id}", run.cluster_id)
    assert event.data["summary"] == f"Step {copy.checkpoint.step} of llama-70b is complete on {copy.tier.name}."
    assert (event.data["run"], event.data["placement"], event.data["status"]) == (run.pk, copy.pk, "complete")
    record("placement", copy.pk, old="missing", new="complete")
    seen(run, "", "complete", tier=factories.tier(run.cluster, "nas", "/nas"))
    assert len(events()) == 2, "a copy that is back, or made elsewhere, is no new checkpoint"


def test_a_save_that_is_seen_complete_at_once_is_both(run: TrainingRun, hook: Channel) -> None:
    seen(run, "", "complete")
    assert events() == ["checkpoint.registered", "checkpoint.completed"]


def test_what_the_first_inventory_finds_from_long_ago_is_no_news(run: TrainingRun, hook: Channel) -> None:
    copy = factories.placement(run, factories.tier(run.cluster))
    Checkpoint.objects.update(saved_at=timezone.now() - timedelta(days=2))
    record("placement", copy.pk, old="", new="complete")
    assert events() == []


def test_a_copy_that_a_policy_lets_go_is_told_with_what_is_left(run: TrainingRun, hook: Channel) -> None:
    tier, cold = factories.tier(run.cluster), factories.tier(run.cluster, "nas", "/nas")
    copy = factories.placement(run, tier)
    factories.placement(run, cold)
    for kind, told in (("move", ["transfer.completed"]), ("expire", ["transfer.completed", "checkpoint.expired"])):
        transfer = Transfer.objects.create(
            cluster=run.cluster, checkpoint=copy.checkpoint, kind=kind, source=copy, state="retiring",
            requested_by="x", created_at=timezone.now(),
        )  # fmt: skip
        Event.objects.all().delete()
        transition(transfer, old="retiring", new="done")
        assert events() == told
    event = Event.objects.get(type="checkpoint.expired")
    assert event.data["copy_count"] == 1
    assert "has expired; 1 of its copies are left." in event.data["summary"]


def test_an_objective_is_told_when_it_turns_and_not_with_every_drill(run: TrainingRun, hook: Channel) -> None:
    for state in ("met", "breached", "breached", "none", "met", "met"):
        finish.finish(drill(run, objective_state=state), Drill.Outcome.PASSED, "")
        finish.finish(drill(run, objective_state="met", kind="herd"), Drill.Outcome.PASSED, "")
    told = [one for one in events() if one.startswith("objective.")]
    assert told == ["objective.breached", "objective.recovered"]
    assert set(Event.objects.filter(type__startswith="objective.").values_list("subject", flat=True)) == {
        f"run/{run.pk}"
    }


def test_the_row_of_a_change_is_read_once(run: TrainingRun, channel: Callable[..., Channel]) -> None:
    channel(target=URL, event_types=["drill.*"])
    finish.finish(drill(run, objective_state="none"), Drill.Outcome.PASSED, "")
    with CaptureQueriesContext(connection) as queries:
        relay.relay()
    assert sum('FROM "drills_drill"' in one["sql"] for one in queries if '"drills_drill"."id" =' in one["sql"]) == 1
