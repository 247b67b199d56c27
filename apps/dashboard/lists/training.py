"""Runs, their checkpoints and drills."""

from __future__ import annotations

from django.db.models import Count, Q

from apps.checkpoints.models import Placement, TrainingRun
from apps.dashboard.lists.spec import (
    BY_NAME,
    NEWEST,
    Choices,
    ListSpec,
    Rows,
    Sort,
    bounded,
    by_field,
    by_half,
    by_id,
    by_text,
)
from apps.dashboard.selectors import checkpoints as checkpoint_rows
from apps.dashboard.selectors import runs as run_rows
from apps.drills import selectors as drills
from apps.drills.models import Drill, DrillKind
from apps.fleet.access import scoped
from apps.recovery import objectives, readiness

RUNS = ListSpec(
    name="runs",
    noun="run",
    plural="runs",
    rows=lambda request: scoped(request, TrainingRun.objects.select_related("cluster"), "cluster"),
    dress=run_rows.with_newest,
    sorts=(*NEWEST, BY_NAME),
    choices=(
        by_half("archived", "Archived", (("no", "No"), ("yes", "Yes")), Q(archived_at=None)),
    ),
    search_for="Run name",
    search=by_text("name"),
    links={"cluster": by_id("cluster_id")},
    columns=(
        ("id", "pk"), ("name", "name"), ("cluster", "cluster.name"), ("gpu_count", "gpu_count"),
        ("rto_objective_seconds", "rto_objective_seconds"), ("rpo_objective_seconds", "rpo_objective_seconds"),
        ("required_trust", "required_trust"), ("last_step", "last_step"), ("last_report_at", "last_report_at"),
        ("newest_checkpoint_step", "newest_step"), ("created_at", "created_at"), ("archived_at", "archived_at"),
    ),
)  # fmt: skip


OBJECTIVES = ListSpec(
    name="objectives",
    noun="run",
    plural="runs",
    rows=lambda request: scoped(request, readiness.runs_to_judge().filter(archived_at=None), "cluster"),
    dress=objectives.ranked,
    sorts=(Sort("worst", "worst", "standing"), Sort("best", "best", "-standing"), BY_NAME),
    search_for="Run name",
    search=by_text("name"),
    links={"cluster": by_id("cluster_id")},
    columns=(
        ("id", "pk"), ("name", "name"), ("cluster", "cluster.name"), ("stands", objectives.state_of),
        ("judged_by", "judging_kind"), ("rto_objective_seconds", "rto_objective_seconds"),
        ("judged_count_28_days", "trial_count"), ("miss_count_28_days", "miss_count"),
        ("rpo_objective_seconds", "rpo_objective_seconds"),
    ),
)  # fmt: skip


def _of_copies(name: str, label: str, options: list[tuple[str, str]]) -> Choices:
    """Checkpoints of which some copy says so; one with copies of two kinds counts for both."""

    def tally(rows: Rows) -> dict[str, int]:
        copies = Placement.objects.filter(checkpoint__in=bounded(rows).values("pk"))
        return dict(copies.order_by().values_list(name).annotate(Count("checkpoint", distinct=True)))

    def narrow(rows: Rows, value: str) -> Rows:
        return checkpoint_rows.with_copy(rows, **{name: value})

    return Choices(name, label, tuple(options), narrow, tally)


CHECKPOINTS = ListSpec(
    name="checkpoints",
    noun="checkpoint",
    plural="checkpoints",
    rows=lambda request: scoped(request, checkpoint_rows.in_time(), "run__cluster"),
    dress=checkpoint_rows.with_copies,
    sorts=(
        Sort("newest", "newest", "-known_at"),
        Sort("oldest", "oldest", "known_at"),
        Sort("step", "step", "-step"),
        Sort("largest", "largest", "-total_bytes"),
    ),
    choices=(
        _of_copies("status", "Status", [(str(value), str(label)) for value, label in Placement.Status.choices]),
        _of_copies("trust", "Trust", [(str(value), str(label)) for value, label in Placement.Trust.choices]),
    ),
    search_for="Run name or step",
    search=checkpoint_rows.searched,
    time_field="known_at",
    sorts_of_links={"run": "step"},
    links={"run": by_id("run_id"), "tier": lambda rows, value: checkpoint_rows.with_copy(rows, tier_id=value)},
    columns=(
        ("id", "pk"), ("run", "run.name"), ("cluster", "run.cluster.name"), ("step", "step"), ("format", "format"),
        ("world_size", "world_size"), ("total_bytes", "total_bytes"), ("saved_at", "saved_at"),
        ("first_seen_at", "created_at"), ("open_damage_count", "damage_count"),
        ("copies", lambda row: "; ".join(f"{c.tier.name}: {c.status}, {c.trust}" for c in row.placements.all())),
    ),
)  # fmt: skip

OUTCOMES = {
    "unfinished": ("Unfinished", ~Q(state=Drill.State.FINISHED)),
    "passed": ("Passed", Q(outcome=Drill.Outcome.PASSED)),
    "breached": ("Breached", Q(objective_state=Drill.ObjectiveState.BREACHED)),
    "failed": ("Failed", Q(outcome=Drill.Outcome.FAILED)),
    "cancelled": ("Cancelled", Q(outcome=Drill.Outcome.CANCELLED)),
    "skipped": ("Skipped", Q(outcome=Drill.Outcome.SKIPPED)),
    "lost": ("Lost", Q(outcome=Drill.Outcome.LOST)),
}
"""Breached is a part of passed: restored, but late."""


def _outcomes(rows: Rows) -> dict[str, int]:
    counted = {value: Count("pk", filter=condition) for value, (_label, condition) in OUTCOMES.items()}
    return dict(bounded(rows).aggregate(**counted))


DRILLS = ListSpec(
    name="drills",
    noun="drill",
    plural="drills",
    rows=lambda request: scoped(request, drills.drills(), "cluster"),
    sorts=NEWEST,
    choices=(
        by_field("kind", "Kind", DrillKind.choices),
        Choices(
            "outcome",
            "Outcome",
            tuple((value, label) for value, (label, _condition) in OUTCOMES.items()),
            lambda rows, value: rows.filter(OUTCOMES[value][1]),
            _outcomes,
        ),
    ),
    search_for="Run name",
    search=by_text("run__name"),
    time_field="created_at",
    most_rows=100,
    links={"run": by_id("run_id"), "plan": by_id("plan_id"), "cluster": by_id("cluster_id")},
    columns=(
        ("id", "pk"), ("kind", "kind"), ("run", "run.name"), ("cluster", "cluster.name"), ("plan", "plan.name"),
        ("tier", "placement.tier.name"), ("checkpoint_step", "checkpoint_step"), ("state", "state"),
        ("outcome", "outcome"), ("objective_state", "objective_state"), ("objective_seconds", "objective_seconds"),
        ("seconds", "seconds"), ("is_storage_only", "is_storage_only"), ("total_bytes", "total_bytes"),
        ("bytes_per_second", "bytes_per_second"), ("efficiency_ratio", "efficiency_ratio"),
        ("cached_ratio_before", "cached_ratio_before"), ("lost_steps", "lost_steps"),
        ("lost_seconds", "lost_seconds"), ("reason", "reason"), ("requested_by", "requested_by"),
        ("created_at", "created_at"), ("started_at", "started_at"), ("finished_at", "finished_at"),
    ),
)  # fmt: skip

PLANS = ListSpec(
    name="plans",
    noun="plan",
    plural="plans",
    rows=lambda request: scoped(request, drills.plans(), "run__cluster"),
    sorts=(*NEWEST, BY_NAME),
    choices=(
        by_field("kind", "Kind", DrillKind.choices),
        by_half("enabled", "Switched", (("on", "On"), ("off", "Off")), Q(enabled=True)),
    ),
    search_for="Plan name",
    search=by_text("name"),
    links={"run": by_id("run_id")},
    columns=(
        ("id", "pk"), ("name", "name"), ("run", "run.name"), ("cluster", "run.cluster.name"), ("kind", "kind"),
        ("cron", "cron"), ("time_zone", "time_zone"), ("enabled", "enabled"), ("next_at", "next_at"),
        ("objective_seconds", "objective_seconds"), ("created_by", "created_by"), ("created_at", "created_at"),
    ),
)  # fmt: skip
