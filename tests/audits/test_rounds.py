"""Audit policies: what falls under them, turn after turn of a rotation, by workers and by agents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.verify import Verification
from muster_agent.manifest.sampling import turns_to_cover

from apps.alerts import services as alerts
from apps.alerts.models import Alert
from apps.audits import policies, rounds, schedules, services, taking, working
from apps.audits.models import Audit, AuditPolicy, AuditRound
from apps.checkpoints.models import TrustEvidence
from apps.core import slices
from apps.core.errors import Conflict, InvalidInput
from apps.core.models import WorkCursor
from apps.fleet.tasks import tasks_of
from tests.agent.jobs.test_verify_job import overwrite
from tests.audits.conftest import Tiers
from workers.tasks.move import audit_slice

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
BIG = {"rank_bytes": 9_000_000}


def policy(tiers: Tiers, **details: Any) -> AuditPolicy:
    fields = {"name": "nightly", "mode": "full", **details}
    return policies.create_policy(cluster=tiers.hot.cluster, actor="olga", **fields)


def drive(row: AuditRound) -> list[Audit]:
    """Turn after turn of whatever was handed out, as the workers take them."""
    for _ in range(200):
        waiting = row.audits.exclude(state="finished").exclude(handed_out_at=None)
        if not waiting.exists():
            break
        for audit in waiting:
            audit_slice(audit.pk)
    return list(row.audits.order_by("pk"))


def run(policy: AuditPolicy) -> list[Audit]:
    return drive(rounds.run_policy(policy=policy, actor="olga"))


def test_a_full_policy_proves_every_copy_that_falls_under_it(tiers: Tiers) -> None:
    tiers.save(10, 20, verified=False)
    tiers.save(30, sealed=False, verified=False)
    row = rounds.run_policy(policy=policy(tiers), actor="olga")
    assert (row.audit_count, row.left_out) == (2, {rounds.NOT_SEALED: 1})
    audits = drive(row)
    assert [(audit.outcome, audit.ran_by) for audit in audits] == [("passed", "workers")] * 2
    assert [tiers.placement(step).trust for step in (10, 20, 30)] == ["verified", "verified", "complete"]
    facts = audits[0].facts
    assert facts["read_xxh3_128"] == facts["root_xxh3_128"] and facts["version"] and facts["manifest_id"]
    assert not WorkCursor.objects.exists()


def test_one_audit_after_another_or_as_many_as_may_be_at_work(tiers: Tiers) -> None:
    tiers.save(10, 20, 30, verified=False)
    row = rounds.run_policy(policy=policy(tiers, at_once=2, max_bytes_per_second=1001), actor="olga")
    handed = row.audits.exclude(handed_out_at=None)
    assert handed.count() == 2 and {audit.max_bytes_per_second for audit in handed} == {500}
    services.cancel_audit(audit=handed.first(), actor="olga")
    assert row.audits.exclude(handed_out_at=None).exclude(state="finished").count() == 2


@pytest.mark.parametrize(
    ("scope", "steps"),
    [
        ({}, {10, 20, 30}),
        ({"newest": 1}, {30}),
        ({"newest": 2}, {20, 30}),
        ({"tier": "cold"}, set()),
        ({"run": True}, {10, 20, 30}),
    ],
)
def test_the_scope_is_a_run_a_tier_the_newest_or_all(tiers: Tiers, scope: dict[str, Any], steps: set[int]) -> None:
    tiers.save(10, 20, 30)
    if "tier" in scope:
        scope = {"tier": tiers.cold}
    if "run" in scope:
        scope = {"run": tiers.run}
        factories.placement(factories.run(tiers.hot.cluster, "other"), tiers.hot, 90)
    found = rounds.scope(policy(tiers, **scope))
    assert {copy.checkpoint.step for copy in found} == steps


def test_what_was_proven_within_some_days_is_left_out(tiers: Tiers) -> None:
    tiers.save(10, 20)
    TrustEvidence.objects.filter(rung="verified", placement=tiers.placement(10)).update(
        at=timezone.now() - timedelta(days=8)
    )
    audits = run(policy(tiers, skip_verified_days=7))
    assert [audit.placement.checkpoint.step for audit in audits] == [10]


def test_the_turns_of_a_policy_read_every_chunk_once_and_find_what_each_alone_may_miss(tiers: Tiers) -> None:
    tiers.save(10, verified=False, **BIG)
    copy = tiers.placement(10)
    nightly = policy(tiers, mode="sample", sample_ratio=0.3)
    (first,) = run(nightly)
    turns = turns_to_cover(first.total_chunks or 0, 0.3)
    (second,) = run(nightly)
    assert (first.turn, second.turn, second.seed, turns) == (0, 1, nightly.seed, 3)
    assert tiers.placement(10).trust == "sealed", "a sample never gives verified"
    shard = sorted(tiers.path(10).glob("*.safetensors"))[0]
    overwrite(shard, 8_500_000, b"\x01\x02\x03")
    outcomes = []
    while tiers.placement(10).status == "complete" and len(outcomes) < turns:
        outcomes += [audit.outcome for audit in run(nightly)]
    assert outcomes[-1] == "damaged" and tiers.placement(10).status == "corrupt"
    with_damage = rounds.run_policy(policy=nightly, actor="olga")
    assert with_damage.left_out == {rounds.DAMAGED: 1} and copy.pk not in [
        audit.placement_id for audit in drive(with_damage)
    ]


def test_another_ratio_begins_a_new_rotation(tiers: Tiers) -> None:
    tiers.save(10, verified=False, **BIG)
    nightly = policy(tiers, mode="sample", sample_ratio=0.5)
    run(nightly)
    policies.update_policy(policy=nightly, changes={"sample_ratio": 0.25}, actor="olga")
    (audit,) = run(nightly)
    assert audit.turn == 0


def test_a_look_at_the_structure_covers_what_is_not_sealed_and_proves_no_bytes(tiers: Tiers) -> None:
    tiers.save(10, sealed=False, verified=False)
    (audit,) = run(policy(tiers, mode="structure"))
    assert (audit.outcome, audit.checked_bytes, audit.mode) == ("passed", 0, "structure")
    assert tiers.placement(10).trust == "complete"
    assert TrustEvidence.objects.get(source_id=audit.pk).rung == "complete"
    shard = next(tiers.path(10).glob("*.safetensors"))
    shard.write_bytes(b"")
    (audit,) = run(AuditPolicy.objects.get())
    assert audit.outcome == "damaged" and tiers.placement(10).status == "corrupt"


def test_agents_get_the_turn_the_cap_and_the_seal(tiers: Tiers) -> None:
    tiers.save(10, verified=False)
    factories.agent(factories.node(tiers.hot.cluster), version="9.9")
    nightly = policy(
        tiers, mode="sample", sample_ratio=0.5, where="agents", max_bytes_per_second=7_000, through_cache=True
    )
    row = rounds.run_policy(policy=nightly, actor="olga")
    audit = row.audits.get()
    task = tasks_of("audit", audit.pk).get()
    assert (audit.ran_by, task.kind, task.params["turn"], task.params["max_bytes_per_second"]) == (
        "agents",
        "verify",
        0,
        7000,
    )
    assert (audit.through_cache, task.params["through_cache"]) == (True, True)
    assert task.params["manifest"] is not None and task.params["seed"] == nightly.seed


def test_without_anybody_who_reaches_the_copies_every_audit_of_the_round_says_so(tiers: Tiers) -> None:
    tiers.save(10, 20)
    row = rounds.run_policy(policy=policy(tiers, where="agents"), actor="olga")
    assert {(audit.outcome, "No agent" in audit.reason) for audit in row.audits.all()} == {("failed", True)}


def test_a_policy_fires_by_its_schedule_once_and_not_while_a_round_is_under_way(tiers: Tiers) -> None:
    tiers.save(10)
    nightly = policy(tiers, cron="0 * * * *")
    AuditPolicy.objects.update(next_at=NOON)
    assert schedules.fire_due(NOON) == 1 and schedules.fire_due(NOON) == 0
    assert schedules.fire_due(NOON + timedelta(hours=1)) == 0
    late = AuditRound.objects.latest("planned_at")
    assert "has not finished" in late.skipped_reason
    with pytest.raises(Conflict, match="has not finished"):
        rounds.run_policy(policy=nightly, actor="olga")
    drive(AuditRound.objects.earliest("planned_at"))
    assert schedules.fire_due(NOON + timedelta(hours=2)) == 1


def test_a_policy_under_which_nothing_falls_leaves_the_reason(tiers: Tiers) -> None:
    policy(tiers, cron="0 * * * *", tier=tiers.cold)
    AuditPolicy.objects.update(next_at=NOON)
    assert schedules.fire_due(NOON) == 0
    assert "No copy" in AuditRound.objects.get().skipped_reason


@pytest.mark.parametrize(
    ("details", "pointer"),
    [
        ({"mode": "polish"}, "/mode"),
        ({"sample_ratio": 0.0}, "/sample_ratio"),
        ({"sample_ratio": float("nan")}, "/sample_ratio"),
        ({"newest": 0}, "/newest"),
        ({"at_once": 0}, "/at_once"),
        ({"skip_verified_days": -1.0}, "/skip_verified_days"),
        ({"cron": "every day"}, "/cron"),
        ({"time_zone": "Mars"}, "/time_zone"),
        ({"name": "No Name"}, "/name"),
        ({"where": "moon"}, "/where"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tiers: Tiers, details: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        policy(tiers, **details)
    assert refused.value.pointer == pointer


def test_a_deleted_policy_leaves_its_audits_and_cancels_those_that_wait(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    nightly = policy(tiers)
    row = rounds.run_policy(policy=nightly, actor="olga")
    audit_slice(row.audits.exclude(handed_out_at=None).get().pk)
    policies.delete_policy(policy=nightly, actor="olga")
    outcomes = sorted(Audit.objects.values_list("outcome", flat=True))
    assert outcomes == ["", "cancelled", "passed"] and not AuditRound.objects.exists()


def test_a_copy_that_is_audited_already_is_not_audited_twice(tiers: Tiers) -> None:
    tiers.save(10)
    services.request_audit(placement=tiers.placement(10), mode="verify", actor="olga")
    row = rounds.run_policy(policy=policy(tiers), actor="olga")
    assert row.left_out == {rounds.UNDER_WAY: 1}


# -- by workers, in turns ----------------------------------------------------------------------------------------------
def ask(tiers: Tiers, step: int = 10, **wanted: Any) -> Audit:
    return services.request_audit(placement=tiers.placement(step), mode="verify", actor="olga", **wanted)


def test_a_worker_goes_on_where_the_slice_before_ended(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.save(10, verified=False, **BIG)
    audit = ask(tiers)
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)
    real, turns = Verification.read, []

    def one_chunk(self: Verification, control: JobControl) -> None:
        turns.append(1)
        if len(turns) < 3:
            real(self, slices.StepControl(0.001))
        real(self, control)

    monkeypatch.setattr(Verification, "read", one_chunk)
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.05)
    for _ in range(6):
        audit_slice(audit.pk)
    audit.refresh_from_db()
    assert (audit.outcome, audit.checked_bytes) == ("passed", tiers.placement(10).manifest.total_bytes)
    assert len(turns) >= 3 and audit.facts["read_xxh3_128"] == audit.facts["root_xxh3_128"]


def test_a_second_worker_is_kept_out_while_one_is_at_it(tiers: Tiers) -> None:
    tiers.save(10)
    audit = ask(tiers)
    assert slices.take_lease(audit)
    audit_slice(audit.pk)
    audit.refresh_from_db()
    assert audit.state == "queued"


def test_a_cancelled_audit_takes_nothing_from_the_worker_that_is_at_it(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers.save(10, verified=False)
    audit = ask(tiers)
    real = Verification.result

    def late(self: Verification) -> Any:
        services.cancel_audit(audit=Audit.objects.get(pk=audit.pk), actor="olga")
        return real(self)

    monkeypatch.setattr(Verification, "result", late)
    audit_slice(audit.pk)
    audit.refresh_from_db()
    assert audit.outcome == "cancelled" and tiers.placement(10).trust == "sealed"


def test_workers_audit_only_below_their_roots_and_say_what_is_not_there(tiers: Tiers, settings: Any) -> None:
    tiers.save(10, 20)
    audit = ask(tiers)
    for file in tiers.path(10).iterdir():
        file.unlink()
    tiers.path(10).rmdir()
    audit_slice(audit.pk)
    audit.refresh_from_db()
    assert audit.outcome == "failed" and "there is no checkpoint" in audit.reason
    settings.WORKER_ROOTS = []
    with pytest.raises(Conflict, match="MUSTER_WORKER_ROOTS"):
        ask(tiers, 20)


def test_the_sweeper_wakes_an_audit_whose_worker_died(tiers: Tiers) -> None:
    tiers.save(10)
    audit = ask(tiers)
    assert slices.take_lease(audit)  # and dies
    Audit.objects.update(lease_expires_at=timezone.now(), next_attempt_at=timezone.now())
    assert taking.due() == [audit.pk]
    working.work(audit.pk)
    audit.refresh_from_db()
    assert audit.outcome == "passed"


def test_audits_that_do_not_happen_open_an_alert_until_one_does(tiers: Tiers) -> None:
    tiers.save(10)
    nightly = policy(tiers, where="agents")
    rounds.run_policy(policy=nightly, actor="olga")
    alerts.evaluate()
    alert = Alert.objects.get(rule="schedule_missed")
    assert (alert.subject_kind, alert.subject_id) == ("audit_policy", nightly.pk) and "No agent" in alert.summary
    policies.update_policy(policy=nightly, changes={"where": "workers"}, actor="olga")
    nightly.refresh_from_db()
    run(nightly)
    alerts.evaluate()
    alert.refresh_from_db()
    assert alert.state == "resolved"
