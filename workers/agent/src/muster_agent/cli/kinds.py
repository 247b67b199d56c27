"""What `muster get` and `muster describe` know: each kind of thing, its operations and its columns."""

from __future__ import annotations

from typing import NamedTuple

from muster_agent.cli.shapes import Column, age, plain, rate, seconds, size


class Kind(NamedTuple):
    """`listing` and `single` are operations of the client; without a single, describe looks through the list."""

    name: str
    listing: str
    single: str | None
    columns: tuple[Column, ...]
    aliases: tuple[str, ...] = ()


def _c(title: str, field: str, show: object = plain, wide: bool = False) -> Column:
    return Column(title, field, show, wide)  # type: ignore[arg-type]


ID = _c("ID", "id")
AGE = _c("CREATED", "created_at", age)
BY = _c("BY", "requested_by", plain, True)
KINDS = (
    Kind(
        "runs",
        "list_runs",
        "get_run",
        (
            ID,
            _c("NAME", "name"),
            _c("CLUSTER", "cluster_name"),
            _c("RTO", "rto_objective_seconds", seconds),
            _c("RPO", "rpo_objective_seconds", seconds),
            _c("GPUS", "gpu_count"),
            _c("TRUST", "required_trust", plain, True),
            AGE,
        ),
        ("run",),
    ),
    Kind(
        "checkpoints",
        "list_checkpoints",
        "get_checkpoint",
        (
            ID,
            _c("RUN", "run_name"),
            _c("STEP", "step"),
            _c("FORMAT", "format"),
            _c("RANKS", "world_size"),
            _c("SIZE", "total_bytes", size),
            _c("SAVED", "saved_at", age),
            _c("CLUSTER", "cluster_name", plain, True),
        ),
        ("checkpoint", "ckpt"),
    ),
    Kind(
        "placements",
        "list_placements",
        "get_placement",
        (
            ID,
            _c("RUN", "run_name"),
            _c("STEP", "step"),
            _c("TIER", "tier_name"),
            _c("STATUS", "status"),
            _c("TRUST", "trust"),
            _c("RESUMABLE", "resumable"),
            _c("SIZE", "total_bytes", size),
            _c("SEEN", "last_seen_at", age),
            _c("PATH", "path", plain, True),
        ),
        ("placement", "copies", "copy"),
    ),
    Kind(
        "drills",
        "list_drills",
        "get_drill",
        (
            ID,
            _c("RUN", "run_name"),
            _c("KIND", "kind"),
            _c("STATE", "state"),
            _c("OUTCOME", "outcome"),
            _c("OBJECTIVE", "objective_state"),
            _c("TIME", "seconds", seconds),
            _c("READ", "bytes_per_second", rate),
            AGE,
            _c("STEP", "checkpoint_step", plain, True),
            _c("TIER", "tier_name", plain, True),
            _c("PLAN", "plan_name", plain, True),
            BY,
            _c("REASON", "reason", plain, True),
        ),
        ("drill",),
    ),
    Kind(
        "plans",
        "list_plans",
        "get_plan",
        (
            ID,
            _c("NAME", "name"),
            _c("RUN", "run_name"),
            _c("KIND", "kind"),
            _c("ENABLED", "enabled"),
            _c("CRON", "cron"),
            _c("NEXT", "next_at", age),
            _c("ZONE", "time_zone", plain, True),
        ),
        ("plan",),
    ),
    Kind(
        "nodes",
        "list_nodes",
        "get_node",
        (
            ID,
            _c("NAME", "name"),
            _c("AGENT", "agent.state"),
            _c("VERSION", "agent.version"),
            _c("SEEN", "agent.last_seen_at", age),
            _c("CLOCK", "agent.clock_offset_seconds", seconds, True),
            _c("ROOTS", "agent.roots", plain, True),
        ),
        ("node",),
    ),
    Kind(
        "agents",
        "list_agents",
        "get_agent",
        (
            ID,
            _c("NODE", "node_name"),
            _c("STATE", "state"),
            _c("VERSION", "version"),
            _c("SLOTS", "free_slots"),
            _c("SEEN", "last_seen_at", age),
            _c("ROOTS", "roots", plain, True),
        ),
        ("agent",),
    ),
    Kind(
        "tiers",
        "list_tiers",
        "get_tier",
        (
            ID,
            _c("NAME", "name"),
            _c("CLUSTER", "cluster_name"),
            _c("KIND", "kind"),
            _c("PLACE", "uri"),
            _c("ORDER", "speed_order"),
            _c("CAPACITY", "capacity_bytes", size),
            _c("NEXT SCAN", "next_scan_at", age, True),
        ),
        ("tier",),
    ),
    Kind(
        "clusters",
        "list_clusters",
        "get_cluster",
        (ID, _c("NAME", "name"), _c("SCHEDULER", "scheduler"), _c("GPUS", "gpu_count"), AGE),
        ("cluster",),
    ),
    Kind(
        "audits",
        "list_audits",
        "get_audit",
        (
            ID,
            _c("RUN", "run_name"),
            _c("STEP", "step"),
            _c("MODE", "mode"),
            _c("STATE", "state"),
            _c("OUTCOME", "outcome"),
            _c("CHECKED", "checked_bytes", size),
            _c("TIME", "seconds", seconds),
            AGE,
            BY,
            _c("REASON", "reason", plain, True),
        ),
        ("audit",),
    ),
    Kind(
        "transfers",
        "list_transfers",
        "get_transfer",
        (
            ID,
            _c("RUN", "run_name"),
            _c("STEP", "step"),
            _c("KIND", "kind"),
            _c("STATE", "state"),
            _c("FROM", "source_tier_name"),
            _c("TO", "target_tier_name"),
            _c("COPIED", "copied_bytes", size),
            _c("OF", "total_bytes", size),
            _c("RATE", "bytes_per_second", rate),
            _c("LEFT", "eta_seconds", seconds),
            _c("PROBLEM", "problem", plain, True),
        ),
        ("transfer",),
    ),
    Kind(
        "repairs",
        "list_repairs",
        "get_repair",
        (
            ID,
            _c("RUN", "run_name"),
            _c("STEP", "step"),
            _c("TIER", "tier_name"),
            _c("FROM", "source_tier_name"),
            _c("STATE", "state"),
            _c("BAD CHUNKS", "chunk_count"),
            _c("WRITTEN", "written_bytes", size),
            _c("VERIFIED AFTER", "verified_after", plain, True),
            _c("BY", "requested_by", plain, True),
            _c("PROBLEM", "problem", plain, True),
            AGE,
        ),
        ("repair",),
    ),
    Kind(
        "scans",
        "list_scans",
        "get_scan",
        (
            ID,
            _c("TIER", "tier_name"),
            _c("STATE", "state"),
            _c("FOUND", "checkpoint_count"),
            _c("NEW", "new_count"),
            _c("CHANGED", "changed_count"),
            _c("MISSING", "missing_count"),
            _c("TIME", "seconds", seconds),
            AGE,
            _c("ERROR", "error", plain, True),
        ),
        ("scan",),
    ),
    Kind(
        "findings",
        "list_findings",
        None,
        (
            ID,
            _c("CODE", "code"),
            _c("SEVERITY", "severity"),
            _c("PLACEMENT", "placement"),
            _c("FILE", "path"),
            _c("FOUND", "found_at", age),
            _c("DETAIL", "detail", plain, True),
            _c("CURE", "cure", plain, True),
        ),
        ("finding",),
    ),
    Kind(
        "alerts",
        "list_alerts",
        "get_alert",
        (ID, _c("RULE", "rule"), _c("STATE", "state"), _c("SUMMARY", "summary"), _c("OPENED", "opened_at", age)),
        ("alert",),
    ),
    Kind(
        "incidents",
        "list_incidents",
        "get_incident",
        (
            ID,
            _c("RUN", "run_name"),
            _c("FAULT", "fault_at", age),
            _c("STATE", "recovery.state"),
            _c("RESUMED IN", "recovery.time_to_resume_seconds", seconds),
            _c("LOST STEPS", "recovery.lost_steps"),
        ),
        ("incident",),
    ),
    Kind(
        "policies",
        "list_policies",
        "get_policy",
        (ID, _c("NAME", "name"), _c("ENABLED", "enabled"), _c("PLAN ONLY", "plan_only"), AGE),
        ("policy",),
    ),
    Kind(
        "audit-policies",
        "list_audit_policies",
        "get_audit_policy",
        (ID, _c("NAME", "name"), _c("ENABLED", "enabled"), _c("MODE", "mode"), AGE),
        ("audit-policy",),
    ),
    Kind(
        "tokens",
        "list_tokens",
        None,
        (
            ID,
            _c("NAME", "name"),
            _c("USER", "user"),
            _c("ROLE", "role"),
            _c("EXPIRES", "expires_at", age),
            _c("LAST USED", "last_used_at", age),
            _c("REVOKED", "revoked_at", age),
        ),
        ("token",),
    ),
    Kind(
        "users",
        "list_users",
        "get_user",
        (ID, _c("NAME", "username"), _c("ROLE", "role"), _c("SERVICE", "is_service"), _c("ACTIVE", "is_active")),
        ("user",),
    ),
    Kind(
        "join-tokens",
        "list_join_tokens",
        "get_join_token",
        (ID, _c("CLUSTER", "cluster"), _c("USES", "uses"), _c("EXPIRES", "expires_at", age)),
        ("join-token",),
    ),
    Kind(
        "tasks",
        "list_tasks",
        "get_task",
        (ID, _c("KIND", "kind"), _c("STATE", "state"), _c("AGENT", "agent"), AGE),
        ("task",),
    ),
    Kind(
        "activity",
        "list_activity",
        None,
        (
            _c("AT", "at"),
            _c("WHO", "actor"),
            _c("DID", "action"),
            _c("TO", "target_kind"),
            _c("ID", "target_id"),
            _c("CLUSTER", "cluster", wide=True),
            _c("REQUEST", "request_id", wide=True),
        ),  # fmt: skip
    ),
)
NAMES = tuple(kind.name for kind in KINDS)
_BY_NAME = {word: kind for kind in KINDS for word in (kind.name, *kind.aliases)}


def find_kind(word: str) -> Kind | None:
    return _BY_NAME.get(word)
