"""Policies: what they plan over real rows, and that they do nothing until they may."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Any

import factories
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from muster_agent.decide.retention import Action, Plan

from apps.core.errors import Conflict, InvalidInput
from apps.transfers import limits, marks, planning, policies, schedules
from apps.transfers.facts import measured_bytes_per_second
from apps.transfers.models import Migration, RetentionPolicy, TierRateLimit, Transfer
from tests.transfers.conftest import Tiers, drive

pytestmark = pytest.mark.django_db


def acted(found: Plan) -> dict[int, str]:
    return {line.copy.step: line.action.value for line in found.lines if line.action is not Action.STAY}


def test_a_policy_plans_moves_and_says_why_each_other_one_stays(tiers: Tiers) -> None:
    tiers.save(10, 20, 30, 40)
    marks.pin(checkpoint=tiers.placement(10).checkpoint, reason="paper", actor="olga")
    found = planning.preview(tiers.policy())
    assert acted(found) == {20: "move"}
    told = {line.copy.step: "; ".join(line.reasons) for line in found.lines}
    assert "pinned (olga: paper)" in told[10] and "newest 2" in told[30] and "newest verified" in told[40]
    assert found.seconds is None and found.moved_bytes == tiers.placement(20).total_bytes


def test_a_new_policy_only_plans(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    policy = policies.create_policy(
        cluster=tiers.hot.cluster, hot_tier=tiers.hot, name="p", cold_tier=tiers.cold, keep_newest=1, actor="olga"
    )
    assert policy.plan_only
    migration = planning.run_policy(policy=policy, actor="olga")
    assert (migration.plan_only, migration.move_count, migration.stay_count) == (True, 2, 1)
    assert not Transfer.objects.exists()


def test_a_policy_that_acts_leaves_what_it_promised(tiers: Tiers) -> None:
    tiers.save(10, 20, 30, 40)
    policy = tiers.policy()
    migration = planning.run_policy(policy=policy, actor="olga")
    for transfer in Transfer.objects.all():
        assert drive(transfer).state == "done"
    assert sorted(path.name for path in tiers.path(10).parent.iterdir()) == ["step-00000030", "step-00000040"]
    assert migration.transfers.count() == 2
    again = planning.preview(policy)
    assert acted(again) == {}
    assert measured_bytes_per_second(tiers.hot.pk, tiers.cold.pk)
    tiers.save(50)
    assert planning.preview(policy).seconds is not None


def test_what_a_transfer_is_at_work_on_is_not_planned_again(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    policy = tiers.policy(keep_newest=1)
    planning.run_policy(policy=policy, actor="olga")
    second = planning.run_policy(policy=policy, actor="olga")
    assert (second.move_count, second.stay_count) == (0, 3)


def test_what_is_copied_below_is_retired_and_what_is_old_expires(tiers: Tiers) -> None:
    tiers.save(10, 20, 30, 40)
    policy = tiers.policy(keep_newest=1, keep_every_steps=20, expire_after_days=20)
    for transfer in [*planning.run_policy(policy=policy, actor="x").transfers.all()]:
        drive(transfer)
    tiers.save(50, 60)
    found = planning.preview(policy)
    assert acted(found) == {40: "move", 50: "move", 10: "expire", 30: "expire"}
    for transfer in [*planning.run_policy(policy=policy, actor="x").transfers.all()]:
        assert drive(transfer).state == "done", transfer.problem
    there = sorted(path.name for path in tiers.cold_path(10).parent.iterdir())
    assert there == ["step-00000020", "step-00000040", "step-00000050"]


def test_a_copy_expires_only_while_its_policy_still_says_so(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    policy = tiers.policy(keep_newest=1, expire_after_days=20)
    for transfer in [*planning.run_policy(policy=policy, actor="x").transfers.all()]:
        drive(transfer)
    (waiting,) = planning.run_policy(policy=policy, actor="x").transfers.filter(source__checkpoint__step=10)
    marks.set_labels(checkpoint=waiting.checkpoint, labels=["release"], actor="olga")
    policies.update_policy(policy=policy, changes={"exempt_labels": ["release"]}, actor="olga")
    ended = drive(waiting)
    assert (ended.state, ended.problem) == ("cancelled", "the source stays: its label release is exempt")
    assert tiers.cold_path(10).is_dir()


def test_a_run_with_a_policy_of_its_own_is_not_the_clusters(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    wide = tiers.policy(name="all", keep_newest=1)
    assert len(planning.preview(wide).lines) == 3
    own = tiers.policy(name="own", keep_newest=3, run=tiers.run)
    assert planning.preview(wide).lines == () and acted(planning.preview(own)) == {}
    with pytest.raises(Conflict):
        tiers.policy(name="second", run=tiers.run)


def test_a_plan_takes_as_many_queries_for_many_copies_as_for_few(tiers: Tiers) -> None:
    run = factories.run(tiers.hot.cluster)
    policy = tiers.policy(optimizer_newest=1)

    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as seen:
            planning.preview(policy)
        return len(seen)

    factories.placement(run, tiers.hot, 1)
    few = count()
    for step in range(2, 40):
        factories.placement(run, tiers.hot, step)
    assert count() == few <= 16


@pytest.mark.parametrize(
    ("details", "pointer"),
    [
        ({"name": "Has Space"}, "/name"),
        ({"keep_newest": 0}, "/keep_newest"),
        ({"keep_every_steps": 0}, "/keep_every_steps"),
        ({"expire_after_days": -1.0}, "/expire_after_days"),
        ({"expire_after_days": 5.0, "cold_tier": None}, "/cold_tier"),
        ({"high_water_ratio": 1.5}, "/high_water_ratio"),
        ({"low_water_ratio": 0.5}, "/low_water_ratio"),
        ({"high_water_ratio": 0.5, "low_water_ratio": 0.6}, "/low_water_ratio"),
        ({"proof": "hope"}, "/proof"),
        ({"cron": "every day"}, "/cron"),
        ({"time_zone": "Mars/Olympus"}, "/time_zone"),
        ({"exempt_labels": ["Not A Label"]}, "/exempt_labels"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tiers: Tiers, details: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        tiers.policy(**details)
    assert refused.value.pointer == pointer


def test_tiers_in_the_wrong_order_or_of_another_cluster_are_refused(tiers: Tiers) -> None:
    with pytest.raises(InvalidInput, match="not slower"):
        policies.create_policy(
            cluster=tiers.hot.cluster, hot_tier=tiers.cold, cold_tier=tiers.hot, name="p", actor="olga"
        )
    west = factories.tier(factories.cluster("west"), uri="/west", speed_order=9)
    with pytest.raises(InvalidInput, match="another cluster"):
        tiers.policy(cold_tier=west)


# -- when --------------------------------------------------------------------------------------------------------------
def test_a_schedule_answers_each_moment_once(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    policy = tiers.policy(cron="0 3 * * *", time_zone="Europe/Berlin", plan_only=True)
    assert policy.next_at is not None and schedules.fire_due(policy.next_at - timedelta(seconds=1)) == 0
    at = policy.next_at
    assert schedules.fire_due(at) == 1 and schedules.fire_due(at) == 0
    assert Migration.objects.get().planned_at == at
    policy.refresh_from_db()
    assert policy.next_at == at + timedelta(days=1)
    with pytest.raises(Conflict, match="answered"):
        planning.run_policy(policy=policy, planned_at=at, actor="x")
    assert schedules.fire_due(at + timedelta(days=9)) == 1  # what was missed is one run
    policies.update_policy(policy=policy, changes={"enabled": False}, actor="olga")
    assert policy.next_at is None


def test_a_new_complete_checkpoint_runs_the_policies_that_wait_for_it(tiers: Tiers) -> None:
    policy = tiers.policy(on_complete=True, plan_only=True)
    assert schedules.fire_on_complete() == 0
    tiers.save(10)
    assert [schedules.fire_on_complete(), schedules.fire_on_complete()] == [1, 0]
    tiers.save(20)
    assert schedules.fire_on_complete() == 1
    assert "new checkpoint" in Migration.objects.filter(policy=policy).latest("created_at").requested_by


# -- how fast ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("begins", "ends", "hour", "inside"),
    [(8, 18, 12, True), (8, 18, 18, False), (22, 6, 23, True), (22, 6, 5, True), (22, 6, 6, False), (0, 0, 13, True)],
)
def test_a_window_may_go_over_midnight(begins: int, ends: int, hour: int, inside: bool) -> None:
    at = timezone.now().replace(hour=hour, minute=0, second=0, microsecond=0)
    assert limits.holds(time(begins), time(ends), "UTC", at) is inside


def test_the_lowest_limit_counts_and_a_tiers_is_shared(tiers: Tiers) -> None:
    tiers.save(10, 20, 30)
    policy = tiers.policy(keep_newest=1, max_bytes_per_second=900)
    planning.run_policy(policy=policy, actor="x")
    transfer = Transfer.objects.select_related("source__tier").first()
    assert transfer is not None and limits.allowed_rate(transfer) == 900
    TierRateLimit.objects.create(
        tier=tiers.cold, max_bytes_per_second=1000, begins=time(0), ends=time(0), created_at=timezone.now()
    )
    Transfer.objects.update(state="copying")
    assert limits.allowed_rate(transfer) == 500
    assert RetentionPolicy.objects.count() == 1
