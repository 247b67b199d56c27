"""Readiness rows from real rows, and what they cost."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints.models import Placement, RunAttempt, RunEvent, StepReport, TrainingRun
from apps.drills.models import Drill
from apps.fleet.models import ClusterGrant
from apps.recovery.models import Incident, Recovery
from apps.recovery.readiness import readiness_rows, row_of
from apps.storage.models import TierCeiling

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_of_viewer() -> Any:
    return SimpleNamespace(user=factories.user("vera", Role.VIEWER), auth=None)


def drill(run: TrainingRun, placement: Placement, **fields: Any) -> Drill:
    now = timezone.now()
    values: dict[str, Any] = {
        "kind": "reload",
        "state": "finished",
        "outcome": "passed",
        "objective_state": "met",
        "seconds": 5.0,
        "total_bytes": placement.total_bytes,
        "phases": {"read": 4.0, "verify": 1.0},
        "created_at": now - timedelta(hours=1),
        "finished_at": now - timedelta(minutes=50),
    }
    return Drill.objects.create(cluster=run.cluster, run=run, placement=placement, **{**values, **fields})


def failover(run: TrainingRun, placement: Placement, **fields: Any) -> Drill:
    return drill(
        run, placement, **{"kind": "failover", "seconds": 60.0, "phases": {"read": 4.0, "launch": 56.0}, **fields}
    )


def save(run: TrainingRun, step: int, ago: timedelta, seq: int = 1) -> None:
    at = timezone.now() - ago
    attempt, _ = RunAttempt.objects.get_or_create(
        run=run, launch_id="a1", defaults={"started_at": at, "last_report_at": at}
    )
    RunEvent.objects.create(
        run=run, attempt=attempt, source="s", seq=seq, kind="save_finished", at=at, mono_seconds=0.0, step=step
    )


def proven(run: TrainingRun, tier: Any, step: int = 10, **fields: Any) -> Placement:
    from apps.checkpoints.models import TrustEvidence

    row = factories.placement(run, tier, step, trust="verified", trust_at=timezone.now(), **fields)
    TrustEvidence.objects.create(
        placement=row,
        rung="verified",
        source_kind="audit",
        source_id="aud_1",
        fingerprint=row.fingerprint,
        at=timezone.now(),
    )
    return row


def test_a_proven_run_whose_reading_was_drilled_has_its_numbers(request_of_viewer: Any) -> None:
    cluster = factories.cluster(gpu_hour_cost=Decimal("3.6"))
    run = factories.run(cluster, rto_objective_seconds=90.0, gpu_count=100)
    placement = proven(run, factories.tier(cluster))
    last = drill(run, placement)
    now = timezone.now()
    attempt = RunAttempt.objects.create(
        run=run, launch_id="a1", last_step=25, started_at=now - timedelta(hours=1), last_report_at=now
    )
    StepReport.objects.create(attempt=attempt, step=10, at=now - timedelta(seconds=40))
    StepReport.objects.create(attempt=attempt, step=25, at=now - timedelta(seconds=10))
    [row] = readiness_rows(request_of_viewer)
    assert (row.verdict, row.decision.step, row.placement, row.drill) == ("restart_untimed", 10, placement, last)
    assert row.predicted_seconds == pytest.approx(5.0)
    assert (row.lost_steps, row.lost_seconds) == (15, pytest.approx(30.0))
    assert row.lost_cost == pytest.approx(100 * 30 / 3600 * 3.6)
    assert "predicted 5.0 s for the storage part, the rest not measured" in row.sentence


def test_a_timed_restart_makes_a_proven_run_ready_however_newer_its_reload(request_of_viewer: Any) -> None:
    run = factories.run(factories.cluster(), rto_objective_seconds=90.0)
    placement = proven(run, factories.tier(run.cluster))
    failover(run, placement, created_at=timezone.now() - timedelta(days=2))
    last = drill(run, placement)
    [row] = readiness_rows(request_of_viewer)
    assert (row.verdict, row.drill, row.restart_seconds) == ("ready", last, 60.0)


def test_a_real_recovery_times_the_restart_and_the_newest_one_counts(request_of_viewer: Any) -> None:
    run = factories.run(factories.cluster(), rto_objective_seconds=90.0)
    placement = proven(run, factories.tier(run.cluster))
    failover(run, placement, finished_at=timezone.now() - timedelta(days=2))
    now = timezone.now()
    ended = RunAttempt.objects.create(run=run, launch_id="dead", started_at=now, last_report_at=now)
    incident = Incident.objects.create(run=run, ended_attempt=ended, fault_at=now, created_at=now)
    recovery = Recovery.objects.create(
        incident=incident, state="closed", time_to_resume_seconds=95.0, created_at=now, closed_at=now
    )
    [row] = readiness_rows(request_of_viewer)
    assert (row.verdict, row.restart_seconds) == ("breached", 95.0)
    Recovery.objects.filter(pk=recovery.pk).update(state="open", time_to_resume_seconds=None)
    [row] = readiness_rows(request_of_viewer)
    assert (row.verdict, row.restart_seconds) == ("ready", 60.0)


def test_a_save_that_no_scan_has_found_is_told_and_then_counts(request_of_viewer: Any) -> None:
    run = factories.run(factories.cluster())
    failover(run, proven(run, factories.tier(run.cluster)))
    save(run, 30, timedelta(seconds=1))
    [row] = readiness_rows(request_of_viewer)
    assert (row.verdict, row.newest_saved_step, row.inventory_at) == ("ready", 30, row.placement.last_seen_at)
    assert "Step 30 was saved just now and is not inventoried" not in row.sentence, "it was inventoried after the save"
    Placement.objects.update(last_seen_at=timezone.now() - timedelta(minutes=5))
    RunEvent.objects.update(at=timezone.now() - timedelta(minutes=3))
    [row] = readiness_rows(request_of_viewer)
    assert row.verdict == "stale_proof" and "Step 30 was saved 3 min ago and is not inventoried yet." in row.sentence
    factories.placement(run, Placement.objects.get().tier, 30)
    [row] = readiness_rows(request_of_viewer)
    assert row.verdict == "not_proven" and "inventoried yet" not in row.sentence
    assert "the newest proven is step 10, which would lose 20 more steps" in row.sentence


def test_an_old_inventory_is_no_proof(request_of_viewer: Any, settings: Any) -> None:
    run = factories.run(factories.cluster())
    failover(run, proven(run, factories.tier(run.cluster)))
    Placement.objects.update(last_seen_at=timezone.now() - timedelta(minutes=16))
    assert readiness_rows(request_of_viewer)[0].verdict == "stale_proof"
    settings.SCAN_SECONDS = 600
    assert readiness_rows(request_of_viewer)[0].verdict == "ready"
    settings.SCAN_SECONDS = 0
    assert readiness_rows(request_of_viewer)[0].verdict == "stale_proof"


def test_without_an_answer_the_inventory_is_that_of_any_copy(request_of_viewer: Any) -> None:
    run = factories.run(factories.cluster())
    placement = factories.placement(run, factories.tier(run.cluster), status="incomplete", resumable=False)
    factories.run(run.cluster, "nothing-known")
    known = {row.run.name: row.inventory_at for row in readiness_rows(request_of_viewer)}
    assert known == {run.name: placement.last_seen_at, "nothing-known": None}


def test_a_measured_ceiling_of_the_tier_makes_the_floor(request_of_viewer: Any) -> None:
    cluster = factories.cluster()
    run, tier = factories.run(cluster), factories.tier(cluster)
    placement = proven(run, tier)
    drill(run, placement)
    TierCeiling.objects.create(
        tier=tier, bytes_per_second=4000, client_count=4, method="fio", measured_at=timezone.now()
    )
    [row] = readiness_rows(request_of_viewer)
    assert row.predicted_phases == {"read": pytest.approx(1.0), "verify": 1.0}


def test_a_run_that_was_never_drilled_has_no_prediction(request_of_viewer: Any) -> None:
    cluster = factories.cluster()
    proven(factories.run(cluster), factories.tier(cluster))
    [row] = readiness_rows(request_of_viewer)
    assert (row.verdict, row.predicted_seconds, row.drill) == ("never_drilled", None, None)


def test_a_skipped_drill_says_nothing_about_the_run(request_of_viewer: Any) -> None:
    cluster = factories.cluster()
    run = factories.run(cluster)
    drill(run, proven(run, factories.tier(cluster)), outcome="skipped", seconds=None, phases={})
    [row] = readiness_rows(request_of_viewer)
    assert row.verdict == "never_drilled"


def test_a_drill_that_restores_nothing_of_the_run_does_not_judge_it(request_of_viewer: Any) -> None:
    run = factories.run(factories.cluster(), rto_objective_seconds=90.0)
    placement = proven(run, factories.tier(run.cluster))
    last = failover(run, placement, created_at=timezone.now() - timedelta(days=2))
    for kind in ("standby", "bandwidth"):
        drill(run, placement, kind=kind, outcome="failed")
    [row] = readiness_rows(request_of_viewer)
    assert (row.verdict, row.drill) == ("ready", last)


def test_the_worst_comes_first_and_archived_runs_not_at_all(request_of_viewer: Any) -> None:
    cluster = factories.cluster()
    tier = factories.tier(cluster)
    good = factories.run(cluster, "good")
    failover(good, proven(good, tier))
    factories.placement(factories.run(cluster, "unproven"), tier)
    factories.run(cluster, "empty")
    factories.run(cluster, "old", archived_at=timezone.now())
    rows = readiness_rows(request_of_viewer)
    assert [(row.run.name, row.verdict.value) for row in rows] == [
        ("empty", "nothing_resumable"),
        ("unproven", "not_proven"),
        ("good", "ready"),
    ]


def test_runs_of_clusters_that_the_user_may_not_see_are_not_there() -> None:
    east, west = factories.cluster("east"), factories.cluster("west")
    factories.run(east, "mine")
    factories.run(west, "theirs")
    user = factories.user("gustav", Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=east, role=Role.VIEWER)
    rows = readiness_rows(SimpleNamespace(user=user, auth=None))
    assert [row.run.name for row in rows] == ["mine"]


@pytest.mark.parametrize("count", [1, 30])
def test_the_number_of_queries_does_not_grow_with_the_runs(request_of_viewer: Any, count: int) -> None:
    cluster = factories.cluster()
    tier = factories.tier(cluster)
    for number in range(count):
        run = factories.run(cluster, f"run-{number}")
        for step in (10, 20):
            drill(run, proven(run, tier, step))
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert len(readiness_rows(request_of_viewer)) == count
    assert len(queries) <= 8, [query["sql"][:80] for query in queries]


def test_one_run_is_judged_like_all(request_of_viewer: Any) -> None:
    cluster = factories.cluster()
    run = factories.run(cluster)
    drill(run, proven(run, factories.tier(cluster)))
    [row] = readiness_rows(request_of_viewer)
    assert row_of(run).sentence == row.sentence
