"""Rules say what is alerted on, from when on, and how severe it is: everywhere, on one cluster, or for one run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from rest import caller, granted

from apps.accounts.models import ActivityEntry, Role
from apps.alerts import rules, services
from apps.alerts.deciding import Rules, Standard, is_as_severe, is_exceeded, overdue_seconds, used_ratio
from apps.alerts.models import Alert, AlertRule, RuleKind
from apps.alerts.rule_kinds import KINDS
from apps.checkpoints.models import Checkpoint, Placement, TrainingRun
from apps.core.errors import Conflict, InvalidInput
from apps.drills.models import Drill
from apps.fleet.models import Agent
from apps.storage.models import StorageTier

pytestmark = pytest.mark.django_db
DAY = 86_400.0


@pytest.fixture
def run() -> TrainingRun:
    made = factories.run(factories.cluster())
    TrainingRun.objects.update(created_at=timezone.now() - timedelta(days=400))
    made.refresh_from_db()
    return made


def opened() -> list[tuple[str, str]]:
    """(rule, severity) of what stands after an evaluation."""
    services.evaluate()
    return sorted(Alert.objects.exclude(state="resolved").values_list("rule", "severity"))


def change(kind: str, **changes: Any) -> None:
    rules.update_rule(rule=AlertRule.objects.get(kind=kind, cluster=None), changes=changes, actor="olga")


def save_that_is(run: TrainingRun, days: float, **fields: Any) -> Placement:
    """A checkpoint that was saved, and first seen, so long ago."""
    tier = StorageTier.objects.first() or factories.tier(run.cluster)
    placement = factories.placement(run, tier, int(1000 - days * 10), **fields)
    at = timezone.now() - timedelta(days=days)
    Checkpoint.objects.filter(pk=placement.checkpoint_id).update(saved_at=at, created_at=at)
    return placement


def drilled(run: TrainingRun, days: float, **fields: Any) -> Drill:
    at = timezone.now() - timedelta(days=days)
    values = {"kind": "reload", "state": "finished", "outcome": "passed", "created_at": at, "finished_at": at}
    return Drill.objects.create(cluster=run.cluster, run=run, **{**values, **fields})


def make_damage(run: TrainingRun) -> None:
    factories.placement(run, factories.tier(run.cluster), status="corrupt")


def make_agent_lost(run: TrainingRun) -> None:
    factories.agent(factories.node(run.cluster), state=Agent.State.LOST)


def make_objective_breached(run: TrainingRun) -> None:
    drilled(run, 0, objective_state="breached", seconds=100.0, objective_seconds=90.0)


def make_drill_failed(run: TrainingRun) -> None:
    drilled(run, 0, outcome="failed")


def make_not_drilled(run: TrainingRun) -> None:
    save_that_is(run, 0.1, trust="verified")
    save_that_is(run, 40, trust="verified")
    drilled(run, 31)


def make_not_verified(run: TrainingRun) -> None:
    drilled(run, 0)
    save_that_is(run, 0.1)
    save_that_is(run, 1.1, trust="verified")


def make_tier_full(run: TrainingRun) -> None:
    tier = factories.tier(run.cluster, capacity_bytes=4100)
    factories.placement(run, tier, shards=4, shard_bytes=1000)


# The others need a scan, a plan, a transfer or a channel; their own tests make them (test_services_alerts.py).
MAKERS: dict[str, Callable[[TrainingRun], None]] = {
    "damage": make_damage,
    "agent_lost": make_agent_lost,
    "objective_breached": make_objective_breached,
    "drill_failed": make_drill_failed,
    "not_drilled": make_not_drilled,
    "not_verified": make_not_verified,
    "tier_full": make_tier_full,
}


def test_every_kind_has_a_rule_for_everywhere_after_a_migration() -> None:
    assert sorted(AlertRule.objects.filter(cluster=None).values_list("kind", flat=True)) == sorted(RuleKind.values)
    assert sorted(KINDS) == sorted(RuleKind.values)
    AlertRule.objects.filter(kind="damage").delete()
    change("tier_full", threshold=0.5)
    rules.ensure_standard_rules()
    assert AlertRule.objects.get(kind="damage").severity == "critical"
    assert AlertRule.objects.get(kind="tier_full").threshold == 0.5, "what somebody set stays"


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_a_rule_opens_an_alert_with_its_severity_and_none_when_it_is_off(run: TrainingRun, kind: str) -> None:
    MAKERS[kind](run)
    assert opened() == [(kind, KINDS[kind].severity)]
    change(kind, severity="info")
    assert opened() == [(kind, "info")]
    change(kind, enabled=False)
    assert opened() == []
    assert Alert.objects.get().state == "resolved"


@pytest.mark.parametrize(
    ("kind", "above", "below"),
    [
        ("objective_breached", 1.2, 1.1),
        ("not_drilled", 31.5 * DAY, 30.5 * DAY),
        ("not_verified", 1.2 * DAY, 1.0 * DAY),
        ("tier_full", 0.98, 0.97),
        ("agent_lost", 3600.0, 0.0),
    ],
)
def test_a_threshold_decides_from_when_on(run: TrainingRun, kind: str, above: float, below: float) -> None:
    MAKERS[kind](run)
    change(kind, threshold=above)
    assert opened() == []
    change(kind, threshold=below)
    assert [rule for rule, _severity in opened()] == [kind]


def test_verifying_a_new_save_ends_the_alert_and_verifying_an_old_one_again_does_not(run: TrainingRun) -> None:
    drilled(run, 0)
    newest, oldest = save_that_is(run, 0.1), save_that_is(run, 3, trust="verified")
    assert opened() == [("not_verified", "warning")]
    assert "was saved" in Alert.objects.get().summary
    Placement.objects.filter(pk=oldest.pk).update(trust="reloaded")
    assert opened() == [("not_verified", "warning")]
    Placement.objects.filter(pk=newest.pk).update(trust="reloaded")
    assert opened() == []


def test_a_verified_copy_that_is_gone_or_damaged_does_not_count(run: TrainingRun) -> None:
    drilled(run, 0)
    save_that_is(run, 2)
    proven = save_that_is(run, 0.1, trust="verified")
    assert opened() == []
    Placement.objects.filter(pk=proven.pk).update(status="missing")
    assert opened() == [("not_verified", "warning")]


def test_a_run_that_was_never_verified_has_as_long_as_the_rule_gives(run: TrainingRun) -> None:
    drilled(run, 0)
    save_that_is(run, 0.5)
    assert opened() == []
    Checkpoint.objects.update(created_at=timezone.now() - timedelta(days=2))
    assert opened() == [("not_verified", "warning")]
    assert "was ever verified" in Alert.objects.get().summary


def test_a_run_that_has_ended_or_is_archived_is_not_asked_for_proofs(run: TrainingRun) -> None:
    save_that_is(run, 31)
    assert opened() == []
    save_that_is(run, 0.1)
    assert [rule for rule, _severity in opened()] == ["not_drilled", "not_verified"]
    TrainingRun.objects.update(archived_at=timezone.now())
    assert opened() == []


@pytest.mark.parametrize("outcome", ["skipped", "cancelled", "lost"])
def test_a_drill_without_a_result_does_not_count_as_drilled(run: TrainingRun, outcome: str) -> None:
    make_not_drilled(run)
    drilled(run, 0.1, outcome=outcome)
    assert "not_drilled" in [rule for rule, _severity in opened()]


def test_a_tier_of_unknown_capacity_is_never_full(run: TrainingRun) -> None:
    make_tier_full(run)
    StorageTier.objects.update(capacity_bytes=None)
    assert opened() == []


def test_copies_that_are_gone_fill_nothing(run: TrainingRun) -> None:
    make_tier_full(run)
    Placement.objects.update(status="missing", listed_status="missing")
    assert opened() == []


def test_the_narrowest_rule_holds(run: TrainingRun) -> None:
    make_not_verified(run)
    change("not_verified", threshold=10 * DAY)
    assert opened() == []
    rules.create_rule(kind="not_verified", cluster=run.cluster, actor="olga", threshold=DAY, severity="critical")
    assert opened() == [("not_verified", "critical")]
    own = rules.create_rule(kind="not_verified", cluster=run.cluster, run=run, actor="olga", enabled=False)
    assert (own.threshold, own.severity) == (DAY, "critical"), "what was not said comes from the wider rule"
    assert opened() == []
    rules.delete_rule(rule=own, actor="olga")
    assert opened() == [("not_verified", "critical")]


def test_a_rule_of_another_cluster_changes_nothing_here(run: TrainingRun) -> None:
    make_damage(run)
    rules.create_rule(kind="damage", cluster=factories.cluster("west"), actor="olga", enabled=False)
    assert opened() == [("damage", "critical")]


def test_rules_that_make_no_sense_are_refused_and_name_the_field(run: TrainingRun) -> None:
    elsewhere = factories.run(factories.cluster("west"))
    for details, pointer in (
        ({"kind": "damage", "threshold": 1.0}, "/threshold"),
        ({"kind": "tier_full", "threshold": 1.5}, "/threshold"),
        ({"kind": "tier_full", "threshold": float("nan")}, "/threshold"),
        ({"kind": "tier_full", "threshold": None}, "/threshold"),
        ({"kind": "tier_full", "run": run}, "/run"),
        ({"kind": "damage", "run": elsewhere}, "/run"),
        ({"kind": "damage", "severity": "fatal"}, "/severity"),
        ({"kind": "weather"}, "/kind"),
    ):
        with pytest.raises(InvalidInput) as refused:
            rules.create_rule(cluster=run.cluster, actor="olga", **details)  # type: ignore[arg-type]
        assert refused.value.pointer == pointer
    rules.create_rule(kind="damage", cluster=run.cluster, actor="olga")
    with pytest.raises(Conflict):
        rules.create_rule(kind="damage", cluster=run.cluster, actor="olga")
    with pytest.raises(Conflict):
        rules.delete_rule(rule=AlertRule.objects.get(kind="damage", cluster=None), actor="olga")


def test_what_decides_is_a_matter_of_values_alone() -> None:
    now = timezone.now()
    assert overdue_seconds(now - timedelta(hours=1), now - timedelta(days=9), now) == 3600
    assert overdue_seconds(None, now - timedelta(hours=2), now) == 7200
    assert overdue_seconds(now + timedelta(hours=1), now, now) == 0, "a clock that is ahead owes nothing"
    assert (used_ratio(3, 4), used_ratio(3, 0), used_ratio(3, None)) == (0.75, None, None)
    rule = Standard("tier_full", True, "warning", 0.9)
    assert [is_exceeded(rule, value) for value in (0.89, 0.9, 0.91, None)] == [False, False, True, True]
    assert not is_exceeded(Standard("tier_full", False, "warning", 0.9), 1.0)
    assert is_as_severe("critical", "warning") and not is_as_severe("info", "warning")
    assert Rules([]).of("damage", "cls_1", None).severity == "critical"


def test_rules_are_read_by_all_and_changed_by_operators_of_the_place() -> None:
    east, west = factories.cluster("east"), factories.cluster("west")
    operator, guest, viewer = caller(Role.OPERATOR), granted(east, Role.OPERATOR), caller(Role.VIEWER)
    made = guest.post("alert-rules", {"kind": "damage", "cluster": "east", "severity": "info"})
    assert made.status_code == 201
    assert made.json()["cluster_name"] == "east"
    assert guest.post("alert-rules", {"kind": "damage", "cluster": "west"}).status_code == 404
    assert viewer.post("alert-rules", {"kind": "agent_lost", "cluster": "west"}).status_code == 403
    foreign = rules.create_rule(kind="damage", cluster=west, actor="olga")
    assert guest.get(f"alert-rules/{foreign.pk}").status_code == 404
    everywhere = AlertRule.objects.get(kind="tier_full", cluster=None)
    assert guest.get(f"alert-rules/{everywhere.pk}").json()["threshold_unit"] == "ratio"
    assert guest.patch(f"alert-rules/{everywhere.pk}", {"threshold": 0.5}).status_code == 403
    assert operator.patch(f"alert-rules/{everywhere.pk}", {"threshold": 0.5}).json()["threshold"] == 0.5
    assert operator.patch(f"alert-rules/{everywhere.pk}", {"threshold": 5}).status_code == 422
    kinds = [item["kind"] for item in viewer.get("alert-rules", cluster="east").json()["items"]]
    assert kinds == ["damage"]
    actions = ActivityEntry.objects.filter(target_kind="alert_rule").values_list("action", flat=True)
    assert sorted(actions) == ["alert_rule.create", "alert_rule.create", "alert_rule.update"]
