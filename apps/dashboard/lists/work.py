"""What is done to copies, and what befell runs: audits, policies, transfers, incidents."""

from __future__ import annotations

from django.db.models import Count, Q

from apps.audits import selectors as audits
from apps.audits.models import Audit, AuditPolicy, Repair
from apps.dashboard.lists.spec import (
    BY_NAME,
    NEWEST,
    Choices,
    ListSpec,
    Sort,
    bounded,
    by_field,
    by_half,
    by_id,
    by_text,
)
from apps.fleet.access import scoped
from apps.recovery import selectors as recovery
from apps.recovery.models import Recovery
from apps.transfers import selectors as transfers
from apps.transfers.models import Transfer

UNFINISHED = "unfinished"
OUTCOMES = (
    (UNFINISHED, "Unfinished"),
    *((str(value), str(label)) for value, label in Audit.Outcome.choices if value),
)

AUDITS = ListSpec(
    name="audits",
    noun="audit",
    plural="audits",
    rows=lambda request: scoped(request, audits.audits(), "placement__checkpoint__run__cluster"),
    sorts=NEWEST,
    choices=(
        by_field("mode", "Mode", Audit.Mode.choices),
        Choices(
            "outcome",
            "Outcome",
            OUTCOMES,
            lambda rows, value: rows.filter(outcome="" if value == UNFINISHED else value),
            lambda rows: {
                value or UNFINISHED: count
                for value, count in bounded(rows).order_by().values_list("outcome").annotate(Count("pk"))
            },
        ),
    ),
    search_for="Run name",
    search=by_text("placement__checkpoint__run__name"),
    time_field="created_at",
    links={"policy": by_id("round__policy"), "round": by_id("round"), "run": by_id("placement__checkpoint__run_id")},
    columns=(
        ("id", "pk"), ("mode", "mode"), ("run", "placement.checkpoint.run.name"),
        ("step", "placement.checkpoint.step"), ("tier", "placement.tier.name"), ("path", "placement.path"),
        ("sample_ratio", "sample_ratio"), ("state", "state"), ("outcome", "outcome"), ("reason", "reason"),
        ("checked_bytes", "checked_bytes"), ("seconds", "seconds"), ("requested_by", "requested_by"),
        ("created_at", "created_at"), ("finished_at", "finished_at"),
    ),
)  # fmt: skip

AUDIT_POLICIES = ListSpec(
    name="audit-policies",
    noun="audit policy",
    plural="audit policies",
    rows=lambda request: scoped(request, audits.policies(), "cluster"),
    sorts=(*NEWEST, BY_NAME),
    choices=(by_field("mode", "What is read", AuditPolicy.Mode.choices),),
    search_for="Policy name",
    search=by_text("name"),
    columns=(
        ("id", "pk"), ("name", "name"), ("cluster", "cluster.name"), ("run", "run.name"), ("tier", "tier.name"),
        ("mode", "mode"), ("sample_ratio", "ratio"), ("cron", "cron"), ("time_zone", "time_zone"),
        ("enabled", "enabled"), ("next_at", "next_at"), ("created_at", "created_at"),
    ),
)  # fmt: skip

REPAIRS = ListSpec(
    name="repairs",
    noun="repair",
    plural="repairs",
    rows=lambda request: scoped(request, audits.repairs(), "placement__tier__cluster"),
    sorts=NEWEST,
    choices=(by_field("state", "State", Repair.State.choices),),
    search_for="Run name",
    search=by_text("placement__checkpoint__run__name"),
    time_field="created_at",
    links={"run": by_id("placement__checkpoint__run_id"), "copy": by_id("placement_id")},
    columns=(
        ("id", "pk"), ("run", "placement.checkpoint.run.name"), ("step", "placement.checkpoint.step"),
        ("tier", "placement.tier.name"), ("path", "placement.path"), ("from_tier", "source.tier.name"),
        ("from_path", "source.path"), ("state", "state"), ("problem", "problem"), ("files", "file_count"),
        ("bad_chunks", "chunk_count"), ("written_bytes", "written_bytes"), ("read_bytes", "read_bytes"),
        ("verified_after", "is_proven"), ("requested_by", "requested_by"), ("created_at", "created_at"),
        ("finished_at", "finished_at"),
    ),
)  # fmt: skip

POLICIES = ListSpec(
    name="policies",
    noun="policy",
    plural="policies",
    rows=lambda request: scoped(request, transfers.policies(), "cluster"),
    sorts=(*NEWEST, BY_NAME),
    choices=(
        by_half("mode", "Mode", (("plan", "Only plans"), ("act", "Acts")), Q(plan_only=True)),
    ),
    search_for="Policy name",
    search=by_text("name"),
    columns=(
        ("id", "pk"), ("name", "name"), ("cluster", "cluster.name"), ("run", "run.name"),
        ("hot_tier", "hot_tier.name"), ("cold_tier", "cold_tier.name"), ("keep_newest", "keep_newest"),
        ("plan_only", "plan_only"), ("enabled", "enabled"), ("next_at", "next_at"), ("created_at", "created_at"),
    ),
)  # fmt: skip

TRANSFERS = ListSpec(
    name="transfers",
    noun="transfer",
    plural="transfers",
    rows=lambda request: scoped(request, transfers.transfers(), "cluster"),
    sorts=NEWEST,
    choices=(
        by_field("state", "State", Transfer.State.choices),
        by_field("kind", "Kind", Transfer.Kind.choices),
    ),
    search_for="Run name",
    search=by_text("checkpoint__run__name"),
    time_field="created_at",
    links={"migration": by_id("migration_id"), "run": by_id("checkpoint__run_id")},
    columns=(
        ("id", "pk"), ("kind", "kind"), ("run", "checkpoint.run.name"), ("step", "checkpoint.step"),
        ("from_tier", "source.tier.name"), ("to_tier", "target_tier.name"), ("state", "state"),
        ("problem", "problem"), ("copied_bytes", "copied_bytes"), ("proven_bytes", "proven_bytes"),
        ("total_bytes", "total_bytes"), ("created_at", "created_at"), ("finished_at", "finished_at"),
    ),
)  # fmt: skip

INCIDENTS = ListSpec(
    name="incidents",
    noun="incident",
    plural="incidents",
    rows=lambda request: scoped(request, recovery.incidents(), "run__cluster"),
    sorts=(Sort("newest", "newest", "-fault_at"), Sort("oldest", "oldest", "fault_at")),
    choices=(by_field("state", "State", Recovery.State.choices, "recovery__state"),),
    search_for="Run name",
    search=by_text("run__name"),
    time_field="fault_at",
    links={"run": by_id("run_id")},
    columns=(
        ("id", "pk"), ("run", "run.name"), ("cluster", "run.cluster.name"), ("fault_at", "fault_at"),
        ("detail", "detail"), ("state", "recovery.state"),
        ("time_to_resume_seconds", "recovery.time_to_resume_seconds"), ("lost_steps", "recovery.lost_steps"),
        ("lost_seconds", "recovery.lost_seconds"),
    ),
)  # fmt: skip
