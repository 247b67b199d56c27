"""The way from an empty installation to the first answer, from rows alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone

from apps.accounts.models import Role
from apps.checkpoints.models import InventoryScan, TrustEvidence
from apps.drills.models import Drill
from apps.fleet.models import Agent, Cluster, JoinToken
from apps.recovery.first_steps import ClusterFacts, Progress, Step, are_done, current, first_steps
from apps.recovery.first_steps_facts import focus

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
EMPTY = ClusterFacts()
NAMED = replace(EMPTY, cluster="cls_1", cluster_name="east", cluster_at=NOW)
TIERED = replace(NAMED, tier="tir_1", tier_uri="/ckpt", tier_at=NOW)
JOINED = replace(TIERED, agent_at=NOW, is_reached=True)
SCANNED = replace(JOINED, found_at=NOW, placement="plc_1", checkpoint="ckp_1", run="run_1", run_name="llama", step=10)
SEALED = replace(SCANNED, sealed_at=NOW)
VERIFIED = replace(SEALED, verified_at=NOW)
DRILLED = replace(VERIFIED, drilled_at=NOW)


@pytest.mark.parametrize(
    ("facts", "step", "path", "body"),
    [
        (EMPTY, Step.CLUSTER, "clusters/", {"name": "main"}),
        (NAMED, Step.TIER, "tiers/", None),
        (TIERED, Step.AGENT, "join-tokens/", {"cluster": "cls_1"}),
        (JOINED, Step.SCAN, "scans/", {"tier": "tir_1"}),
        (SCANNED, Step.SEAL, "audits/", {"placement": "plc_1", "mode": "seal"}),
        (SEALED, Step.VERIFY, "audits/", {"placement": "plc_1", "mode": "verify"}),
        (VERIFIED, Step.DRILL, "drills/", {"run": "run_1", "kind": "reload"}),
    ],
)
def test_each_state_has_one_next_step_with_its_request(
    facts: ClusterFacts, step: Step, path: str, body: dict[str, Any] | None
) -> None:
    steps = first_steps(facts)
    now = current(steps)
    assert now is not None and (now.step, now.progress) == (step, Progress.NEXT)
    assert now.request is not None and now.request.path == path
    assert body is None or now.request.body == body
    order = [one.progress for one in steps]
    assert order.count(Progress.NEXT) == 1 and order == sorted(order, key=["done", "next", "later"].index)


def test_when_all_has_happened_nothing_is_next() -> None:
    steps = first_steps(DRILLED)
    assert are_done(steps) and current(steps) is None
    assert all(step.done_at == NOW and step.request is None for step in steps)


@pytest.mark.parametrize(
    ("facts", "progress", "words"),
    [
        (replace(TIERED, agent_is_pending=True), Progress.WAITING, "waits for an admin's approval"),
        (replace(TIERED, token_until=NOW), Progress.WAITING, "A join token is open"),
        (replace(JOINED, scan_state="running"), Progress.WAITING, "being listed"),
        (replace(JOINED, is_reached=False), Progress.NEXT, "may read /ckpt: join an agent with that as its --root"),
        (replace(JOINED, scan_state="finished"), Progress.NEXT, "No checkpoint lies below /ckpt"),
        (replace(JOINED, scan_state="failed"), Progress.NEXT, "its page says why"),
        (replace(SCANNED, sealing=True), Progress.WAITING, "being read"),
        (replace(SCANNED, placement=""), Progress.NEXT, "None of the checkpoints that were found is whole"),
        (replace(SEALED, verifying=True), Progress.WAITING, "being read"),
        (replace(VERIFIED, drilling=True), Progress.WAITING, "at work"),
    ],
)
def test_what_is_at_work_or_in_the_way_is_said(facts: ClusterFacts, progress: Progress, words: str) -> None:
    now = current(first_steps(facts))
    assert now is not None and now.progress is progress and words in now.note


def test_a_step_taken_out_of_order_is_ticked_and_the_gap_is_next() -> None:
    steps = first_steps(replace(EMPTY, cluster="c", cluster_at=NOW, tier="t", tier_at=NOW, found_at=NOW))
    assert [step.step for step in steps if step.done_at] == [Step.CLUSTER, Step.TIER, Step.SCAN]
    assert (now := current(steps)) is not None and now.step is Step.AGENT


@pytest.mark.django_db
def test_rows_tick_one_step_after_the_other(django_assert_max_num_queries: Any) -> None:
    def at() -> Step | None:
        with django_assert_max_num_queries(3):
            now = current(first_steps(focus(Cluster.objects.all())))
        return now.step if now else None

    assert at() is Step.CLUSTER
    cluster = factories.cluster()
    assert at() is Step.TIER
    tier = factories.tier(cluster)
    assert at() is Step.AGENT
    now = timezone.now()
    JoinToken.objects.create(
        cluster=cluster, secret_sha256="0" * 64, created_by="ada", created_at=now, expires_at=now + timedelta(hours=1)
    )
    assert current(first_steps(focus(Cluster.objects.all()))).progress is Progress.WAITING  # type: ignore[union-attr]
    agent = factories.agent(factories.node(cluster), state=Agent.State.PENDING)
    assert at() is Step.AGENT
    Agent.objects.filter(pk=agent.pk).update(state=Agent.State.ONLINE, roots=["/elsewhere"])
    assert at() is Step.SCAN
    facts = focus(Cluster.objects.all())
    assert facts.is_reached is False
    Agent.objects.filter(pk=agent.pk).update(roots=["/"])
    assert focus(Cluster.objects.all()).is_reached is True
    InventoryScan.objects.create(tier=tier, agent=agent, root="/ckpt", state="running", created_at=now)
    assert current(first_steps(focus(Cluster.objects.all()))).progress is Progress.WAITING  # type: ignore[union-attr]
    run = factories.run(cluster)
    copy = factories.placement(run, tier, 10)
    assert at() is Step.SEAL
    assert focus(Cluster.objects.all()).placement == copy.pk
    for rung, after in (("sealed", Step.VERIFY), ("verified", Step.DRILL)):
        TrustEvidence.objects.create(
            placement=copy, rung=rung, source_kind="audit", source_id=f"aud_{rung}", fingerprint="f", at=now
        )
        assert at() is after
    drill = {"cluster": cluster, "run": run, "kind": "reload", "state": "finished", "created_at": now}
    Drill.objects.create(**drill, outcome="failed", finished_at=now)
    assert at() is Step.DRILL
    Drill.objects.create(**drill, outcome="passed", finished_at=now)
    assert at() is None


@pytest.mark.django_db
def test_the_cluster_that_is_not_done_comes_before_the_one_that_is() -> None:
    done, new = factories.cluster("done"), factories.cluster("new")
    tier = factories.tier(done)
    factories.agent(factories.node(done))
    run, now = factories.run(done), timezone.now()
    copy = factories.placement(run, tier, 10)
    TrustEvidence.objects.create(
        placement=copy, rung="verified", source_kind="audit", source_id="aud_1", fingerprint="f", at=now
    )
    fields: dict[str, Any] = {"kind": "reload", "state": "finished", "outcome": "passed", "finished_at": now}
    Drill.objects.create(cluster=done, run=run, created_at=now, **fields)
    assert focus(Cluster.objects.all()).cluster == new.pk
    assert are_done(first_steps(focus(Cluster.objects.filter(pk=done.pk))))


@pytest.mark.django_db
def test_evidence_that_was_voided_ticks_nothing() -> None:
    cluster, now = factories.cluster(), timezone.now()
    factories.agent(factories.node(cluster))
    copy = factories.placement(factories.run(cluster), factories.tier(cluster), 10)
    TrustEvidence.objects.create(
        placement=copy, rung="sealed", source_kind="audit", source_id="a", fingerprint="f", at=now, voided_at=now
    )
    now_at = current(first_steps(focus(Cluster.objects.all())))
    assert now_at is not None and now_at.step is Step.SEAL


@pytest.mark.django_db
def test_the_api_gives_the_same_steps_of_a_cluster_in_sight_only() -> None:
    from recovery.test_api_recovery import client, stranger

    east = factories.cluster("east")
    factories.tier(east)
    body = client(Role.VIEWER).get("/api/v1/first-steps?cluster=east").json()
    assert (body["cluster"], body["done"]) == (east.pk, False)
    assert [step["progress"] for step in body["steps"]] == ["done", "done", "next", "later", "later", "later", "later"]
    assert body["steps"][2]["request"] == {"method": "POST", "path": "join-tokens/", "body": {"cluster": east.pk}}
    other = stranger()
    assert other.get("/api/v1/first-steps?cluster=east").status_code == 404
    assert other.get("/api/v1/first-steps").json()["cluster_name"] == "elsewhere"
