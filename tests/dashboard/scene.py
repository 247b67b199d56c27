"""A small fleet with everything that a page can show: sound, damaged, late, running, failed and never measured."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import factories
import msgspec
from django.utils import timezone
from muster_agent.manifest.model import TensorDigest

from apps.accounts.models import Role, User
from apps.accounts.services import log_activity
from apps.alerts import channels
from apps.alerts.deliveries import disable
from apps.alerts.events import Draft, send_to
from apps.alerts.models import Alert, AlertRule, Channel, Delivery, DeliveryAttempt, Silence
from apps.audits.models import Audit, AuditPolicy, AuditRound, Repair
from apps.checkpoints.models import (
    Checkpoint,
    Finding,
    InventoryScan,
    Manifest,
    Placement,
    RunAttempt,
    ScanChange,
    StepReport,
    TensorPage,
    TrainingRun,
    TrustEvidence,
)
from apps.checkpoints.tensors import tensor_pages
from apps.core import heartbeats
from apps.core.models import BulkItem, BulkOperation
from apps.core.transitions import record
from apps.drills.models import Drill, DrillPlan, DrillRung, DrillStep, NodeAction, PlanOccurrence, RankResult
from apps.fleet.inventory import AgentFacts, contents, without_agent
from apps.fleet.models import Agent, AgentEvent, AgentTask, Cluster, ClusterGrant, ClusterInventory, JoinToken, Node
from apps.fleet.schedulers.base import Partition, Snapshot
from apps.fleet.schedulers.slurm_parsing import parse_jobs, parse_nodes
from apps.recovery.models import Incident, Recovery
from apps.storage.models import StorageTier, TierCeiling
from apps.transfers.models import CheckpointPin, Migration, RetentionPolicy, Transfer

PASSWORD = "correct horse battery"
GB = 1_000_000_000
SLURM = Path(__file__).parents[1] / "data" / "slurm"


@dataclass
class Scene:
    """Handles into the rows; `urls` names every page with an id of its own."""

    east: Cluster
    lab: Cluster
    nodes: list[Node]
    nvme: StorageTier
    nas: StorageTier
    llama: TrainingRun
    moe: TrainingRun
    sft: TrainingRun
    empty_run: TrainingRun
    good: Placement
    damaged: Placement
    failover: Drill
    reload: Drill
    herd: Drill
    running: Drill
    failed: Drill
    standby: Drill
    plan: DrillPlan
    audit: Audit
    running_audit: Audit
    audit_policy: AuditPolicy
    sampled_audit: Audit
    repair: Repair
    alert: Alert
    scans: list[InventoryScan]
    policy: RetentionPolicy
    transfers: list[Transfer]
    users: dict[str, User]


def people() -> dict[str, User]:
    """One account for each role, and one whose only grant is on the other cluster."""
    return {
        "admin": factories.user("ada", Role.ADMIN, PASSWORD),
        "operator": factories.user("olga", Role.OPERATOR, PASSWORD),
        "viewer": factories.user("vera", Role.VIEWER, PASSWORD),
        "stranger": factories.user("stan", Role.NONE, PASSWORD),
        "nobody": factories.user("nora", Role.NONE, PASSWORD),
    }


def build() -> Scene:
    now = timezone.now()
    for part in heartbeats.PARTS:
        heartbeats.beat(part)
    users = people()
    east = factories.cluster("h100-east", scheduler="slurm", gpu_count=512, gpu_hour_cost="2.5", allows_disruption=True)
    lab = factories.cluster("a100-lab", gpu_count=32)
    elsewhere = factories.cluster("elsewhere")
    ClusterGrant.objects.create(user=users["stranger"], cluster=elsewhere, role=Role.ADMIN)
    nodes = _nodes(east, lab, now)
    nvme = factories.tier(east, "nvme", "/mnt/nvme/ckpt", capacity_bytes=30_000 * GB)
    nas = factories.tier(east, "nas", "/mnt/nas/ckpt", kind=StorageTier.Kind.NAS, speed_order=1)
    factories.tier(lab, "cold", "s3://checkpoints/lab", kind=StorageTier.Kind.OBJECT_STORE, speed_order=2)
    TierCeiling.objects.create(
        tier=nvme, bytes_per_second=13.6 * GB, client_count=4, method="built-in reader", measured_at=now
    )
    llama = factories.run(east, "llama-70b-pt", rto_objective_seconds=90, rpo_objective_seconds=600, gpu_count=256)
    moe = factories.run(east, "moe-132b-v3", rto_objective_seconds=90, gpu_count=512)
    sft = factories.run(lab, "run-13b-sft", rto_objective_seconds=180, gpu_count=32)
    empty_run = factories.run(lab, "vit-huge-scan")
    good = _checkpoints(llama, nvme, nas, now)
    damaged = _damage(moe, nvme, now)
    factories.placement(sft, nas, 3050, shards=4, shard_bytes=2 * GB, trust=Placement.Trust.SEALED, trust_at=now)
    attempt = _launches(llama, nodes[0], now)
    _operation(damaged, now)
    failover = _failovers(llama, good, now, attempt)
    reload = _reload(moe, good, nodes, now)
    herd = _herd(llama, good, nodes, now)
    running = _running(llama, good, nodes, now)
    failed = factories_drill(
        sft,
        now - timedelta(days=1),
        kind="reload",
        outcome="failed",
        reason="gpu-02 did not answer within 300 s: see its agent's log, then drill again.",
    )
    factories_drill(
        sft, now - timedelta(days=2), kind="reload", outcome="skipped", reason="No verified checkpoint: audit one."
    )
    standby = _standby(llama, now)
    plan = _plan(llama, reload, now)
    audit, running_audit = _audits(damaged, good, nodes[0], now)
    audit_policy, sampled_audit = _audit_policy(east, good, nodes[0], now)
    repair = Repair.objects.create(
        placement=damaged, source=good, audit=audit, state="writing", file_count=1, chunk_count=3, read_bytes=64 * GB,
        written_bytes=8_388_608, requested_by="olga", created_at=now,
    )  # fmt: skip
    alert = _alerts(east, damaged, failover, now)
    _rules_and_silences(llama, nas, now)
    _channels(east, alert, now)
    scans = _scans(nvme, nas, nodes[0], damaged, now)
    policy, transfers = _retention(east, nvme, nas, good, now)
    _recovery(llama, attempt, now)
    _inventories(east, now)
    log_activity(actor="olga", action="drill.create", target_kind="drill", target_id=herd.pk, detail={"kind": "herd"})
    log_activity(actor="ada", action="join_token.create", target_kind="join_token", target_id="jtk_1")
    JoinToken.objects.create(
        cluster=east,
        secret_sha256="0" * 64,
        max_uses=8,
        uses=2,
        created_by="ada",
        created_at=now,
        expires_at=now + timedelta(hours=5),
    )
    return Scene(
        east=east,
        lab=lab,
        nodes=nodes,
        nvme=nvme,
        nas=nas,
        llama=llama,
        moe=moe,
        sft=sft,
        empty_run=empty_run,
        good=good,
        damaged=damaged,
        failover=failover,
        reload=reload,
        herd=herd,
        running=running,
        failed=failed,
        standby=standby,
        plan=plan,
        audit=audit,
        running_audit=running_audit,
        audit_policy=audit_policy,
        sampled_audit=sampled_audit,
        repair=repair,
        alert=alert,
        scans=scans,
        policy=policy,
        transfers=transfers,
        users=users,
    )


def _standby(run: TrainingRun, now: datetime) -> Drill:
    """A spare that was put in for a node which did not pass the gate."""
    at = now - timedelta(hours=5)
    why = "/mnt/nvme is not mounted"
    drill = factories_drill(
        run,
        at,
        kind="standby",
        outcome="failed",
        objective_state="none",
        reason=f"gpu-2 is not fit: {why}. It stays drained, and the spare in.",
        seconds=7.4,
        facts={"node": "gpu-2", "spare": "gpu-4", "gpu_count": 8},
    )
    checks = [
        {"name": "mounts", "is_fit": True, "detail": "2 mounted as expected"},
        {"name": "free_space", "is_fit": True, "detail": "at least 41 % is free"},
        {"name": "gpus", "is_fit": True, "detail": "8 GPUs, 8 needed"},
        {"name": "reload_speed", "is_fit": None, "detail": "no reload drill has measured it within 90 days"},
    ]
    unfit = [{"name": "mounts", "is_fit": False, "detail": why}, *checks[1:]]
    steps: list[tuple[str, float | None, dict[str, Any]]] = [
        ("probe_spare", 2.1, {"checks": checks}),
        ("drain_node", 1.2, {"state": "idle+drain", "reason": f"muster drill {drill.pk}"}),
        ("bring_in", 4.1, {"state": "idle", "reason": ""}),
        ("gate", 2.0, {"checks": unfit}),
        ("return_node", None, {}),
        ("park_spare", None, {}),
    ]
    for order, (what, seconds, detail) in enumerate(steps):
        ended_at = at + timedelta(seconds=seconds) if seconds is not None else None
        began_at = at if seconds is not None else None
        DrillStep.objects.create(
            drill=drill, order=order, what=what, began_at=began_at, ended_at=ended_at, detail=detail
        )
    return drill


def _inventories(east: Cluster, now: datetime) -> None:
    """Two that Slurm answered, then one that it did not."""
    snapshot = Snapshot(
        nodes=parse_nodes((SLURM / "sinfo-22.05-mixed.json").read_text()),
        jobs=parse_jobs((SLURM / "squeue-22.05-requeued.json").read_text()),
        partitions=(Partition(name="train", state="up", node_count=4),),
        version="22.05.8",
    )
    agents = {"gpu-1": AgentFacts(state="online", version="0.1.0", gpu_count=7, file_systems={"/mnt/nvme": "xfs"})}
    found = contents(snapshot, agents)
    change = {"kind": "node", "name": "gpu-3", "what": "changed", "field": "scheduler.state", "before": "idle"}
    changes = [{"kind": "job", "name": "2", "what": "appeared"}, {**change, "after": "down"}]
    counted = {"node_count": 4, "usable_count": 1, "gpu_count": 32, "job_count": 2, "change_count": 2}
    common: dict[str, Any] = {"cluster": east, "seconds": 0.08, "scheduler": "slurm", **counted}
    ClusterInventory.objects.create(
        taken_at=now - timedelta(minutes=6),
        scheduler_version="22.05.8",
        without_agent=without_agent(found.nodes),
        contents=msgspec.to_builtins(found),
        changes=changes,
        **common,
    )
    at = now - timedelta(minutes=20)
    for node, what, outcome, reason in (
        ("gpu-4", "park", "done", "It is a spare now: idle+drain."),
        ("gpu-3", "bring_back", "refused", "It is not fit: 7 GPUs, 8 needed."),
    ):
        NodeAction.objects.create(
            cluster=east, node_name=node, what=what, state="finished", outcome=outcome, reason=reason,
            requested_by="olga", created_at=at, finished_at=at, deadline_at=at,
        )  # fmt: skip
    error = "scontrol did not answer within 10 s; see whether slurmctld is up."
    ClusterInventory.objects.create(taken_at=now, error=error, **{**common, "change_count": 0})


def pages_of(scene: Scene) -> dict[str, str]:
    """Every page to read, by name."""
    return {
        "readiness": "/",
        "readiness-wall": "/?wall=1",
        "first-steps": "/first-steps/",
        "first-steps-done": f"/first-steps/?cluster={scene.east.pk}",
        "runs": "/runs/",
        "run": f"/runs/{scene.llama.pk}/",
        "checklist": f"/runs/{scene.llama.pk}/checklist/",
        "checklist-empty": f"/runs/{scene.empty_run.pk}/checklist/?max_age=12h",
        "run-damaged": f"/runs/{scene.moe.pk}/",
        "run-empty": f"/runs/{scene.empty_run.pk}/",
        "checkpoints": "/checkpoints/",
        "checkpoint": f"/checkpoints/{scene.good.checkpoint_id}/",
        "tensors": f"/checkpoints/{scene.good.checkpoint_id}/tensors/",
        "rank-shards": f"/placements/{scene.good.pk}/rank-shards/",
        "checkpoint-damaged": f"/checkpoints/{scene.damaged.checkpoint_id}/",
        "drills": "/drills/",
        "drill-print": f"/drills/{scene.herd.pk}/print/",
        "drill-print-failover": f"/drills/{scene.failover.pk}/print/",
        "drill-failover": f"/drills/{scene.failover.pk}/",
        "drill-reload": f"/drills/{scene.reload.pk}/",
        "drill-herd": f"/drills/{scene.herd.pk}/",
        "drill-running": f"/drills/{scene.running.pk}/",
        "drill-failed": f"/drills/{scene.failed.pk}/",
        "drill-inside": f"/drills/{scene.herd.pk}/inside/",
        "drills-compare": f"/drills/compare/?ids={scene.reload.pk},{scene.herd.pk}&show=all",
        "drills-compare-none": "/drills/compare/",
        "drill-standby": f"/drills/{scene.standby.pk}/",
        "rules": f"/clusters/{scene.east.pk}/rules/",
        "plans": "/plans/",
        "plan-calendar": "/plans/calendar/",
        "plan-grid": "/plans/grid/",
        "plan": f"/plans/{scene.plan.pk}/",
        "nodes": "/nodes/",
        "node": f"/nodes/{scene.nodes[0].pk}/",
        "node-without-agent": f"/nodes/{scene.nodes[-1].pk}/",
        "clusters": "/clusters/",
        "changes": "/changes/",
        "find": "/find/?q=llama",
        "cluster": f"/clusters/{scene.east.pk}/",
        "cluster-unasked": f"/clusters/{scene.lab.pk}/",
        "tiers": "/tiers/",
        "tier": f"/tiers/{scene.nvme.pk}/",
        "tier-doubted": f"/tiers/{scene.nas.pk}/",
        "scan": f"/scans/{scene.scans[1].pk}/?since={scene.scans[0].pk}",
        "scan-running": f"/scans/{scene.scans[2].pk}/",
        "scan-doubted": f"/scans/{scene.scans[3].pk}/",
        "policies": "/policies/",
        "policy": f"/policies/{scene.policy.pk}/",
        "policy-plan": f"/policies/{scene.policy.pk}/plan/",
        "transfers": "/transfers/",
        "transfer": f"/transfers/{scene.transfers[0].pk}/",
        "transfer-paused": f"/transfers/{scene.transfers[1].pk}/",
        "transfer-done": f"/transfers/{scene.transfers[2].pk}/",
        "audits": "/audits/",
        "audit": f"/audits/{scene.audit.pk}/",
        "audit-running": f"/audits/{scene.running_audit.pk}/",
        "audit-sampled": f"/audits/{scene.sampled_audit.pk}/",
        "audit-print": f"/audits/{scene.sampled_audit.pk}/print/",
        "repairs": "/repairs/",
        "repair": f"/repairs/{scene.repair.pk}/",
        "repair-start": f"/checkpoints/{scene.damaged.checkpoint_id}/repair/?placement={scene.damaged.pk}",
        "audit-policies": "/audits/policies/",
        "audit-policy": f"/audits/policies/{scene.audit_policy.pk}/",
        "health": "/health/",
        "incidents": "/incidents/",
        "alerts": "/alerts/",
        "objectives": "/objectives/",
        "alert-rules": "/alerts/rules/",
        "alert-rule": f"/alerts/rules/{AlertRule.objects.get(run=scene.llama).pk}/",
        "silences": "/alerts/silences/",
        "channels": "/alerts/channels/",
        "channel": f"/alerts/channels/{Channel.objects.get(name='fleet-events').pk}/",
        "channel-disabled": f"/alerts/channels/{Channel.objects.get(name='old-hook').pk}/",
        "deliveries": "/alerts/deliveries/",
        "delivery": f"/alerts/deliveries/{Delivery.objects.filter(tries=3).get().pk}/",
        "analysis": "/analysis/",
        "analysis-groups": "/analysis/groups/",
        "analysis-formats": "/analysis/groups/?by=format&kind=reload",
        "analysis-tiers": "/analysis/groups/?by=tier&kind=herd",
        "analysis-nodes": "/analysis/groups/?by=node_group&kind=herd",
        "analysis-advice": f"/analysis/advice/?run={scene.llama.pk}&save_seconds=60",
        "analysis-what-if": f"/analysis/what-if/?tier={scene.nvme.pk}&objective_seconds=300",
        "analysis-what-if-unmeasured": f"/analysis/what-if/?tier={scene.nas.pk}",
        "analysis-matrix": "/analysis/tiers/",
        "activity": "/activity/",
        "access": "/access/",
    }


def operator_pages_of(scene: Scene) -> dict[str, str]:
    """Pages with forms, for those who may send them."""
    return {
        "move": f"/checkpoints/{scene.good.checkpoint_id}/move/?copy={scene.good.pk}",
        "drill-start": f"/drills/start/?run={scene.llama.pk}",
        "drill-cancel": f"/drills/{scene.running.pk}/cancel/",
        "drills-stop": "/drills/stop/",
        "node-park": f"/clusters/{scene.east.pk}/nodes/gpu-1/park/",
        "node-bring-back": f"/clusters/{scene.east.pk}/nodes/gpu-4/bring_back/",
        "plan-create": "/plans/new/",
        "objective-save": f"/objectives/{scene.llama.pk}/",
        "plan-delete": f"/plans/{scene.plan.pk}/delete/",
        "policy-create": "/policies/new/",
        "policy-delete": f"/policies/{scene.policy.pk}/delete/",
        "alert-rule-create": "/alerts/rules/new/?kind=not_verified",
        "silence-create": f"/alerts/silences/new/?alert={scene.alert.pk}",
        "audit-policy-create": "/audits/policies/new/",
        "audit-policy-delete": f"/audits/policies/{scene.audit_policy.pk}/delete/",
    }


def admin_pages_of(scene: Scene) -> dict[str, str]:
    operation = BulkOperation.objects.latest("created_at")
    return {
        "join-token": f"/clusters/{scene.east.pk}/join-token/",
        "bulk": f"/operations/{operation.pk}/",
        "channel-create": "/alerts/channels/new/?kind=webhook",
        "channel-create-pagerduty": "/alerts/channels/new/?kind=pagerduty",
        "channel-delete": f"/alerts/channels/{Channel.objects.get(name='old-hook').pk}/delete/",
    }


def _operation(damaged: Placement, now: datetime) -> None:
    """The admin has verified two checkpoints at once; one was refused."""
    operation = BulkOperation.objects.create(
        list_name="checkpoints",
        verb="verify",
        query="status=complete",
        actor="ada",
        state="finished",
        total_count=2,
        done_count=1,
        refused_count=1,
        created_at=now,
        finished_at=now,
    )
    BulkItem.objects.create(
        operation=operation, target_id="ckp_1", label="step 12,400 of llama-70b-pt", outcome="done", detail="on nvme",
        done_at=now,
    )  # fmt: skip
    BulkItem.objects.create(
        operation=operation,
        target_id=damaged.checkpoint_id,
        label="step 48,000 of moe-132b-v3",
        outcome="refused",
        detail="nvme: There is no seal to compare with yet; seal this placement first.",
        done_at=now,
    )


def factories_drill(run: TrainingRun, at: datetime, **fields: Any) -> Drill:
    """A finished drill of `run` that ended 5 s after `at`, unless `fields` say otherwise."""
    values: dict[str, Any] = {
        "kind": "reload",
        "state": "finished",
        "outcome": "passed",
        "objective_seconds": run.rto_objective_seconds,
        "objective_state": "none",
        "requested_by": "olga",
        "created_at": at,
        "started_at": at,
        "finished_at": at + timedelta(seconds=5),
        "cluster": run.cluster,
        "run": run,
    }
    return Drill.objects.create(**{**values, **fields})


def _nodes(east: Cluster, lab: Cluster, now: datetime) -> list[Node]:
    nodes = [factories.node(east, f"gpu-{number:02d}", facts={"kernel": "6.1.0", "cpus": 96}) for number in range(1, 5)]
    states = [Agent.State.ONLINE, Agent.State.BUSY, Agent.State.STALE, Agent.State.LOST]
    for number, (node, state) in enumerate(zip(nodes, states, strict=True)):
        age = timedelta(seconds=5) if number < 2 else timedelta(minutes=2 + 5 * number)
        agent = factories.agent(
            node,
            state=state,
            version="0.1.0",
            roots=["/mnt/nvme", "/mnt/nas"],
            clock_offset_seconds=0.004 * (number + 1),
            last_seen_at=now - age,
        )
        record("agent", agent.pk, old="pending", new=state.value, reason="polled")
    waiting = factories.node(lab, "a100-1")
    factories.agent(waiting, state=Agent.State.PENDING, version="0.1.0", last_seen_at=now)
    bare = factories.node(lab, "a100-2")
    return [*nodes, waiting, bare]


def _retention(
    cluster: Cluster, nvme: StorageTier, nas: StorageTier, good: Placement, now: datetime
) -> tuple[RetentionPolicy, list[Transfer]]:
    policy = RetentionPolicy.objects.create(
        cluster=cluster,
        name="keep-newest",
        hot_tier=nvme,
        cold_tier=nas,
        keep_newest=1,
        keep_every_steps=1000,
        high_water_ratio=0.9,
        low_water_ratio=0.7,
        exempt_labels=["release"],
        cron="0 3 * * *",
        created_by="olga",
        created_at=now,
    )
    migration = Migration.objects.create(
        policy=policy, plan_only=False, move_count=3, stay_count=9, moved_bytes=300 * GB, requested_by="olga",
        created_at=now,
    )  # fmt: skip
    CheckpointPin.objects.create(checkpoint=good.checkpoint, reason="paper", pinned_by="olga", created_at=now)
    states: list[dict[str, Any]] = [
        {"state": "copying", "copied_bytes": 40 * GB, "copy_seconds": 25.0, "next_attempt_at": now},
        {
            "state": "paused",
            "resume_to": "copying",
            "problem": "writing to /mnt/nas/ckpt failed: there is no space left",
            "problem_code": "no_space",
            "attempts": 2,
            "next_attempt_at": now + timedelta(minutes=1),
        },
        {
            "state": "done",
            "copied_bytes": 128 * GB,
            "proven_bytes": 128 * GB,
            "copy_seconds": 80.0,
            "prove_seconds": 60.0,
            "finished_at": now,
            "proof_detail": {"by": "read_back", "bytes": 128 * GB, "at": now.isoformat()},
        },
    ]
    transfers = []
    for number, fields in enumerate(states):
        source = factories.placement(
            good.checkpoint.run, nvme, 9_000 + 100 * number, shards=8, trust=Placement.Trust.VERIFIED, trust_at=now
        )
        transfer = Transfer.objects.create(
            cluster=cluster,
            checkpoint=source.checkpoint,
            migration=migration,
            kind="move",
            source=source,
            target_tier=nas,
            target_path=f"/mnt/nas/ckpt/llama-70b-pt/step-{9_000 + 100 * number}",
            reasons=["it is not among the newest 1"],
            total_bytes=128 * GB,
            requested_by="olga",
            created_at=now,
            **fields,
        )
        record("transfer", transfer.pk, old="", new="planned", actor="olga")
        transfers.append(transfer)
    return policy, transfers


def _manifest(checkpoint: Checkpoint, at: datetime) -> Manifest:
    row = Manifest.objects.create(
        id=f"{checkpoint.step:064x}",
        checkpoint=checkpoint,
        version=1,
        origin="storage",
        total_bytes=checkpoint.total_bytes,
        shard_count=4,
        root_xxh3_128="0" * 32,
        sealed_at=at,
        body=b"",
        tensor_count=240,
        created_at=at,
    )
    parts = [f"model.layers.{layer}.{part}.weight" for layer in range(120) for part in ("attention.wq", "mlp.down")]
    tensors = [
        TensorDigest(
            name=name,
            shard="rank-00000-of-00064.safetensors",
            offset_bytes=4096 * index,
            length_bytes=4096,
            xxh3_64=f"{index:016x}",
            dtype="bfloat16",
            shape=(64, 32),
        )
        for index, name in enumerate(parts)
    ]
    TensorPage.objects.bulk_create(tensor_pages(row.pk, tensors))
    return row


def _prove(placement: Placement, rung: str, kind: str, source: str, at: datetime, **fields: Any) -> None:
    TrustEvidence.objects.create(
        placement=placement,
        rung=rung,
        source_kind=kind,
        source_id=source,
        fingerprint=placement.fingerprint,
        at=at,
        **fields,
    )


def _checkpoints(run: TrainingRun, nvme: StorageTier, nas: StorageTier, now: datetime) -> Placement:
    for step in range(11_900, 12_400, 100):
        factories.placement(run, nas, step, shards=8, shard_bytes=2 * GB, trust=Placement.Trust.SEALED, trust_at=now)
    at = now - timedelta(minutes=14)
    good = factories.placement(
        run, nvme, 12_400, shards=64, shard_bytes=2 * GB, trust=Placement.Trust.RESUMED, trust_at=at
    )
    factories.placement(run, nas, 12_400, shards=64, shard_bytes=2 * GB, trust=Placement.Trust.LISTED)
    Placement.objects.filter(pk=good.pk).update(manifest=_manifest(good.checkpoint, at))
    good.refresh_from_db()
    _prove(good, "sealed", "audit", "aud_sealed", at - timedelta(minutes=2), voided_at=None)
    _prove(good, "verified", "audit", "aud_verified", at - timedelta(minutes=1))
    _prove(
        good,
        "reloaded",
        "drill",
        "drl_old",
        at - timedelta(hours=1),
        voided_at=at,
        void_reason="rank-00003 changed its size",
    )
    _prove(good, "resumed", "run", run.pk, at)
    return good


def _damage(run: TrainingRun, nvme: StorageTier, now: datetime) -> Placement:
    factories.placement(run, nvme, 47_500, shards=8, trust=Placement.Trust.VERIFIED, trust_at=now - timedelta(hours=2))
    damaged = factories.placement(
        run,
        nvme,
        48_000,
        shards=8,
        status=Placement.Status.CORRUPT,
        trust=Placement.Trust.SEALED,
        trust_at=now,
        resumable=False,
        damaged_at=now,
        not_resumable_reasons=["one shard differs from its seal"],
    )
    common: dict[str, Any] = {
        "placement": damaged,
        "source_kind": "audit",
        "source_id": "aud_x",
        "found_at": now - timedelta(minutes=9),
        "fingerprint": damaged.fingerprint,
    }
    Finding.objects.create(
        code="digest_mismatch",
        severity="damage",
        path="rank-00003-of-00008.safetensors",
        detail="1 of 1,024 chunks differs from its seal",
        cure="Copy this shard again from the nas, then verify it.",
        begin_byte=12_582_912,
        end_byte=16_777_216,
        tensor="layers.31.mlp.w2",
        **common,
    )
    Finding.objects.create(
        code="rank_skew",
        severity="warning",
        detail="rank 3 has 1.4 times the median's bytes",
        cure="Balance the ranks: reading would take 12 s less.",
        **common,
    )
    return damaged


def _launches(run: TrainingRun, node: Node, now: datetime) -> RunAttempt:
    ended = RunAttempt.objects.create(
        run=run,
        launch_id="launch-1",
        agent=node.agent,
        last_step=11_950,
        started_at=now - timedelta(hours=5),
        ended_at=now - timedelta(hours=2),
        last_report_at=now - timedelta(hours=2),
    )
    live = RunAttempt.objects.create(
        run=run,
        launch_id="launch-2",
        agent=node.agent,
        resumed_from_step=11_900,
        last_step=12_480,
        started_at=now - timedelta(hours=2),
        last_report_at=now - timedelta(seconds=3),
    )
    StepReport.objects.create(attempt=live, step=12_400, at=now - timedelta(seconds=195), loss=2.1)
    StepReport.objects.create(attempt=live, step=12_480, at=now - timedelta(seconds=3), loss=2.08)
    return ended


def _failovers(run: TrainingRun, placement: Placement, now: datetime, attempt: RunAttempt) -> Drill:
    drill = None
    for day in range(12):
        read = 30.0 + 2.2 * day + (14 if day == 7 else 0)
        phases = {
            "detect": 4.1,
            "reschedule": 5.2,
            "launch": 6.4,
            "resolve": 1.2,
            "allocate": 2.0,
            "read": read,
            "verify": 3.1,
            "materialize": 4.4,
            "to_device": 2.2,
            "first_step": 6.3,
        }
        seconds = sum(phases.values()) + 1.9
        at = now - timedelta(days=12 - day)
        drill = factories_drill(
            run,
            at,
            kind="failover",
            seconds=seconds,
            phases=phases,
            unattributed_seconds=1.9,
            objective_state="breached" if seconds > 90 else "met",
            placement=placement,
            checkpoint_step=12_000 + 10 * day,
            lost_steps=42,
            lost_seconds=101.5,
            fault_at=at,
            attempt=attempt,
            finished_at=at + timedelta(seconds=seconds),
            reason=f"Trained step {12_001 + 10 * day} from the checkpoint of step {12_000 + 10 * day}; 42 steps were "
            "computed again.",
            facts={
                "worker": "rank 0 on gpu-01",
                "reschedule": [{"what": "ending", "seconds": 0.3}, {"what": "hold", "seconds": 6.0}],
                "hold_cure": "A lower cred_expire in slurm.conf shortens it.",
                "boundaries": [
                    {"at": at.isoformat(), "what": "fault injected", "attempt": "launch-1"},
                    {
                        "at": (at + timedelta(seconds=4.1)).isoformat(),
                        "what": "failure detected",
                        "attempt": "launch-1",
                    },
                    {"at": (at + timedelta(seconds=9.3)).isoformat(), "what": "launch started", "attempt": "launch-2"},
                    {"at": (at + timedelta(seconds=seconds)).isoformat(), "what": "step done", "attempt": "launch-2"},
                ],
            },
        )
    assert drill is not None
    for state in ("scheduled", "preparing", "running", "validating", "finished"):
        record("drill", drill.pk, old="", new=state)
    return drill


def _results(rung: DrillRung, nodes: list[Node], at: datetime, slow: float = 1.4) -> None:
    for rank, node in enumerate(nodes[: rung.client_count]):
        factor = slow if rank == 2 else 1.0
        phases = {"resolve": 0.4, "allocate": 1.1, "read": 9.0 * factor, "verify": 0.6, "materialize": 1.2}
        seconds = sum(phases.values()) + 0.1
        RankResult.objects.create(
            rung=rung,
            rank=rank,
            ranks=[rank],
            node=node,
            task_id=f"tsk_{rung.pk}_{rank}",
            outcome="done",
            bytes=16 * GB,
            seconds=seconds,
            bytes_per_second=16 * GB / seconds,
            started_at=at + timedelta(milliseconds=12 * rank),
            phases=phases,
            busy={"read": 30.0},
            requested="auto",
            effective="host_direct",
            reason="GPUDirect Storage is not loaded on this node",
            cache_state="cold",
            cached_ratio_before=0.0,
            cpu_seconds=3.1,
            peak_rss_bytes=2 * GB,
            verified=True,
        )


def _reload(run: TrainingRun, placement: Placement, nodes: list[Node], now: datetime) -> Drill:
    at = now - timedelta(days=2)
    drill = factories_drill(
        run,
        at,
        placement=placement,
        checkpoint_step=47_500,
        seconds=104.0,
        phases={"resolve": 0.4, "allocate": 1.1, "read": 98.6, "verify": 0.6, "materialize": 1.2},
        unattributed_seconds=2.1,
        objective_state="breached",
        total_bytes=64 * GB,
        bytes_per_second=0.62 * GB,
        cached_ratio_before=0.0,
        verified=True,
        start_skew_seconds=0.038,
        jain_index=0.981,
        reason="615 MB/s together, every byte verified, 0.0 % cached before.",
        finished_at=at + timedelta(seconds=104),
    )
    rung = {"client_count": 4, "bytes_per_second": 0.62 * GB}
    _results(DrillRung.objects.create(drill=drill, placement=placement, order=0, **rung), nodes, at)
    return drill


def _herd(run: TrainingRun, placement: Placement, nodes: list[Node], now: datetime) -> Drill:
    at = now - timedelta(hours=6)
    drill = factories_drill(
        run,
        at,
        kind="herd",
        ladder=[1, 2, 4],
        placement=placement,
        checkpoint_step=12_400,
        seconds=12.4,
        phases={"resolve": 0.4, "allocate": 1.1, "read": 9.0, "verify": 0.6, "materialize": 1.2},
        unattributed_seconds=0.1,
        objective_state="met",
        total_bytes=64 * GB,
        bytes_per_second=4.1 * GB,
        cached_ratio_before=0.0,
        verified=True,
        start_skew_seconds=0.038,
        jain_index=0.957,
        reason="4.10 GB/s together, every byte verified. Stops scaling at 4 clients: 7.9 % more per doubling.",
    )
    for order, (count, rate) in enumerate(((1, 2.2), (2, 3.8), (4, 4.1))):
        rung = DrillRung.objects.create(
            drill=drill,
            placement=placement,
            order=order,
            client_count=count,
            seconds=12.0,
            bytes_per_second=rate * GB,
            jain_index=0.957,
        )
        _results(rung, nodes, at)
    _reports(rung, at)
    return drill


def _reports(rung: DrillRung, at: datetime) -> None:
    """How far each client of the round had read, twice a second, as its agent told."""
    for result in rung.results.select_related("node__agent"):
        assert result.node is not None and result.bytes is not None
        task = AgentTask.objects.create(
            pk=result.task_id, agent=result.node.agent, owner_kind="drill", owner_id=rung.drill_id, kind="reload",
            params={}, state="done", outcome="done", attempt=1, created_at=at, started_at=at, finished_at=at,
        )  # fmt: skip
        begin, seconds = at + timedelta(seconds=1.5, milliseconds=12 * result.rank), result.phases["read"]
        count = round(2 * seconds)
        common: dict[str, Any] = {"task": task, "attempt": 1, "mono_seconds": 0.0, "phase": "read"}
        AgentEvent.objects.create(**common, seq=1, kind="phase", edge="begin", at=begin)
        AgentEvent.objects.bulk_create(
            AgentEvent(
                **common,
                seq=number + 1,
                kind="progress",
                at=begin + timedelta(seconds=seconds * number / count),
                data={"done_bytes": result.bytes * number // count, "total_bytes": result.bytes},
            )
            for number in range(1, count + 1)
        )


def _running(run: TrainingRun, placement: Placement, nodes: list[Node], now: datetime) -> Drill:
    drill = factories_drill(
        run,
        now - timedelta(seconds=20),
        state="running",
        outcome="",
        finished_at=None,
        placement=placement,
        checkpoint_step=12_400,
        facts={"clients": [{"agent": node.agent.pk, "ranks": [2 * n, 2 * n + 1]} for n, node in enumerate(nodes[:2])]},
    )
    begun = now.timestamp() - 2
    for number, node in enumerate(nodes[:2]):
        AgentTask.objects.create(
            agent=node.agent,
            owner_kind="drill",
            owner_id=drill.pk,
            kind="reload",
            params={},
            state="running",
            attempt=1,
            progress={
                "phase": "read",
                "done_bytes": (4 + number) * GB,
                "total_bytes": 16 * GB,
                "at": now.timestamp(),
                "phases": {"read": {"begin": begun}},
            },  # fmt: skip
            created_at=now,
            started_at=now,
        )
    record("drill", drill.pk, old="preparing", new="running")
    return drill


def _plan(run: TrainingRun, drill: Drill, now: datetime) -> DrillPlan:
    plan = DrillPlan.objects.create(
        run=run,
        name="nightly herd",
        kind="herd",
        ladder=[1, 2, 4],
        cron="0 3 * * *",
        time_zone="Europe/Berlin",
        next_at=now + timedelta(hours=7),
        created_by="olga",
        created_at=now,
    )
    PlanOccurrence.objects.create(plan=plan, planned_at=now - timedelta(days=1), drill=drill, created_at=now)
    PlanOccurrence.objects.create(
        plan=plan, planned_at=now - timedelta(days=2), skipped_reason="Muster was down then.", created_at=now
    )
    return plan


def _audits(damaged: Placement, good: Placement, node: Node, now: datetime) -> tuple[Audit, Audit]:
    found = Audit.objects.create(
        placement=damaged,
        agent=node.agent,
        mode="verify",
        state="finished",
        outcome="damaged",
        reason="1 of 1,024 chunks differs from its seal.",
        checked_bytes=64 * GB,
        checked_chunks=1024,
        total_chunks=1024,
        seconds=31.0,
        requested_by="olga",
        created_at=now - timedelta(minutes=10),
        finished_at=now - timedelta(minutes=9),
    )
    Finding.objects.filter(source_id="aud_x").update(source_id=found.pk)
    running = Audit.objects.create(
        placement=good,
        agent=node.agent,
        mode="seal",
        state="running",
        requested_by="olga",
        created_at=now,
    )
    AgentTask.objects.create(
        agent=node.agent,
        owner_kind="audit",
        owner_id=running.pk,
        kind="seal",
        params={},
        state="running",
        attempt=1,
        progress={"phase": "read", "done_bytes": 3 * GB, "total_bytes": 128 * GB},
        created_at=now,
        started_at=now,
    )
    return found, running


def _audit_policy(east: Cluster, good: Placement, node: Node, now: datetime) -> tuple[AuditPolicy, Audit]:
    """A rotation at its third turn, and a round that could not run."""
    policy = AuditPolicy.objects.create(
        cluster=east, name="nightly-tenth", seed=7, cron="0 3 * * *", next_at=now + timedelta(hours=9),
        created_by="olga", created_at=now - timedelta(days=9), max_bytes_per_second=200_000_000, skip_verified_days=7,
    )  # fmt: skip
    AuditRound.objects.create(
        policy=policy, planned_at=now - timedelta(days=1), created_at=now, skipped_reason="Missed: nothing was running."
    )
    row = AuditRound.objects.create(
        policy=policy, planned_at=now - timedelta(hours=15), created_at=now, audit_count=1,
        left_out={"it is not sealed": 3, "it is in progress": 1},
    )  # fmt: skip
    audit = Audit.objects.create(
        placement=good, agent=node.agent, round=row, mode="verify", sample_ratio=0.1, seed=7, turn=2, state="finished",
        outcome="passed", reason="sampled: 103 of 1024 chunks were compared", checked_bytes=103 * 4_194_304,
        checked_chunks=103, total_chunks=1024, seconds=2.2, requested_by="policy nightly-tenth",
        created_at=now - timedelta(hours=15), started_at=now - timedelta(hours=15),
        finished_at=now - timedelta(hours=15),
        facts={
            "ran_by": "agents", "node": node.name, "version": "0.1.0", "manifest_id": "ab" * 32, "origin": "storage",
            "sealed_at": "2026-01-02T03:04:05Z", "root_xxh3_128": "cd" * 16, "read_xxh3_128": "ef" * 16,
            "shard_chunks": {"64": 16},
        },
    )  # fmt: skip
    return policy, audit


def _alerts(east: Cluster, damaged: Placement, drill: Drill, now: datetime) -> Alert:
    Alert.objects.create(
        cluster=east,
        rule="objective_breached",
        subject_kind="drill",
        subject_id=drill.pk,
        state="acknowledged",
        summary="The failover of llama-70b-pt took 96 s of 90 s.",
        opened_at=now - timedelta(hours=3),
        acknowledged_at=now,
        acknowledged_by="olga",
    )
    return Alert.objects.create(
        cluster=east,
        rule="damage",
        subject_kind="checkpoint",
        subject_id=damaged.checkpoint_id,
        summary="Step 48,000 of moe-132b-v3 is damaged on nvme.",
        opened_at=now - timedelta(minutes=9),
    )


def _channels(east: Cluster, alert: Alert, now: datetime) -> None:
    """One that works, one whose receiver is in trouble, and one that Muster disabled."""
    where = {"target": "https://93.184.215.14/hooks/muster", "actor": "ada"}
    hook, _key = channels.create_channel(
        name="fleet-events", kind="webhook", event_types=["alert.*", "drill.*"], clusters=[east], **where
    )
    channels.create_channel(name="on-call", kind="pagerduty", secret="R" * 32, min_severity="critical", **where)
    gone, _key = channels.create_channel(name="old-hook", kind="webhook", **where)
    data = {"summary": alert.summary, "severity": "critical", "rule": "damage", "cluster_name": east.name}
    draft = Draft("alert.opened", f"alert/{alert.pk}", east.pk, data, now - timedelta(minutes=9), "critical")
    send_to(draft, [hook, gone])
    pending = Delivery.objects.get(channel=hook)
    common: dict[str, Any] = {"status": 503, "problem": "HTTP 503", "answer": "upstream <b>away</b>"}
    for minutes in (9, 8, 3):
        DeliveryAttempt.objects.create(delivery=pending, at=now - timedelta(minutes=minutes), seconds=0.31, **common)
    Delivery.objects.filter(pk=pending.pk).update(
        tries=3, problem="HTTP 503", next_attempt_at=now + timedelta(minutes=27)
    )
    disable(gone, "Its receiver answered HTTP 410: it is gone. Enter its new address and enable it.")


def _rules_and_silences(run: TrainingRun, nas: StorageTier, now: datetime) -> None:
    """A run with a rule of its own, a silence that holds and one that ended."""
    common: dict[str, Any] = {"updated_by": "olga", "updated_at": now}
    AlertRule.objects.create(
        kind="not_verified", cluster=run.cluster, run=run, severity="critical", threshold=21_600.0, **common
    )
    silenced: dict[str, Any] = {"cluster": run.cluster, "created_by": "olga", "created_at": now}
    Silence.objects.create(
        reason="Firmware of the NAS heads, ticket 4711", rule="tier_unreadable", subject_id=nas.pk, starts_at=now,
        ends_at=now + timedelta(hours=4), **silenced,
    )  # fmt: skip
    Silence.objects.create(
        reason="Rack 7 is moved", summary_contains="gpu-04", starts_at=now - timedelta(days=2),
        ends_at=now - timedelta(days=1), ended_by="ada", **silenced,
    )  # fmt: skip


def _scans(nvme: StorageTier, nas: StorageTier, node: Node, damaged: Placement, now: datetime) -> list[InventoryScan]:
    """One that found something different, with an earlier one, one that is running, and one that is doubted."""
    common: dict[str, Any] = {"tier": nvme, "agent": node.agent, "root": nvme.uri, "requested_by": "olga"}
    first = InventoryScan.objects.create(
        **common,
        state="finished",
        checkpoint_count=8,
        created_at=now - timedelta(hours=1),
        finished_at=now - timedelta(minutes=59),
    )
    second = InventoryScan.objects.create(
        **common,
        state="finished",
        checkpoint_count=9,
        new_count=1,
        changed_count=1,
        entry_count=1240,
        unchanged_count=7,
        seconds=0.4,
        created_at=now - timedelta(minutes=4),
        finished_at=now - timedelta(minutes=3),
        findings=[{"code": "pointer_stale", "severity": "note", "detail": "latest names step 47,500.", "cure": "-"}],
    )
    facts = {"status": "complete", "total_bytes": 8000, "shard_count": 8, "fingerprint": "aa"}
    good = Placement.objects.exclude(pk=damaged.pk).filter(tier=nvme).order_by("pk")[0]
    ScanChange.objects.create(scan=second, placement=good, kind="appeared", after=facts)
    ScanChange.objects.create(
        scan=second,
        placement=damaged,
        kind="changed",
        before={"status": "complete", "total_bytes": 8000, "fingerprint": "aa"},
        after={"status": "corrupt", "total_bytes": 7000, "fingerprint": "bb"},
    )
    running = InventoryScan.objects.create(
        tier=nvme,
        root=f"{nvme.uri}/llama-70b-pt",
        state="running",
        progress={
            "checkpoints": 120,
            "checkpoints_left": 14,
            "entries": 91_000,
            "entries_per_second": 45_500,
            "folders_left": 9,
        },
        requested_by="schedule",
        created_at=now - timedelta(seconds=2),
        started_at=now,
    )
    doubted = InventoryScan.objects.create(
        tier=nas,
        agent=node.agent,
        root=nas.uri,
        state="finished",
        doubt=f"nothing is left under {nas.uri}, where 7 copies were; an unmounted file system looks the same",
        held_count=7,
        requested_by="olga",
        created_at=now - timedelta(minutes=2),
        finished_at=now,
    )
    return [first, second, running, doubted]


def _recovery(run: TrainingRun, attempt: RunAttempt, now: datetime) -> None:
    incident = Incident.objects.create(
        run=run,
        ended_attempt=attempt,
        fault_at=now - timedelta(hours=2),
        detail="the launch stopped reporting",
        created_at=now,
    )
    Recovery.objects.create(
        incident=incident,
        state="closed",
        checkpoint_step=11_900,
        time_to_resume_seconds=84.0,
        lost_steps=50,
        phases={"launch": 6.0, "read": 40.0, "first_step": 5.0},
        unattributed_seconds=33.0,
        created_at=now,
        closed_at=now,
    )
