"""Every operation of the REST API against every kind of caller. A new operation fails here until it names its role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import time, timedelta
from functools import cache
from typing import Any

import factories
import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from apps.accounts.models import RANK, ApiToken, Role, SavedView, User
from apps.alerts import channels
from apps.alerts.models import Alert, AlertRule, Silence
from apps.audits.models import Audit, AuditPolicy, Repair
from apps.checkpoints.models import InventoryScan, SteplessCheckpoint
from apps.core.models import BulkOperation
from apps.drills.models import Drill, DrillPlan, NodeAction
from apps.fleet import services as fleet
from apps.fleet.models import AgentTask, ClusterGrant, ClusterInventory
from apps.storage.models import CeilingRun
from apps.transfers.models import CheckpointPin, RetentionPolicy, TierRateLimit, Transfer

pytestmark = pytest.mark.django_db
BASE = "/api/v1"


@dataclass(frozen=True)
class World:
    """One of everything on the cluster east, and on west the same kinds of rows that a west user may see."""

    ids: dict[str, str]
    callers: dict[str, str]


@dataclass(frozen=True)
class Needs:
    """`role` on the row's cluster; `everywhere` where a grant on one cluster does not suffice."""

    role: Role
    everywhere: bool = False
    body: Callable[[dict[str, str]], dict[str, Any]] = lambda _ids: {}


def in_an_hour() -> str:
    return (timezone.now() + timedelta(hours=1)).isoformat()


VIEWER, OPERATOR, ADMIN = Needs(Role.VIEWER), Role.OPERATOR, Role.ADMIN
ANYONE = Needs(Role.NONE)

OPERATIONS: dict[str, Needs] = {
    "who_am_i": ANYONE,
    "get_health": ANYONE,
    "list_tokens": ANYONE,
    "create_token": Needs(Role.NONE, body=lambda _ids: {"name": "x", "role": "viewer"}),
    "delete_token": Needs(ADMIN, everywhere=True),
    "list_users": Needs(ADMIN, everywhere=True),
    "get_user": Needs(ADMIN, everywhere=True),
    "create_user": Needs(ADMIN, everywhere=True, body=lambda _ids: {"username": "new", "is_service": True}),
    "update_user": Needs(ADMIN, everywhere=True, body=lambda _ids: {"role": "viewer"}),
    "list_activity": Needs(ADMIN, everywhere=True),
    "export_activity": Needs(ADMIN, everywhere=True),
    "get_activity_check": Needs(ADMIN, everywhere=True),
    "check_activity": Needs(ADMIN, everywhere=True),
    "list_clusters": VIEWER,
    "get_cluster": VIEWER,
    "create_cluster": Needs(ADMIN, everywhere=True, body=lambda _ids: {"name": "north"}),
    "update_cluster": Needs(ADMIN, body=lambda _ids: {"gpu_count": 8}),
    "take_cluster_inventory": Needs(OPERATOR),
    "list_cluster_inventories": VIEWER,
    "get_cluster_inventory": VIEWER,
    "list_nodes": VIEWER,
    "get_node": VIEWER,
    "list_agents": VIEWER,
    "get_agent": VIEWER,
    "approve_agent": Needs(ADMIN),
    "drain_agent": Needs(ADMIN),
    "resume_agent": Needs(ADMIN),
    "revoke_agent": Needs(ADMIN),
    "list_join_tokens": VIEWER,
    "get_join_token": VIEWER,
    "create_join_token": Needs(ADMIN, body=lambda ids: {"cluster": ids["cluster"]}),
    "delete_join_token": Needs(ADMIN),
    "list_tasks": VIEWER,
    "get_task": VIEWER,
    "list_task_events": VIEWER,
    "list_tiers": VIEWER,
    "get_tier": VIEWER,
    "create_tier": Needs(
        ADMIN,
        body=lambda ids: {"cluster": ids["cluster"], "name": "archive", "kind": "nas", "uri": "/archive"},
    ),
    "update_tier": Needs(ADMIN, body=lambda _ids: {"speed_order": 1}),
    "list_tier_ceilings": VIEWER,
    "measure_tier": Needs(OPERATOR),
    "list_ceiling_runs": VIEWER,
    "get_ceiling_run": VIEWER,
    "list_runs": VIEWER,
    "get_run": VIEWER,
    "update_run": Needs(OPERATOR, body=lambda _ids: {"rto_objective_seconds": 90}),
    "list_run_attempts": VIEWER,
    "list_run_steps": VIEWER,
    "get_resume_point": VIEWER,
    "get_checklist": VIEWER,
    "get_first_steps": VIEWER,
    "get_rank_shard_audit": VIEWER,
    "list_checkpoints": VIEWER,
    "list_operations": VIEWER,
    "get_operation": VIEWER,
    "get_checkpoint": VIEWER,
    "register_checkpoints": Needs(Role.NONE, body=lambda ids: {"items": [{"tier": ids["tier"]}]}),
    "list_checkpoint_findings": VIEWER,
    "list_checkpoint_placements": VIEWER,
    "list_checkpoint_shards": VIEWER,
    "list_checkpoint_tensors": VIEWER,
    "list_stepless_checkpoints": VIEWER,
    "get_stepless_checkpoint": VIEWER,
    "list_placements": VIEWER,
    "get_placement": VIEWER,
    "list_placement_evidence": VIEWER,
    "explain_placement": VIEWER,
    "list_placement_shards": VIEWER,
    "list_findings": VIEWER,
    "list_scans": VIEWER,
    "get_scan": VIEWER,
    "create_scan": Needs(OPERATOR, body=lambda ids: {"tier": ids["tier"]}),
    "cancel_scan": Needs(OPERATOR),
    "list_scan_changes": VIEWER,
    "get_scan_diff": VIEWER,
    "list_inventory_changes": VIEWER,
    "search": VIEWER,
    "list_saved_views": ANYONE,
    "get_saved_view": ANYONE,
    "create_saved_view": Needs(Role.NONE, body=lambda _ids: {"list": "drills", "name": "mine", "query": "kind=herd"}),
    "delete_saved_view": Needs(ADMIN, everywhere=True),
    "list_bulk_operations": ANYONE,
    "get_bulk_operation": ANYONE,
    "list_bulk_operation_items": ANYONE,
    "create_bulk_operation": Needs(
        OPERATOR, body=lambda ids: {"list": "drills", "verb": "cancel", "ids": [ids["drill"]], "expected_count": 1}
    ),
    "cancel_bulk_operation": ANYONE,
    "list_policies": VIEWER,
    "get_policy": VIEWER,
    "get_policy_plan": VIEWER,
    "list_policy_migrations": VIEWER,
    "create_policy": Needs(
        OPERATOR, body=lambda ids: {"cluster": ids["cluster"], "name": "p2", "hot_tier": ids["cold-tier"]}
    ),
    "update_policy": Needs(OPERATOR, body=lambda _ids: {"keep_newest": 3}),
    "delete_policy": Needs(OPERATOR),
    "run_policy": Needs(OPERATOR),
    "list_transfers": VIEWER,
    "get_transfer": VIEWER,
    "create_transfer": Needs(
        OPERATOR, body=lambda ids: {"placement": ids["placement"], "kind": "move", "tier": ids["cold-tier"]}
    ),
    "pause_transfer": Needs(OPERATOR),
    "resume_transfer": Needs(OPERATOR),
    "cancel_transfer": Needs(OPERATOR),
    "get_checkpoint_marks": VIEWER,
    "pin_checkpoint": Needs(OPERATOR, body=lambda _ids: {"reason": "paper"}),
    "unpin_checkpoint": Needs(OPERATOR),
    "label_checkpoint": Needs(OPERATOR, body=lambda _ids: {"labels": ["release"]}),
    "list_tier_rate_limits": VIEWER,
    "create_tier_rate_limit": Needs(OPERATOR, body=lambda _ids: {"max_bytes_per_second": 1000}),
    "delete_tier_rate_limit": Needs(OPERATOR),
    "list_audits": VIEWER,
    "get_audit": VIEWER,
    "create_audit": Needs(OPERATOR, body=lambda ids: {"placement": ids["placement"], "mode": "seal"}),
    "cancel_audit": Needs(OPERATOR),
    "get_audit_report": VIEWER,
    "list_audit_policies": VIEWER,
    "get_audit_policy": VIEWER,
    "create_audit_policy": Needs(OPERATOR, body=lambda ids: {"cluster": ids["cluster"], "name": "p2"}),
    "update_audit_policy": Needs(OPERATOR, body=lambda _ids: {"at_once": 2}),
    "delete_audit_policy": Needs(OPERATOR),
    "run_audit_policy": Needs(OPERATOR),
    "list_audit_rounds": VIEWER,
    "list_repairs": VIEWER,
    "get_repair": VIEWER,
    "create_repair": Needs(OPERATOR, body=lambda ids: {"placement": ids["placement"]}),
    "cancel_repair": Needs(OPERATOR),
    "list_drills": VIEWER,
    "get_drill": VIEWER,
    "compare_drills": VIEWER,
    "get_drill_report": VIEWER,
    "list_drill_ranks": VIEWER,
    "list_drill_events": VIEWER,
    "create_drill": Needs(OPERATOR, body=lambda ids: {"run": ids["run"], "kind": "reload", "choice": "latest"}),
    "cancel_drill": Needs(OPERATOR),
    "list_plans": VIEWER,
    "get_plan": VIEWER,
    "preview_drill": Needs(OPERATOR, body=lambda ids: {"run": ids["run"], "kind": "reload", "choice": "latest"}),
    "approve_drill": Needs(OPERATOR),
    "get_plan_calendar": VIEWER,
    "pause_plans": Needs(OPERATOR, everywhere=True),
    "resume_plans": Needs(OPERATOR, everywhere=True),
    "get_drill_rules": VIEWER,
    "update_drill_rules": Needs(ADMIN, body=lambda _ids: {"plan_only": True}),
    "reset_drill_breaker": Needs(ADMIN),
    "list_node_actions": VIEWER,
    "get_node_action": VIEWER,
    "create_node_action": Needs(
        OPERATOR, body=lambda ids: {"cluster": ids["cluster"], "node_name": "gpu-1", "what": "bring_back"}
    ),
    "create_plan": Needs(OPERATOR, body=lambda ids: {"run": ids["run"], "name": "p2", "kind": "reload", "cron": ""}),
    "update_plan": Needs(OPERATOR, body=lambda _ids: {"enabled": False}),
    "delete_plan": Needs(OPERATOR),
    "start_plan": Needs(OPERATOR),
    "list_plan_occurrences": VIEWER,
    "get_drill_control": VIEWER,
    "stop_drills": Needs(OPERATOR, everywhere=True),
    "allow_drills": Needs(OPERATOR, everywhere=True),
    "list_alerts": VIEWER,
    "get_alert": VIEWER,
    "acknowledge_alert": Needs(OPERATOR),
    "list_alert_rules": VIEWER,
    "get_alert_rule": VIEWER,
    "create_alert_rule": Needs(OPERATOR, body=lambda ids: {"cluster": ids["cluster"], "kind": "tier_full"}),
    "update_alert_rule": Needs(OPERATOR, body=lambda _ids: {"enabled": False}),
    "delete_alert_rule": Needs(OPERATOR),
    "list_silences": VIEWER,
    "get_silence": VIEWER,
    "create_silence": Needs(
        OPERATOR, body=lambda ids: {"cluster": ids["cluster"], "reason": "x", "ends_at": in_an_hour()}
    ),
    "end_silence": Needs(OPERATOR),
    "list_channels": Needs(Role.VIEWER, everywhere=True),
    "get_channel": Needs(Role.VIEWER, everywhere=True),
    "create_channel": Needs(
        ADMIN, everywhere=True, body=lambda _ids: {"name": "x", "kind": "webhook", "target": "https://93.184.215.14/"}
    ),
    "update_channel": Needs(ADMIN, everywhere=True, body=lambda _ids: {"enabled": False}),
    "delete_channel": Needs(ADMIN, everywhere=True),
    "rotate_channel": Needs(ADMIN, everywhere=True),
    "drop_channel_old_key": Needs(ADMIN, everywhere=True),
    "test_channel": Needs(OPERATOR, everywhere=True),
    "list_deliveries": Needs(Role.VIEWER, everywhere=True),
    "get_delivery": Needs(Role.VIEWER, everywhere=True),
    "replay_delivery": Needs(OPERATOR, everywhere=True),
    "get_readiness": VIEWER,
    "list_objectives": VIEWER,
    "get_rto_history": VIEWER,
    "get_rto_groups": VIEWER,
    "get_advice": VIEWER,
    "get_what_if": VIEWER,
    "get_tier_comparison": VIEWER,
    "list_incidents": VIEWER,
    "get_incident": VIEWER,
    "report_incident": Needs(OPERATOR, body=lambda ids: {"run": ids["run"], "fault_at": "2026-05-01T10:00:00Z"}),
}

OF_A_RUN = {"get_rto_history", "get_advice"}


# These have no row of a cluster: what they show is the caller's own, or an admin's.
CLUSTERLESS = {
    "get_health",
    "register_checkpoints",  # each item has its own answer, of which tests/checkpoints/test_registering.py knows
    "who_am_i",
    "list_tokens",
    "create_token",
    "list_users",
    "list_activity",
    "export_activity",
    "get_activity_check",
    "check_activity",
    "create_cluster",
    "get_plan_calendar",
    "get_readiness",
    "get_first_steps",
    "get_rto_groups",
    "get_tier_comparison",
    "get_drill_control",
    # those for everywhere are for everybody to see
    "list_alert_rules",
    "search",
    "list_saved_views",
    "get_saved_view",
    "create_saved_view",
    "delete_saved_view",
    "list_bulk_operations",
    "cancel_bulk_operation",
}


@cache
def schema_operations() -> dict[str, tuple[str, str]]:
    """operation id -> (method, path)."""
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return {
        operation["operationId"]: (method, path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if path.startswith(BASE)
    }


@pytest.fixture
def world() -> World:
    now = timezone.now()
    east, west = factories.cluster("east"), factories.cluster("west")
    tier, run = factories.tier(east), factories.run(east)
    placement = factories.placement(run, tier)
    agent = factories.agent(factories.node(east))
    victim = factories.user("victim", Role.VIEWER)
    factories.token(victim)
    drill = Drill.objects.create(cluster=east, run=run, kind="reload", requested_by="x", created_at=now)
    plan = DrillPlan.objects.create(run=run, name="nightly", kind="reload", created_by="x", created_at=now)
    task = AgentTask.objects.create(
        agent=agent, owner_kind="drill", owner_id=drill.pk, kind="reload", params={}, created_at=now
    )
    seen = {"run_name": "export", "format": "safetensors", "status": "complete", "first_seen_at": now}
    stepless = SteplessCheckpoint.objects.create(tier=tier, path="/ckpt/export/final", last_seen_at=now, **seen)
    scan = InventoryScan.objects.create(tier=tier, agent=agent, root="/ckpt", requested_by="x", created_at=now)
    measured = CeilingRun.objects.create(
        tier=tier, agent=agent, state="finished", requested_by="x", created_at=now, finished_at=now
    )
    audit = Audit.objects.create(placement=placement, mode="verify", requested_by="x", created_at=now)
    repair = Repair.objects.create(placement=placement, requested_by="x", created_at=now)
    audit_policy = AuditPolicy.objects.create(cluster=east, name="nightly", seed=1, created_by="x", created_at=now)
    cold = factories.tier(east, "nas", "/nas", speed_order=2)
    policy = RetentionPolicy.objects.create(
        cluster=east, name="keep", hot_tier=tier, cold_tier=cold, created_by="x", created_at=now
    )
    transfer = Transfer.objects.create(
        cluster=east,
        checkpoint=placement.checkpoint,
        kind="move",
        source=placement,
        target_tier=cold,
        target_path="/nas/llama-70b/step-10",
        requested_by="x",
        created_at=now,
    )
    CheckpointPin.objects.create(checkpoint=placement.checkpoint, reason="x", pinned_by="x", created_at=now)
    limit = TierRateLimit.objects.create(
        tier=tier, max_bytes_per_second=1, begins=time(0), ends=time(0), created_at=now
    )
    alert = Alert.objects.create(
        cluster=east, rule="damage", subject_kind="placement", subject_id=placement.pk, summary="x", opened_at=now
    )
    action = NodeAction.objects.create(
        cluster=east, node_name="gpu-9", what="park", requested_by="x", created_at=now, deadline_at=now
    )
    rule = AlertRule.objects.create(kind="damage", cluster=east, severity="info", updated_at=now)
    silence = Silence.objects.create(
        cluster=east, reason="x", created_by="x", created_at=now, starts_at=now, ends_at=now + timedelta(hours=1)
    )
    channel = channels.create_channel(name="ops", kind="webhook", target="https://93.184.215.14/", actor="x")[0]
    delivery = channels.send_test(channel=channel, actor="x")
    join_token, _secret = fleet.create_join_token(cluster=east, actor="x")
    counted = dict.fromkeys(("node_count", "usable_count", "gpu_count", "job_count", "change_count"), 0)
    listed = ClusterInventory.objects.create(cluster=east, taken_at=now, seconds=0.1, scheduler="slurm", **counted)
    view = SavedView.objects.create(owner=victim, list_name="drills", name="late", shared=True, created_at=now)
    operation = BulkOperation.objects.create(
        list_name="drills", verb="cancel", actor="victim", total_count=1, created_at=now
    )
    ids = {
        "saved-view": view.pk,
        "bulk-operation": operation.pk,
        "cluster": east.pk,
        "cluster-inventorie": listed.pk,
        "node": agent.node_id,
        "agent": agent.pk,
        "node-action": action.pk,
        "join-token": join_token.pk,
        "tier": tier.pk,
        "ceiling-run": measured.pk,
        "stepless-checkpoint": stepless.pk,
        "run": run.pk,
        "checkpoint": placement.checkpoint_id,
        "placement": placement.pk,
        "scan": scan.pk,
        "audit": audit.pk,
        "audit-policie": audit_policy.pk,
        "repair": repair.pk,
        "cold-tier": cold.pk,
        "policie": policy.pk,
        "transfer": transfer.pk,
        "rate-limit": limit.pk,
        "drill": drill.pk,
        "operation": drill.pk,
        "plan": plan.pk,
        "task": task.pk,
        "alert": alert.pk,
        "alert-rule": rule.pk,
        "channel": channel.pk,
        "deliverie": delivery.pk,
        "silence": silence.pk,
        "token": ApiToken.objects.get(user=victim).pk,
        "user": str(victim.pk),
        "incident": "inc_none",
    }
    callers = {role.value: factories.token(factories.user(role.value, role)) for role in Role if role != Role.NONE}
    for name, cluster in (("east-operator", east), ("west-admin", west)):
        user = factories.user(name, Role.NONE)
        role = Role.OPERATOR if cluster is east else Role.ADMIN
        ClusterGrant.objects.create(user=user, cluster=cluster, role=role)
        callers[name] = factories.token(user, Role.ADMIN)
    return World(ids, callers)


def path_of(operation_id: str, ids: dict[str, str]) -> str:
    """The operation's path with the ids of the world's rows, each found by the plural noun before it."""
    done: list[str] = []
    for word in schema_operations()[operation_id][1].split("/"):
        done.append(ids[done[-1].removesuffix("s")] if word.startswith("{") else word)
    query = {**dict.fromkeys(OF_A_RUN, "?run=llama-70b"), "get_what_if": f"?tier={ids['tier']}", "search": "?q=x"}
    query["compare_drills"] = f"?ids={ids['drill']},drl_z"
    return "/".join(done) + query.get(operation_id, "")


def call(client: Client, ids: dict[str, str], operation_id: str, secret: str | None) -> Any:
    """The answer, with whatever the call changed rolled back."""
    method = schema_operations()[operation_id][0]
    headers = {"If-Match": "*", **({"Authorization": f"Bearer {secret}"} if secret else {})}
    body = OPERATIONS[operation_id].body(ids)
    extra = {} if method == "get" else {"data": body, "content_type": "application/json"}
    with transaction.atomic():
        answer = getattr(client, method)(path_of(operation_id, ids), headers=headers, **extra)
        transaction.set_rollback(True)
    assert answer.status_code < 500, answer.content
    return answer


def test_every_operation_of_the_schema_names_its_role() -> None:
    assert sorted(schema_operations()) == sorted(OPERATIONS)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("operation_id", sorted(OPERATIONS))
def test_nobody_gets_in_without_a_living_token(client: Client, world: World, operation_id: str) -> None:
    admin, now = world.callers["admin"], timezone.now()
    statuses = [call(client, world.ids, operation_id, None).status_code]
    for change in ({"expires_at": now}, {"expires_at": now + timedelta(days=1), "revoked_at": now}):
        ApiToken.objects.update(**change)
        statuses.append(call(client, world.ids, operation_id, admin).status_code)
    ApiToken.objects.update(revoked_at=None)
    User.objects.update(is_active=False)
    statuses.append(call(client, world.ids, operation_id, admin).status_code)
    assert statuses == [401, 401, 401, 401]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("operation_id", sorted(OPERATIONS))
def test_a_role_does_what_it_may_and_nothing_above(client: Client, world: World, operation_id: str) -> None:
    needs = OPERATIONS[operation_id]
    for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
        status = call(client, world.ids, operation_id, world.callers[role.value]).status_code
        if RANK[role] >= RANK[needs.role]:
            assert status not in (401, 403), role
        else:
            assert status in (403, 404), role


@pytest.mark.sampled(5)
@pytest.mark.parametrize("operation_id", sorted(OPERATIONS))
def test_a_grant_on_one_cluster_works_there(client: Client, world: World, operation_id: str) -> None:
    needs = OPERATIONS[operation_id]
    status = call(client, world.ids, operation_id, world.callers["east-operator"]).status_code
    if needs.everywhere or RANK[needs.role] > RANK[Role.OPERATOR]:
        assert status in (403, 404)
    else:
        assert status not in (401, 403)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("operation_id", sorted(set(OPERATIONS) - CLUSTERLESS))
def test_rows_of_another_cluster_do_not_exist(client: Client, world: World, operation_id: str) -> None:
    """Not even as an oracle: a foreign row answers word for word as one that never was."""
    foreign = call(client, world.ids, operation_id, world.callers["west-admin"])
    if operation_id.startswith("list_") and foreign.status_code == 200:
        body = foreign.json()
        assert [row for row in body["items"] if row.get("name") != "west"] == []
        assert body.get("total", {"value": 0})["value"] == len(body["items"])  # what runs now has no pages
        return
    nowhere = call(client, {kind: f"{kind}_none" for kind in world.ids}, operation_id, world.callers["west-admin"])
    assert foreign.status_code in (403, 404, 422)
    assert foreign.status_code == nowhere.status_code
    words = [answer.json()["detail"] for answer in (foreign, nowhere)]
    for kind, identifier in world.ids.items():
        words = [word.replace(identifier, "ID").replace(f"{kind}_none", "ID") for word in words]
    assert words[0] == words[1]
