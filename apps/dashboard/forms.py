"""Forms of the pages. They only shape input; services judge it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms

from apps.checkpoints.models import TrainingRun
from apps.drills.models import CheckpointChoice, DrillKind, DrillPlan, Fault, ReadMapping
from apps.drills.spec import BACKENDS, RUNNERS, SIGNALS
from apps.storage.models import StorageTier


class ObjectivesForm(forms.Form):
    """What a run promises: empty means no objective."""

    rto_objective_seconds = forms.FloatField(
        required=False,
        min_value=0.001,
        label="Time to resume, seconds",
        help_text="From the fault to the first new step.",
    )
    rpo_objective_seconds = forms.FloatField(
        required=False,
        min_value=0.001,
        label="Lost work, seconds",
        help_text="Age that the newest usable checkpoint may have.",
    )
    gpu_count = forms.IntegerField(
        required=False, min_value=1, label="GPUs", help_text="What a minute of waiting costs."
    )

    required_trust = forms.ChoiceField(
        required=False,
        choices=TrainingRun.RequiredTrust.choices,
        label="Launch script requires",
        help_text="What it gives to resume-point as --require.",
    )

    @classmethod
    def of(cls, run: TrainingRun) -> ObjectivesForm:
        fields = ("rto_objective_seconds", "rpo_objective_seconds", "gpu_count", "required_trust")
        return cls(initial={name: getattr(run, name) for name in fields})

    @property
    def changes(self) -> dict[str, Any]:
        """What was said; a form without a required trust leaves it."""
        return {name: value for name, value in self.cleaned_data.items() if value != "" or name != "required_trust"}


class RunObjectivesForm(forms.Form):
    """The two objectives alone, as the list of objectives has them: empty means none."""

    rto_objective_seconds = forms.FloatField(
        required=False, min_value=0.001, label="Time to resume, seconds", help_text="Empty: no objective."
    )
    rpo_objective_seconds = forms.FloatField(
        required=False, min_value=0.001, label="Lost work, seconds", help_text="Empty: no objective."
    )

    @classmethod
    def of(cls, run: TrainingRun) -> RunObjectivesForm:
        fields = ("rto_objective_seconds", "rpo_objective_seconds")
        return cls(initial={name: getattr(run, name) for name in fields}, auto_id=f"{run.pk}_%s")


class AdviceForm(forms.Form):
    """What if it were otherwise: an empty field stays as it is known."""

    gpu_count = forms.IntegerField(required=False, min_value=1, max_value=1_000_000, label="GPUs")
    gpus_per_node = forms.IntegerField(required=False, min_value=1, max_value=1024, label="GPUs per node")
    gpu_hour_cost = forms.FloatField(required=False, min_value=0, max_value=1e6, label="Cost of a GPU-hour")
    failures_per_node_day = forms.FloatField(
        required=False, min_value=1e-9, max_value=1000, label="Failures per node and day"
    )
    mtbf_seconds = forms.FloatField(required=False, min_value=1, max_value=1e10, label="Between failures, seconds")
    save_seconds = forms.FloatField(
        required=False,
        min_value=0.001,
        max_value=1e7,
        label="Save, seconds",
        help_text="What it holds training up: with asynchronous saves less than all of it.",
    )
    interval_seconds = forms.FloatField(required=False, min_value=0.001, max_value=1e8, label="Between saves, seconds")
    resume_seconds = forms.FloatField(required=False, min_value=0, max_value=1e8, label="Time to resume, seconds")
    objective_seconds = forms.FloatField(required=False, min_value=0.001, max_value=1e8, label="Objective, seconds")
    repair_hours = forms.FloatField(required=False, min_value=0.001, max_value=1e5, label="Repair of a node, hours")


class WhatIfForm(forms.Form):
    """A size and a fleet that were never drilled; an objective is answered backwards."""

    gigabytes = forms.FloatField(required=False, min_value=0.001, max_value=1e9, label="Checkpoint, GB")
    ranks = forms.IntegerField(required=False, min_value=1, max_value=1_000_000, label="Ranks")
    readers = forms.IntegerField(
        required=False, min_value=1, max_value=1_000_000, label="Nodes reading", help_text="All of them if empty."
    )
    objective_seconds = forms.FloatField(required=False, min_value=0.001, max_value=1e8, label="Objective, seconds")


class LadderField(forms.CharField):
    """`1, 2, 4` to [1, 2, 4]."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value) or ""
        words = [word for word in text.replace(",", " ").split() if word]
        if not all(word.isascii() and word.isdigit() for word in words):
            raise forms.ValidationError("Give whole client counts, such as 1, 2, 4.")
        return [int(word) for word in words]


@dataclass(frozen=True)
class Group:
    """Fields that belong together; `kinds` are the drill kinds that have them (all where empty), for the script."""

    title: str
    kinds: str
    fields: tuple[forms.BoundField, ...]


class SpecForm(forms.Form):
    """What a drill does. Fields that do not belong to the kind are left out of the answer."""

    own_title = ""
    """Of the fields that are no drill's: a plan's schedule, say."""

    kind = forms.ChoiceField(
        choices=DrillKind.choices,
        help_text="Failover breaks a worker; standby puts in a spare; the others read storage only.",
    )
    choice = forms.ChoiceField(
        choices=CheckpointChoice.choices, initial=CheckpointChoice.LATEST_VERIFIED, label="Checkpoint", required=False
    )
    step = forms.IntegerField(required=False, min_value=0, label="Step", help_text="Only for the choice “named”.")
    window_days = forms.IntegerField(
        required=False, min_value=1, max_value=3650, label="Window, days", help_text="Only for a random checkpoint."
    )
    node_count = forms.IntegerField(
        required=False, min_value=1, label="Nodes", help_text="Empty: as many as are online."
    )
    ladder = LadderField(required=False, label="Herd ladder", help_text="Client counts, such as 1, 2, 4.")
    loader = forms.CharField(
        required=False, max_length=64, help_text="As a node's config.json calls the team's own loader."
    )
    runner = forms.ChoiceField(
        choices=[(name, name) for name in RUNNERS], required=False, help_text="auto takes the first that a node has."
    )
    runner_seconds = forms.IntegerField(
        required=False, min_value=1, max_value=600, label="Seconds", help_text="Each node reads so long; 10 if empty."
    )
    mapping = forms.ChoiceField(choices=ReadMapping.choices, required=False, label="Who reads what")
    every_tier = forms.BooleanField(
        required=False, label="Compare tiers", help_text="Read the copy on every tier that has one"
    )
    repeats = forms.IntegerField(
        required=False, min_value=1, max_value=20, label="Repeats", help_text="Of each round; the median counts."
    )
    device = forms.CharField(
        required=False, max_length=16, label="Device", help_text="Empty or auto; cpu, cuda or cuda:N."
    )
    abort_stall_seconds = forms.IntegerField(
        required=False, min_value=10, label="Fail if stalled, seconds", help_text="Without progress of a client."
    )
    abort_slowdown_ratio = forms.FloatField(
        required=False,
        min_value=1.01,
        label="Give up if jobs slow down",
        help_text="Times longer per step: 1.5.",
    )
    backend = forms.ChoiceField(choices=[(name, name) for name in BACKENDS], required=False, label="Read backend")
    evict = forms.BooleanField(
        required=False, initial=True, label="Page cache", help_text="Evict the shards from the page cache first"
    )
    max_mb_per_second = forms.IntegerField(
        required=False, min_value=1, label="Cap, MB/s per node", help_text="Empty: only the agents' own caps."
    )
    signal_name = forms.ChoiceField(
        choices=[(name, name) for name in SIGNALS], required=False, label="Signal", help_text="What ends a process."
    )
    fault = forms.ChoiceField(choices=Fault.choices, required=False, label="What breaks")
    worker_rank = forms.IntegerField(required=False, min_value=0, label="Rank", help_text="Empty: a random one.")
    worker_node = forms.CharField(required=False, max_length=253, label="Node", help_text="Empty: any.")
    link = forms.CharField(
        required=False, max_length=64, label="Link", help_text="Only for a link: its name in the node's configuration."
    )
    objective_seconds = forms.FloatField(
        required=False, min_value=0.001, label="Objective, seconds", help_text="Empty: the run's own objective."
    )

    def groups(self) -> list[Group]:
        """Every visible field once, under the kinds of drill that it is for."""
        fields = {field.name: field for field in self.visible_fields()}
        grouped = {name for _title, _kinds, names in _GROUPS for name in names}
        own = tuple(field for name, field in fields.items() if name not in grouped)
        rest = [
            Group(title, " ".join(kinds), tuple(fields[name] for name in names if name in fields))
            for title, kinds, names in _GROUPS
        ]
        return [Group(self.own_title, "", own), *rest] if own else rest

    def spec(self) -> dict[str, Any]:
        """The `spec` that `drills.services.create_drill` takes."""
        given = {name: value for name, value in self.cleaned_data.items() if value not in (None, "", [])}
        cap = given.pop("max_mb_per_second", None)
        if cap:
            given["max_bytes_per_second"] = cap * 1_000_000
        spec = {name: value for name, value in given.items() if name in SPEC_NAMES}
        spec["evict"] = bool(self.cleaned_data.get("evict"))
        spec["every_tier"] = bool(self.cleaned_data.get("every_tier"))
        for name in _FOREIGN[spec["kind"]]:
            spec.pop(name, None)
        if spec.get("choice") != CheckpointChoice.NAMED:
            spec.pop("step", None)
        return spec


READING_NAMES = ("mapping", "every_tier", "repeats", "device", "abort_stall_seconds", "abort_slowdown_ratio")
RUNNER_NAMES = ("runner", "runner_seconds", "loader")
FAULT_NAMES = ("fault", "signal_name", "worker_rank", "worker_node", "link")
SPEC_NAMES = {
    "kind",
    "choice",
    "step",
    "window_days",
    "node_count",
    "ladder",
    "backend",
    "evict",
    "max_bytes_per_second",
    *FAULT_NAMES,
    "objective_seconds",
    "tier",
    *READING_NAMES,
    *RUNNER_NAMES,
}
_READING = (DrillKind.RELOAD, DrillKind.HERD)
_ANY_READING = (*_READING, DrillKind.BANDWIDTH, DrillKind.LOADER_COMPARE)
_GROUPS: tuple[tuple[str, tuple[DrillKind, ...], tuple[str, ...]], ...] = (
    ("Drill", (), ("kind", "objective_seconds")),
    ("What is read", _ANY_READING, ("choice", "step", "window_days", "tier", "every_tier")),
    ("Who reads it", _ANY_READING, ("node_count", "repeats", "device", "evict")),
    ("How a reload or herd reads", _READING, ("mapping", "backend", "max_mb_per_second")),
    ("When it is given up", _ANY_READING, ("abort_stall_seconds", "abort_slowdown_ratio")),
    ("What it is compared with", (DrillKind.LOADER_COMPARE,), ("loader",)),
    ("How bandwidth is read", (DrillKind.BANDWIDTH,), ("runner", "runner_seconds")),
    ("Clients of a herd", (DrillKind.HERD,), ("ladder",)),
    ("Fault of a failover", (DrillKind.FAILOVER,), ("fault", "signal_name", "worker_rank", "link")),
    ("Where a failover or standby drill acts", (DrillKind.FAILOVER, DrillKind.STANDBY), ("worker_node",)),
)
SHOWN_WHEN = {"step": CheckpointChoice.NAMED, "window_days": CheckpointChoice.RANDOM}
"""Fields that one choice of a checkpoint asks for."""
_READ_NAMES = (
    "ladder", "backend", "choice", "step", "window_days", "node_count", "max_bytes_per_second", "tier", *READING_NAMES,
    *RUNNER_NAMES,
)  # fmt: skip
_FOREIGN: dict[str, tuple[str, ...]] = {
    DrillKind.RELOAD: ("ladder", *FAULT_NAMES, *RUNNER_NAMES),
    DrillKind.HERD: (*FAULT_NAMES, *RUNNER_NAMES),
    DrillKind.LOADER_COMPARE: ("ladder", *FAULT_NAMES, "runner", "runner_seconds"),
    DrillKind.BANDWIDTH: ("ladder", *FAULT_NAMES, "backend", "mapping", "max_bytes_per_second", "loader"),
    DrillKind.FAILOVER: _READ_NAMES,
    DrillKind.STANDBY: (*_READ_NAMES, *(name for name in FAULT_NAMES if name != "worker_node")),
}


class DrillForm(SpecForm):
    """One drill, now: on a run."""

    field_order = ["run", "kind"]

    def __init__(
        self, *args: Any, runs: list[tuple[str, str]], tiers: Sequence[tuple[str, str]] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["run"] = forms.ChoiceField(choices=runs, label="Training run")
        self.fields["tier"] = forms.ChoiceField(
            choices=[("", "the fastest that holds it"), *tiers], required=False, label="Tier"
        )
        self.order_fields(self.field_order)


class PlanForm(SpecForm):
    """A drill on a schedule."""

    own_title = "Plan"

    field_order = [
        "run", "name", "cron", "time_zone", "start_window_seconds", "missed", "overlap", "smear_seconds", "enabled",
        "kind",
    ]  # fmt: skip
    name = forms.CharField(max_length=100)
    cron = forms.CharField(
        max_length=100, required=False, label="Schedule (cron)", help_text="Such as 0 3 * * *; empty: only by hand."
    )
    time_zone = forms.CharField(max_length=64, initial="UTC", label="Time zone", help_text="Such as Europe/Berlin.")
    missed = forms.ChoiceField(
        choices=DrillPlan.Missed.choices, label="If a time was missed", initial=DrillPlan.Missed.SKIP
    )
    start_window_seconds = forms.IntegerField(
        required=False, min_value=10, max_value=86_400, label="Start window, seconds", help_text="Later is missed; 60."
    )
    overlap = forms.ChoiceField(choices=DrillPlan.Overlap.choices, required=False, label="If the last one still runs")
    smear_seconds = forms.IntegerField(
        required=False, min_value=0, max_value=1800, label="Smear, seconds", help_text="Begins up to so much later."
    )
    enabled = forms.BooleanField(required=False, initial=True, label="Enabled", help_text="Starts by itself")

    def __init__(self, *args: Any, runs: list[tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if runs is not None:
            self.fields["run"] = forms.ChoiceField(choices=runs, label="Training run")
        self.order_fields(self.field_order)

    @classmethod
    def initial_of(cls, plan: DrillPlan) -> dict[str, Any]:
        names = [name for name in cls.base_fields if hasattr(plan, name)]
        initial = {name: getattr(plan, name) for name in names}
        initial["ladder"] = ", ".join(str(count) for count in plan.ladder)
        if plan.max_bytes_per_second:
            initial["max_mb_per_second"] = plan.max_bytes_per_second // 1_000_000
        return initial

    def schedule(self) -> dict[str, Any]:
        given = {name: self.cleaned_data[name] for name in ("name", "cron", "time_zone", "missed", "enabled")}
        optional = {name: self.cleaned_data.get(name) for name in ("start_window_seconds", "overlap", "smear_seconds")}
        return {**given, **{name: value for name, value in optional.items() if value not in (None, "")}}


class TierScanForm(forms.Form):
    """When a tier is listed by itself, and by whom."""

    scan_cron = forms.CharField(
        max_length=100,
        required=False,
        label="Schedule (cron)",
        help_text="Such as 0 3 * * *; empty: whenever its last scan is old, and a bucket only when asked.",
    )
    scan_time_zone = forms.CharField(
        max_length=64, initial="UTC", label="Time zone", help_text="Such as Europe/Berlin."
    )
    scanned_by = forms.ChoiceField(
        choices=StorageTier.ScannedBy.choices,
        label="Scanned by",
        help_text="Workers list it themselves where MUSTER_WORKER_ROOTS has its folder or bucket.",
    )

    @classmethod
    def initial_of(cls, tier: StorageTier) -> dict[str, Any]:
        return {name: getattr(tier, name) for name in cls.base_fields}


class JoinTokenForm(forms.Form):
    """How many nodes may join with it, for how long, and from where."""

    max_uses = forms.IntegerField(
        min_value=1, max_value=16_384, initial=1, label="Nodes", help_text="More than 1: each waits for approval."
    )
    hours = forms.IntegerField(min_value=1, max_value=24, initial=24, label="Valid for, hours")
    cidr = forms.CharField(
        required=False, max_length=64, label="Only from (CIDR)", help_text="Such as 10.20.0.0/16; empty: from anywhere."
    )


class ClusterCostForm(forms.Form):
    """What lost work on a cluster costs; empty means that no money is shown."""

    gpu_count = forms.IntegerField(
        required=False, min_value=1, label="GPUs", help_text="For runs that do not say how many they use."
    )
    gpu_hour_cost = forms.DecimalField(
        required=False,
        min_value=0,
        max_digits=10,
        decimal_places=4,
        label="Cost of a GPU-hour",
        help_text="In your own currency; every figure is in it.",
    )


class AuditForm(forms.Form):
    """Which copy, and how much of it."""

    placement = forms.CharField(max_length=40)
    mode = forms.ChoiceField(
        choices=[
            ("seal", "Seal"),
            ("verify", "Verify"),
            ("structure", "Look at its structure"),
            ("store", "Ask the store"),
        ]
    )
    sample_percent = forms.FloatField(required=False, min_value=0.001, max_value=100)

    @property
    def sample_ratio(self) -> float:
        return float(self.cleaned_data.get("sample_percent") or 100) / 100
