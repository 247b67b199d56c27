"""REST: runs, checkpoints, placements, findings, scans; who may see and do what."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from listings import finding, listing, scanned, shard_map
from rest import Caller, caller, granted

from apps.accounts.models import ActivityEntry, Role
from apps.checkpoints import evidence
from apps.checkpoints.models import Checkpoint, Finding, InventoryScan, Placement, RunAttempt, StepReport, TrainingRun
from apps.fleet.models import AgentTask

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


@pytest.fixture
def tier(run: TrainingRun) -> Any:
    factories.agent(factories.node(run.cluster))
    return factories.tier(run.cluster)


@pytest.fixture
def viewer() -> Caller:
    return caller(Role.VIEWER)


def steps(reply: Any) -> list[int]:
    assert reply.status_code == 200, reply.content
    return [item["step"] for item in reply.json()["items"]]


def test_a_run_is_found_by_id_and_by_name(run: TrainingRun, viewer: Caller) -> None:
    by_id, by_name = viewer.get(f"runs/{run.pk}"), viewer.get("runs/llama-70b/")
    assert by_id.json() == by_name.json() and by_id.json()["cluster_name"] == "east"
    assert viewer.get("runs/nobody").status_code == 404
    assert viewer.get("runs/a%00b").status_code == 400


def test_a_name_that_two_clusters_have_is_a_conflict_that_names_them(run: TrainingRun, viewer: Caller) -> None:
    other = factories.run(factories.cluster("west"))
    reply = viewer.get("runs/llama-70b")
    assert reply.status_code == 409
    for part in ("east", "west", run.pk, other.pk):
        assert part in reply.json()["detail"]
    mine = granted(run.cluster, Role.VIEWER)
    assert mine.get("runs/llama-70b").json()["id"] == run.pk, "what cannot be seen is not ambiguous"


def test_objectives_are_set_by_operators_and_logged(run: TrainingRun) -> None:
    reply = caller(Role.OPERATOR).patch("runs/llama-70b", {"rto_objective_seconds": 900, "gpu_count": 512})
    assert reply.status_code == 200 and reply.json()["rto_objective_seconds"] == 900.0
    run.refresh_from_db()
    assert (run.rto_objective_seconds, run.gpu_count) == (900.0, 512)
    assert ActivityEntry.objects.get(action="run.update").detail == {"rto_objective_seconds": 900.0, "gpu_count": 512}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"rto_objective_seconds": -1}, "/rto_objective_seconds"),
        ({"rpo_objective_seconds": 0}, "/rpo_objective_seconds"),
        ({"gpu_count": 0}, "/gpu_count"),
        ({"rto": 5}, "/rto"),
    ],
)
def test_a_bad_objective_is_refused_with_a_pointer(run: TrainingRun, body: Any, pointer: str) -> None:
    reply = caller(Role.OPERATOR).patch("runs/llama-70b", body)
    assert reply.status_code in (400, 422)
    assert reply["Content-Type"].startswith("application/problem+json")
    assert reply.json()["errors"][0]["pointer"] == pointer


def test_an_archived_run_can_be_filtered_out_and_brought_back(run: TrainingRun) -> None:
    operator = caller(Role.OPERATOR)
    factories.run(run.cluster, "other")
    assert operator.patch("runs/llama-70b", {"archived": True}).json()["archived_at"] is not None
    assert [item["name"] for item in operator.get("runs", archived="false").json()["items"]] == ["other"]
    assert operator.patch("runs/llama-70b", {"archived": False}).json()["archived_at"] is None


def test_steps_and_attempts_of_a_run_are_listed_newest_first(run: TrainingRun, viewer: Caller) -> None:
    now = timezone.now()
    attempt = RunAttempt.objects.create(run=run, launch_id="l-1", started_at=now, last_report_at=now)
    for step in (1, 2, 3):
        StepReport.objects.create(attempt=attempt, step=step, at=now.replace(microsecond=step), loss=1.0 / step)
    assert steps(viewer.get("runs/llama-70b/steps")) == [3, 2, 1]
    assert viewer.get(f"runs/{run.pk}/attempts").json()["items"][0]["launch_id"] == "l-1"
    assert viewer.get("runs/nobody/steps").status_code == 404


def test_a_checkpoint_shows_its_copies(run: TrainingRun, tier: Any, viewer: Caller) -> None:
    slow = factories.tier(run.cluster, "nas", "/nas", speed_order=9)
    factories.placement(run, slow, 10)
    factories.placement(run, tier, 10, trust="verified")
    checkpoint = Checkpoint.objects.get()
    body = viewer.get(f"checkpoints/{checkpoint.pk}").json()
    assert (body["run_name"], body["cluster_name"], body["step"]) == ("llama-70b", "east", 10)
    assert [(copy["tier_name"], copy["trust"]) for copy in body["placements"]] == [
        ("nvme", "verified"),
        ("nas", "complete"),
    ]


def test_checkpoints_are_filtered_by_everything_that_matters(run: TrainingRun, tier: Any, viewer: Caller) -> None:
    factories.placement(run, tier, 10, trust="verified")
    factories.placement(run, tier, 20, status="corrupt")
    west = factories.cluster("west")
    factories.placement(factories.run(west, "other"), factories.tier(west), 30, status="missing", trust="listed")
    for query, expected in (
        ({"run": run.pk}, [20, 10]),
        ({"run": "other"}, [30]),
        ({"cluster": "east"}, [20, 10]),
        ({"cluster": west.pk}, [30]),
        ({"status": "corrupt"}, [20]),
        ({"status": "corrupt,missing"}, [30, 20]),
        ({"trust": "verified"}, [10]),
        ({"at_least": "complete"}, [20, 10]),
        ({"tier": tier.pk, "step": 20}, [20]),
        ({"format": "safetensors"}, [30, 20, 10]),
        ({"format": "dcp"}, []),
        ({"sort": "step"}, [10, 20, 30]),
    ):
        assert steps(viewer.get("checkpoints", **query)) == expected, query


@pytest.mark.parametrize(
    "query", [{"status": "fine"}, {"at_least": "much"}, {"step": "x"}, {"sort": "path"}, {"cursor": "x"}]
)
def test_a_filter_that_makes_no_sense_is_400(viewer: Caller, query: dict[str, str]) -> None:
    reply = viewer.get("checkpoints", **query)
    assert reply.status_code == 400 and reply.json()["errors"][0]["pointer"] == f"/{next(iter(query))}"


@pytest.mark.parametrize(
    ("path", "query", "words"),
    [
        ("checkpoints", {"format": "safetensor"}, {"safetensors", "dcp", "unknown"}),
        ("stepless-checkpoints", {"format": "pt"}, {"torch_save", "gguf"}),
        ("checkpoints", {"status": "complete,fine"}, {"complete", "missing"}),
        ("findings", {"code": "shards_missing"}, {"shard_missing", "uncommitted"}),
        ("findings", {"source_kind": "scans"}, {"scan", "audit", "drill"}),
        ("tasks/", {"kind": "inventories"}, {"inventory", "reload"}),
    ],
)
def test_a_word_that_a_filter_does_not_know_is_400_and_those_that_it_knows_are_named(
    viewer: Caller, path: str, query: dict[str, str], words: set[str]
) -> None:
    reply = viewer.get(path, **query)
    assert reply.status_code == 400
    said = reply.json()["errors"][0]["detail"]
    assert words <= set(said.rpartition("one of ")[2].rstrip(".").split(", ")), said


def test_shards_placements_evidence_and_findings_have_their_lists(tier: Any, viewer: Caller) -> None:
    scanned(tier, listing(shard_map(10, findings=(finding(),))))
    checkpoint, placement = Checkpoint.objects.get(), Placement.objects.get()
    evidence.add_evidence(
        placement=placement, rung="sealed", source_kind="audit", source_id="aud_1", fingerprint=placement.fingerprint
    )
    for owner in (f"checkpoints/{checkpoint.pk}", f"placements/{placement.pk}"):
        body = viewer.get(f"{owner}/shards", limit=3).json()
        assert [item["rank"] for item in body["items"]] == [0, 1, 2] and body["total"] == {"value": 4, "relation": "eq"}
        again = viewer.get(f"{owner}/shards", limit=3, cursor=body["next_cursor"]).json()
        assert [item["rank"] for item in again["items"]] == [3]
    assert viewer.get(f"checkpoints/{checkpoint.pk}/placements").json()["items"][0]["id"] == placement.pk
    assert viewer.get(f"checkpoints/{checkpoint.pk}/findings").json()["items"][0]["cure"] == "Do this."
    assert viewer.get(f"placements/{placement.pk}").json()["trust"] == "sealed"
    proof = viewer.get(f"placements/{placement.pk}/evidence").json()["items"][0]
    assert (proof["rung"], proof["source_id"], proof["voided_at"]) == ("sealed", "aud_1", None)
    assert viewer.get("checkpoints/ckp_none/shards").status_code == 404


def test_findings_can_be_narrowed(tier: Any, viewer: Caller) -> None:
    scanned(tier, listing(shard_map(10, findings=(finding(), finding("rng_missing", "note")))))
    Finding.objects.filter(code="rng_missing").update(resolved_at=timezone.now())
    for query, codes in (
        ({}, {"shard_orphaned", "rng_missing"}),
        ({"open": "true"}, {"shard_orphaned"}),
        ({"open": "false"}, {"rng_missing"}),
        ({"severity": "damage,note"}, {"rng_missing"}),
        ({"run": "llama-70b", "code": "shard_orphaned"}, {"shard_orphaned"}),
        ({"placement": "plc_none"}, set()),
    ):
        assert {item["code"] for item in viewer.get("findings", **query).json()["items"]} == codes, query


def test_a_scan_is_started_watched_and_cancelled_over_rest(tier: Any) -> None:
    operator = caller(Role.OPERATOR)
    reply = operator.post("scans", {"tier": tier.pk, "root": "/ckpt/llama"})
    assert reply.status_code == 201 and reply.json()["state"] == "queued"
    scan_id = reply.json()["id"]
    assert operator.get("scans", state="queued,running").json()["items"][0]["id"] == scan_id
    assert operator.get(f"scans/{scan_id}").json()["root"] == "/ckpt/llama"
    assert operator.post(f"scans/{scan_id}/cancel").json()["state"] == "cancelled"
    again = operator.post(f"scans/{scan_id}/cancel")
    assert again.status_code == 409 and "ended already" in again.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 400, "/tier"),
        ({"tier": "tir_none"}, 422, "/tier"),
        ({"tier": "REAL", "root": "/etc"}, 422, "/root"),
        ({"tier": "REAL", "agent": "agt_none"}, 422, "/agent"),
        ({"tier": "REAL", "path": "/ckpt"}, 400, "/path"),
    ],
)
def test_a_bad_scan_request_is_refused_and_starts_nothing(tier: Any, body: Any, status: int, pointer: str) -> None:
    body = {**body, **({"tier": tier.pk} if body.get("tier") == "REAL" else {})}
    reply = caller(Role.OPERATOR).post("scans", body)
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (status, pointer)
    assert not InventoryScan.objects.exists() and not AgentTask.objects.exists()


# -- who may ----------------------------------------------------------------------------------------------------------
def test_viewers_read_and_do_not_act(run: TrainingRun, tier: Any, viewer: Caller) -> None:
    assert viewer.patch("runs/llama-70b", {"gpu_count": 1}).status_code == 403
    reply = viewer.post("scans", {"tier": tier.pk})
    assert reply.status_code == 403 and "operator" in reply.json()["detail"]
    scan = InventoryScan.objects.create(
        tier=tier, agent=run.cluster.nodes.get().agent, root="/ckpt", created_at=timezone.now()
    )
    assert viewer.post(f"scans/{scan.pk}/cancel").status_code == 403


def test_a_stranger_sees_nothing_of_another_cluster(run: TrainingRun, tier: Any) -> None:
    scanned(tier, listing(shard_map(10, findings=(finding(),))))
    stranger = granted(factories.cluster("west"), Role.OPERATOR)
    checkpoint, placement, scan = Checkpoint.objects.get(), Placement.objects.get(), InventoryScan.objects.get()
    for path in ("runs", "checkpoints", "placements", "findings", "scans"):
        assert stranger.get(path).json() == {
            "items": [], "next_cursor": None, "prev_cursor": None, "total": {"value": 0, "relation": "eq"},
        }, path  # fmt: skip
    for path in (
        f"runs/{run.pk}", "runs/llama-70b", f"runs/{run.pk}/steps", f"runs/{run.pk}/attempts",
        f"checkpoints/{checkpoint.pk}", f"checkpoints/{checkpoint.pk}/shards",
        f"checkpoints/{checkpoint.pk}/placements", f"checkpoints/{checkpoint.pk}/findings",
        f"checkpoints/{checkpoint.pk}/tensors",
        f"placements/{placement.pk}", f"placements/{placement.pk}/shards", f"placements/{placement.pk}/evidence",
        f"scans/{scan.pk}",
    ):  # fmt: skip
        assert stranger.get(path).status_code == 404, path
    assert stranger.patch(f"runs/{run.pk}", {"gpu_count": 1}).status_code == 404
    assert stranger.post("scans", {"tier": tier.pk}).status_code == 422
    assert stranger.post(f"scans/{scan.pk}/cancel").status_code == 404


def test_a_grant_gives_its_role_on_its_cluster_only(run: TrainingRun, tier: Any) -> None:
    mate = granted(run.cluster, Role.OPERATOR)
    assert mate.post("scans", {"tier": tier.pk}).status_code == 201
    reader = granted(run.cluster, Role.VIEWER, "reader")
    assert reader.get("runs/llama-70b").status_code == 200
    assert reader.patch("runs/llama-70b", {"gpu_count": 1}).status_code == 403


@pytest.mark.parametrize("path", ["runs", "checkpoints", "placements", "findings", "scans"])
def test_nobody_gets_in_without_a_token(path: str) -> None:
    reply = Client().get(f"/api/v1/{path}/")
    assert reply.status_code == 401 and reply["Content-Type"].startswith("application/problem+json")


@pytest.mark.parametrize("path", ["runs", "checkpoints", "placements", "findings", "scans"])
def test_lists_cost_the_same_for_many_rows(run: TrainingRun, tier: Any, viewer: Caller, path: str) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(path).status_code == 200
        return len(queries)

    scanned(tier, listing(shard_map(1, run="a", findings=(finding(),))), root="/ckpt/a")
    viewer.get(path)
    few = cost()
    many = [shard_map(n, run=f"run-{n % 7}", findings=(finding(),)) for n in range(40)]
    scanned(tier, listing(*many))
    for number in range(5):
        scanned(tier, listing(), root=f"/ckpt/none-{number}")
    assert cost() == few <= 6


@pytest.mark.parametrize("path", ["checkpoints", "placements", "findings", "scans", "runs", "tiers", "audits"])
def test_a_filter_that_is_given_twice_is_refused_and_several_values_go_with_commas(
    path: str, run: TrainingRun, viewer: Caller
) -> None:
    answer = viewer.get(f"{path}/?cluster=east&cluster=west&cursor=")
    assert answer.status_code == 400 and "Give it once" in str(answer.json()) and "commas" in str(answer.json())
    assert viewer.get(f"{path}/?cluster=east").status_code == 200


def test_commas_choose_any_of_several(run: TrainingRun, viewer: Caller) -> None:
    assert viewer.get("placements/?status=complete,corrupt").status_code == 200
    assert viewer.get("placements/?status=complete&status=corrupt").status_code == 400


def test_a_run_keeps_what_its_launch_script_requires(run: TrainingRun, tier: Any, viewer: Caller) -> None:
    factories.placement(run, tier, 10)
    editor = caller(Role.OPERATOR)
    assert editor.patch("runs/llama-70b", {"required_trust": "sealed"}).json()["required_trust"] == "sealed"
    assert viewer.get("runs/llama-70b/resume-point").json()["outcome"] == "nothing_resumable"
    assert viewer.get("runs/llama-70b/resume-point", require="complete").json()["step"] == 10
    for word in ("reloaded", "", "certain"):
        assert editor.patch("runs/llama-70b", {"required_trust": word}).status_code == 400
