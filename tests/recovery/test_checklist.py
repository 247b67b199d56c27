"""The five validation steps: judged by their newest evidence, its age, and what it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import factories
import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints.evidence import add_evidence
from apps.checkpoints.models import Finding, Placement, TrainingRun
from apps.drills.models import Drill, DrillRung, RankResult
from apps.recovery.checklist import Evidence, Step, judge_all, score
from apps.recovery.checklist_evidence import Checklist, checklist
from apps.recovery.models import Incident, Recovery

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
WEEK = timedelta(days=7)


def evidence(days_ago: float, *, holds: bool = True) -> Evidence:
    at = NOW - timedelta(days=days_ago)
    return Evidence(source_kind="drill", source_id="drl_1", at=at, holds=holds, detail="seen", cure="mend it")


def test_age_makes_what_held_stale_and_heals_nothing_that_failed() -> None:
    found = {
        Step.CHAOS_NODE_FAILURE: evidence(7),
        Step.LINE_RATE_READ: evidence(7.01),
        Step.RANK_SHARD_PARALLELISM: evidence(40, holds=False),
        Step.INTEGRITY_HASHING: None,
    }
    steps = judge_all(found, NOW, WEEK)
    assert [one.verdict.value for one in steps] == ["passed", "stale", "failed", "missing", "missing"]
    assert [one.next_action != "" for one in steps] == [False, True, True, True, True]
    assert steps[2].next_action == "mend it"
    assert steps[1].age_seconds == pytest.approx(7.01 * 86_400)


def test_the_score_is_the_weighted_share_and_stays_within_0_and_100() -> None:
    assert score(judge_all({}, NOW, WEEK)) == 0
    assert score(judge_all({step: evidence(1) for step in Step}, NOW, WEEK)) == 100
    half = score(judge_all({step: evidence(8) for step in Step}, NOW, WEEK))
    assert half == 50
    steps = judge_all({Step.CHAOS_NODE_FAILURE: evidence(1)}, NOW, WEEK)
    assert score(steps) == pytest.approx(100 * steps[0].weight / sum(one.weight for one in steps))
    assert sum(one.points for one in steps) == steps[0].weight


@pytest.fixture
def run(db: None) -> TrainingRun:
    return factories.run(factories.cluster())


def drill(run: TrainingRun, kind: str, **fields: Any) -> Drill:
    now = timezone.now()
    defaults: dict[str, Any] = {"outcome": "passed", "state": "finished", "created_at": now, "finished_at": now}
    values = {**defaults, "seconds": 12.0, "requested_by": "olga", **fields}
    return Drill.objects.create(cluster=run.cluster, run=run, kind=kind, **values)


def reading(run: TrainingRun, clients: int = 2, cpu_seconds: float | None = 1.0, **fields: Any) -> Drill:
    facts = {"ceiling": {"bytes_per_second": 10e9, "client_count": clients}}
    values = {"bytes_per_second": 9e9, "jain_index": 0.99, "cached_ratio_before": 0.0, "facts": facts, **fields}
    made = drill(run, "reload", **values)
    rung = DrillRung.objects.create(drill=made, order=0, client_count=clients)
    for rank in range(clients):
        RankResult.objects.create(rung=rung, rank=rank, outcome="done", bytes=2e9, cpu_seconds=cpu_seconds)
    return made


def verdicts(found: Checklist) -> dict[str, str]:
    return {one.step.value: one.verdict.value for one in found.steps}


def judged(run: TrainingRun, step: Step) -> Any:
    return next(one for one in checklist(run).steps if one.step == step)


def test_a_run_that_nothing_is_known_of_has_five_missing_steps_each_with_something_to_do(run: TrainingRun) -> None:
    found = checklist(run)
    assert set(verdicts(found).values()) == {"missing"} and len(found.steps) == 5
    assert (found.passed, found.score) == (False, 0)
    assert all(one.next_action.endswith(".") for one in found.steps)


def test_a_run_with_all_five_passes_and_scores_100(run: TrainingRun) -> None:
    copy = factories.placement(run, factories.tier(run.cluster), trust="verified")
    proof = {"rung": Placement.Trust.VERIFIED, "source_kind": "audit", "source_id": "aud_1"}
    add_evidence(placement=copy, fingerprint=copy.fingerprint, detail={}, **proof)
    reading(run)
    drill(run, "failover")
    drill(factories.run(run.cluster, "other"), "standby")  # spares are the cluster's
    found = checklist(run)
    assert set(verdicts(found).values()) == {"passed"}
    assert (found.passed, found.score) == (True, 100)


def test_a_failover_that_restored_late_fails_and_a_later_real_recovery_in_time_passes(run: TrainingRun) -> None:
    run.rto_objective_seconds = 60
    run.save()
    drill(run, "failover", objective_seconds=60, objective_state="breached", seconds=99)
    assert judged(run, Step.CHAOS_NODE_FAILURE).verdict == "failed"
    now = timezone.now()
    incident = Incident.objects.create(run=run, fault_at=now, created_at=now)
    fields = {"time_to_resume_seconds": 50.0, "closed_at": now + timedelta(seconds=1), "created_at": now}
    Recovery.objects.create(incident=incident, state="closed", **fields)
    assert judged(run, Step.CHAOS_NODE_FAILURE).verdict == "passed"


def test_reading_from_memory_or_under_a_cap_is_no_evidence_of_line_rate(run: TrainingRun) -> None:
    reading(run, cached_ratio_before=0.9)
    reading(run, max_bytes_per_second=1_000_000)
    assert judged(run, Step.LINE_RATE_READ).verdict == "missing"


@pytest.mark.parametrize(
    ("fields", "verdict", "action"),
    [
        ({"bytes_per_second": 8.1e9}, "passed", ""),
        ({"bytes_per_second": 7.9e9}, "failed", "which client held it up"),
        ({"facts": {}}, "failed", "Measure the tier's ceiling"),
    ],
)
def test_line_rate_is_held_against_the_ceiling_with_as_many_clients(
    run: TrainingRun, fields: dict[str, Any], verdict: str, action: str
) -> None:
    reading(run, **fields)
    found = judged(run, Step.LINE_RATE_READ)
    assert (found.verdict, action in found.next_action) == (verdict, True)


def test_rank_shards_need_several_clients_their_cpu_time_and_a_sound_shape(run: TrainingRun) -> None:
    copy = factories.placement(run, factories.tier(run.cluster))
    reading(run, clients=1)
    assert judged(run, Step.RANK_SHARD_PARALLELISM).verdict == "missing"
    reading(run, cpu_seconds=None)
    assert judged(run, Step.RANK_SHARD_PARALLELISM).verdict == "failed"
    reading(run)
    found = judged(run, Step.RANK_SHARD_PARALLELISM)
    assert (found.verdict, "0.50 CPU s/GB" in found.detail) == ("passed", True)
    warning = {"severity": "warning", "detail": "one file", "cure": "split it", "found_at": timezone.now()}
    Finding.objects.create(placement=copy, code="monolithic", source_kind="scan", source_id="scn_1", **warning)
    found = judged(run, Step.RANK_SHARD_PARALLELISM)
    assert (found.verdict, "monolithic" in found.next_action) == ("failed", True)


def test_only_proof_of_the_copy_that_a_restart_would_take_counts(run: TrainingRun) -> None:
    tier = factories.tier(run.cluster)
    older = factories.placement(run, tier, 10, trust="verified")
    factories.placement(run, tier, 20)
    proof = {"rung": Placement.Trust.VERIFIED, "source_kind": "audit", "source_id": "aud_1", "detail": {}}
    add_evidence(placement=older, fingerprint=older.fingerprint, **proof)
    assert judged(run, Step.INTEGRITY_HASHING).verdict == "missing"


def test_the_api_gives_the_steps_and_takes_the_oldest_age(run: TrainingRun, client: Client) -> None:
    drill(run, "failover", finished_at=timezone.now() - timedelta(hours=2))
    bearer = {"Authorization": f"Bearer {factories.token(factories.user('vera', Role.VIEWER))}"}
    answer = client.get(f"/api/v1/runs/{run.name}/checklist", headers=bearer).json()
    assert [one["step"] for one in answer["steps"]] == list(Step)
    assert (answer["steps"][0]["verdict"], answer["steps"][0]["points"], answer["passed"]) == ("passed", 30, False)
    hour = client.get(f"/api/v1/runs/{run.name}/checklist?max_age_seconds=3600", headers=bearer).json()
    assert (hour["steps"][0]["verdict"], hour["score"]) == ("stale", 15)
    refused = client.get(f"/api/v1/runs/{run.name}/checklist?max_age_seconds=soon", headers=bearer)
    assert refused.status_code == 400


def test_the_checklist_costs_at_most_ten_queries(run: TrainingRun, django_assert_max_num_queries: Any) -> None:
    factories.placement(run, factories.tier(run.cluster))
    reading(run)
    drill(run, "failover")
    with django_assert_max_num_queries(10):
        checklist(run)
