"""Resume points, readiness, histories and incidents over REST."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from drill_agents import Yard, run_to_end
from rest_framework.test import APIClient

from apps.accounts.models import Role
from apps.checkpoints.models import RunAttempt, RunEvent, TrainingRun
from apps.drills import services
from apps.drills.models import Drill, DrillRung, RankResult
from apps.fleet.models import ClusterGrant
from apps.recovery.models import Incident, Recovery

pytestmark = pytest.mark.django_db


def client(role: Role = Role.VIEWER, name: str = "vera") -> APIClient:
    found = APIClient()
    found.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(factories.user(name, role), Role.ADMIN)}")
    return found


def stranger() -> APIClient:
    user = factories.user("stefan", Role.NONE)
    ClusterGrant.objects.create(user=user, cluster=factories.cluster("elsewhere"), role=Role.ADMIN)
    found = APIClient()
    found.credentials(HTTP_AUTHORIZATION=f"Bearer {factories.token(user, Role.ADMIN)}")
    return found


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster(), rto_objective_seconds=90.0)


def drill(run: TrainingRun, seconds: float | None = 70.0, **fields: Any) -> Drill:
    values: dict[str, Any] = {
        "kind": "failover",
        "state": "finished",
        "outcome": "passed",
        "objective_state": "met",
        "objective_seconds": 90.0,
        "seconds": seconds,
        "phases": {"detect": 1.0, "read": 30.0},
        "created_at": timezone.now(),
        "finished_at": timezone.now(),
    }
    return Drill.objects.create(cluster=run.cluster, run=run, **{**values, **fields})


def test_a_resume_point_has_the_shape_of_the_command_line(run: TrainingRun) -> None:
    factories.placement(run, factories.tier(run.cluster), 20)
    body = client().get("/api/v1/runs/llama-70b/resume-point").json()
    assert set(body) == {
        "outcome", "path", "step", "tier", "status", "trust", "as_of", "source", "predicted_seconds", "pointer",
        "skipped", "nearest_steps", "pointer_choice",
    }  # fmt: skip
    assert (body["outcome"], body["step"], body["tier"], body["source"]) == ("found", 20, "nvme", "server")
    assert body["predicted_seconds"] is None


def test_after_a_drill_the_resume_point_has_a_prediction(tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    yard.checkpoint()
    run_to_end(services.create_drill(run=yard.run, spec={"kind": "reload"}, actor="olga"), yard.agents)
    body = client().get(f"/api/v1/runs/{yard.run.pk}/resume-point").json()
    assert body["trust"] == "reloaded"
    assert 0 < body["predicted_seconds"] < 60


def test_nothing_resumable_is_an_answer_and_not_an_error(run: TrainingRun) -> None:
    factories.placement(run, factories.tier(run.cluster), 20, status="incomplete", resumable=False)
    reply = client().get("/api/v1/runs/llama-70b/resume-point")
    body = reply.json()
    assert (reply.status_code, body["outcome"], body["path"], body["step"]) == (200, "nothing_resumable", None, None)
    assert body["skipped"][0]["step"] == 20 and body["skipped"][0]["reasons"]


def test_evidence_is_added_on_request(run: TrainingRun) -> None:
    placement = factories.placement(run, factories.tier(run.cluster), 20)
    api = client()
    assert "evidence" not in api.get("/api/v1/runs/llama-70b/resume-point").json()
    [entry] = api.get("/api/v1/runs/llama-70b/resume-point?evidence=1").json()["evidence"]
    assert (entry["path"], entry["fingerprint"]) == (placement.path, placement.fingerprint)


def test_a_run_whose_name_has_a_slash_is_found_escaped(run: TrainingRun) -> None:
    factories.run(run.cluster, "team/model")
    assert client().get("/api/v1/runs/team%2Fmodel/resume-point").json()["outcome"] == "no_checkpoints"


@pytest.mark.parametrize("query", ["require=perfect", "step=ten", "max_age=soon", "colour=red"])
def test_a_bad_question_names_its_field(run: TrainingRun, query: str) -> None:
    reply = client().get(f"/api/v1/runs/llama-70b/resume-point?{query}")
    assert reply.status_code == 400
    assert reply.json()["errors"][0]["pointer"] == "/" + query.partition("=")[0]


def test_readiness_gives_the_worst_first_with_counts(run: TrainingRun) -> None:
    factories.placement(run, factories.tier(run.cluster), 20)
    factories.run(run.cluster, "empty")
    body = client().get("/api/v1/readiness").json()
    assert [item["run_name"] for item in body["items"]] == ["empty", "llama-70b"]
    assert body["by_verdict"] == {"nothing_resumable": 1, "not_proven": 1}
    assert body["items"][1]["decision"]["step"] == 20
    assert (body["items"][1]["ready"], body["items"][1]["last_drill"]) == (False, None)


def test_readiness_gives_the_parts_of_each_sentence_with_their_evidence_and_what_to_do(run: TrainingRun) -> None:
    tier = factories.tier(run.cluster)
    copy = factories.placement(run, tier, 20)
    body = client().get("/api/v1/readiness").json()
    [item] = body["items"]
    assert "".join(part["text"] for part in item["parts"]) == item["sentence"]
    evidence = {part["about"]: part["evidence"] for part in item["parts"] if part["about"]}
    assert evidence["checkpoint"] == {"kind": "checkpoint", "id": copy.checkpoint_id, "step": None}
    assert evidence["tier"] == {"kind": "tier", "id": tier.pk, "step": None}
    known = {part["about"]: part["known"] for part in item["parts"] if part["about"]}
    assert (known["time"], known["loss"]) == ("not_measured", "not_measured")
    assert item["next_action"] == {"action": "seal", "words": "Seal step 20", "step": 20}
    assert (item["back_seconds"], item["back_known"]) == (None, "not_measured")
    assert (body["fleet"]["run_count"], body["fleet"]["ready_count"], body["fleet"]["lost_cost"]) == (1, 0, None)
    assert body["undrilled"] == [{"run": run.pk, "run_name": run.name, "drilled_at": None}]


def test_the_history_holds_every_drill_of_the_kind_and_what_they_prove(run: TrainingRun) -> None:
    now = timezone.now()
    for number in range(21):
        drill(run, 60.0 + number, created_at=now - timedelta(hours=30 - number))
    drill(run, 120.0, objective_state="breached", created_at=now - timedelta(hours=2))
    drill(run, None, outcome="failed", objective_state="none", created_at=now - timedelta(hours=1))
    drill(run, outcome="skipped")
    drill(run, 3.0, kind="reload")
    body = client().get("/api/v1/rto-history?run=llama-70b").json()
    assert (body["kind"], body["is_storage_only"], len(body["points"])) == ("failover", False, 23)
    assert body["points"][0]["seconds"] == 60.0 and body["points"][-1]["outcome"] == "failed"
    assert body["points"][0]["phases"]["read"] == 30.0 and body["points"][0]["phases"]["verify"] is None
    numbers = body["statistics"]
    assert (numbers["count"], numbers["judged_count"], numbers["met_count"]) == (22, 23, 21)
    assert (numbers["breached_count"], numbers["failed_count"]) == (1, 1)
    assert numbers["p50_seconds"] == 70.5 and numbers["p95_seconds"] == 80.0 and numbers["p99_seconds"] is None
    assert numbers["max_seconds"] == 120.0
    assert numbers["more_passes_needed"] == 124 - 23
    assert 0.7 < numbers["met_ratio_low"] < 21 / 23 < numbers["met_ratio_high"] < 1
    assert numbers["regressed"] is True and numbers["regression_ratio"] > 1.25


def test_a_history_without_a_drill_claims_nothing(run: TrainingRun) -> None:
    body = client().get("/api/v1/rto-history?run=llama-70b&kind=reload").json()
    assert (body["points"], body["is_storage_only"]) == ([], True)
    assert (body["statistics"]["p50_seconds"], body["statistics"]["met_ratio_low"]) == (None, None)
    assert body["statistics"]["more_passes_needed"] == 59


def test_a_drill_with_another_cache_share_is_not_compared(run: TrainingRun) -> None:
    now = timezone.now()
    for number in range(5):
        drill(run, 10.0, kind="reload", cached_ratio_before=0.9, created_at=now - timedelta(hours=10 - number))
    drill(run, 60.0, kind="reload", cached_ratio_before=0.0)
    body = client().get("/api/v1/rto-history?run=llama-70b&kind=reload").json()
    assert body["statistics"]["regressed"] is False


def test_a_history_of_many_drills_costs_few_queries(run: TrainingRun) -> None:
    placement = factories.placement(run, factories.tier(run.cluster), 20)
    for _number in range(100):
        drill(run, placement=placement)
    api = client()
    with CaptureQueriesContext(connection) as queries:
        assert len(api.get("/api/v1/rto-history?run=llama-70b").json()["points"]) == 100
    assert len(queries) <= 6


def test_incidents_are_listed_with_their_recoveries(run: TrainingRun) -> None:
    now = timezone.now()
    attempt = RunAttempt.objects.create(run=run, launch_id="a1", started_at=now, last_report_at=now)
    incident = Incident.objects.create(run=run, ended_attempt=attempt, fault_at=now, created_at=now)
    Recovery.objects.create(incident=incident, phases={"read": 2.0}, created_at=now)
    api = client()
    [item] = api.get("/api/v1/incidents?state=open").json()["items"]
    assert (item["run_name"], item["launch_id"], item["recovery"]["state"]) == ("llama-70b", "a1", "open")
    assert item["recovery"]["phases"]["detect"] is None
    assert api.get("/api/v1/incidents?state=closed").json()["items"] == []
    assert api.get(f"/api/v1/incidents/{incident.pk}").json()["id"] == incident.pk


@pytest.mark.parametrize(
    "path", ["runs/{run}/resume-point", "rto-history?run={run}", "incidents/{incident}", "readiness", "incidents"]
)
def test_reading_needs_a_sign_in_and_the_cluster(run: TrainingRun, path: str) -> None:
    now = timezone.now()
    attempt = RunAttempt.objects.create(run=run, launch_id="a1", started_at=now, last_report_at=now)
    incident = Incident.objects.create(run=run, ended_attempt=attempt, fault_at=now, created_at=now)
    Recovery.objects.create(incident=incident, created_at=now)
    url = "/api/v1/" + path.format(run=run.pk, incident=incident.pk)
    assert APIClient().get(url).status_code == 401
    assert client().get(url).status_code == 200
    foreign = stranger().get(url)
    if "{" in path:
        assert foreign.status_code == 404
    else:
        assert (foreign.status_code, foreign.json()["items"]) == (200, [])


def test_drills_stand_side_by_side_by_run_tier_and_node_group(run: TrainingRun) -> None:
    other = factories.run(run.cluster, "moe")
    placement = factories.placement(run, factories.tier(run.cluster), 20)
    nodes = [factories.node(run.cluster, name) for name in ("gpu-1", "gpu-2", "old-1")]
    reload = drill(run, 60.0, kind="reload", placement=placement)
    drill(other, None, kind="reload", outcome="failed", objective_state="none")
    rung = DrillRung.objects.create(drill=reload, order=0, client_count=3)
    for number, (node, seconds) in enumerate(zip(nodes, (5.0, 7.0, 99.0), strict=True)):
        RankResult.objects.create(rung=rung, rank=number, node=node, task_id="t", outcome="done", seconds=seconds)
    api = client()

    def groups(by: str) -> dict[str, Any]:
        items = api.get(f"/api/v1/rto-groups?kind=reload&by={by}").json()["items"]
        return {item["name"]: item["statistics"] for item in items}

    assert {name: one["p50_seconds"] for name, one in groups("run").items()} == {"llama-70b": 60.0, "moe": None}
    assert groups("run")["moe"]["budget"] == {
        "trial_count": 1, "allowed": 1, "used": 1, "left": 0, "is_alarming": True,
    }  # fmt: skip
    assert list(groups("tier")) == ["nvme"]
    found = groups("node_group")
    assert {name: one["max_seconds"] for name, one in found.items()} == {"old": 99.0, "gpu": 7.0}
    assert (found["old"]["breached_count"], found["gpu"]["breached_count"]) == (1, 0)
    assert stranger().get("/api/v1/rto-groups?kind=reload").json()["items"] == []
    assert api.get("/api/v1/rto-groups?by=colour").status_code == 400


def test_a_regression_names_the_phase_to_blame(run: TrainingRun) -> None:
    now = timezone.now()
    for number in range(5):
        drill(run, 31.0, created_at=now - timedelta(hours=10 - number))
    drill(run, 61.0, phases={"detect": 1.0, "read": 60.0})
    numbers = client().get("/api/v1/rto-history?run=llama-70b").json()["statistics"]
    assert numbers["regressed"] is True
    assert numbers["regression_blame"] == {"phase": "read", "seconds": 60.0, "before_seconds": 30.0}


def save(run: TrainingRun, attempt: RunAttempt, step: int, took: float, minutes: int) -> None:
    """One save that two ranks reported; the slower took `took` seconds."""
    for rank, seconds in enumerate((took / 2, took)):
        for kind, mono in (("save_started", 100.0), ("save_finished", 100.0 + seconds)):
            RunEvent.objects.create(
                run=run,
                attempt=attempt,
                source=f"r{rank}",
                seq=RunEvent.objects.count(),
                kind=kind,
                at=timezone.now() - timedelta(minutes=minutes),
                mono_seconds=mono,
                rank=rank,
                step=step,
            )


def test_advice_measures_saves_failures_and_restarts_and_says_so(run: TrainingRun) -> None:
    now = timezone.now()
    TrainingRun.objects.filter(pk=run.pk).update(gpu_count=64)
    attempt = RunAttempt.objects.create(
        run=run, launch_id="a1", started_at=now - timedelta(hours=30), last_report_at=now, last_step=9
    )
    Incident.objects.create(run=run, ended_attempt=attempt, fault_at=now, created_at=now)
    for number in range(4):
        save(run, attempt, 10 + number, 12.0, 90 - 30 * number)
    drill(run, 70.0)
    drill(run, 80.0)
    body = client().get("/api/v1/advice?run=llama-70b&gpu_hour_cost=2").json()
    sources = {name: (one["value"], one["source"]) for name, one in body["inputs"].items()}
    assert sources["save_seconds"] == (12.0, "measured")
    assert sources["interval_seconds"] == (pytest.approx(1800, abs=5), "measured")
    assert sources["resume_seconds"] == (75.0, "measured")
    assert sources["objective_seconds"] == (90.0, "given") and sources["gpu_count"] == (64.0, "given")
    assert sources["gpus_per_node"] == (8.0, "assumed") and sources["gpu_hour_cost"] == (2.0, "given")
    assert (body["mtbf"]["value"], body["mtbf"]["source"]) == (pytest.approx(30 * 3600, abs=5), "measured")
    assert body["today"]["gpu_hours_per_failure"] == pytest.approx(64 * (75 + 900) / 3600, rel=0.01)
    assert body["today"]["cost_per_month"] > 0 and body["spare_node_count"] >= 1


def test_advice_about_a_run_of_which_nothing_is_known_says_what_is_missing(run: TrainingRun) -> None:
    body = client().get("/api/v1/advice?run=llama-70b").json()
    assert {name for name, one in body["inputs"].items() if one["source"] == "missing"} == {
        "gpu_count", "gpu_hour_cost", "save_seconds", "whole_save_seconds", "interval_seconds", "resume_seconds",
    }  # fmt: skip
    assert all(one["how"] for one in body["inputs"].values())
    assert (body["interval"]["advised_seconds"], body["today"]["cost_per_month"]) == (None, None)
    assert client(name="vera2").get("/api/v1/advice?run=llama-70b&gpu_count=none").status_code == 400
