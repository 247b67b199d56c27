"""The form of a retention policy. It only shapes input; the service judges it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from apps.dashboard.forms import Group
from apps.transfers.models import RetentionPolicy

_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Policy", ("run", "name", "hot_tier", "cold_tier", "enabled")),
    ("What stays on the fast tier", ("keep_newest", "move_after_days", "high_water_percent", "low_water_percent")),
    ("What is kept below", ("keep_every_steps", "expire_after_days", "optimizer_newest", "exempt_labels")),
    ("When it runs", ("cron", "time_zone", "on_complete")),
    ("How it moves", ("proof", "where", "max_mb_per_second")),
)
_RATIOS = {"high_water_percent": "high_water_ratio", "low_water_percent": "low_water_ratio"}
_PLAIN = (
    "name", "enabled", "keep_newest", "move_after_days", "keep_every_steps", "expire_after_days", "optimizer_newest",
    "cron", "time_zone", "on_complete", "proof", "where",
)  # fmt: skip


class PolicyForm(forms.Form):
    """Percent and MB/s for people; ratios and bytes for the service."""

    name = forms.CharField(max_length=63, help_text="a-z, 0-9, - and _.")
    hot_tier = forms.ChoiceField(label="Fast tier")
    cold_tier = forms.ChoiceField(required=False, label="Move to", help_text="A slower tier.")
    enabled = forms.BooleanField(required=False, initial=True, label="Enabled", help_text="Runs when it is due")
    keep_newest = forms.IntegerField(min_value=1, initial=4, label="Newest steps", help_text="Of each run.")
    move_after_days = forms.FloatField(
        required=False, min_value=0.001, label="Move after, days", help_text="Even if among the newest. Empty: never."
    )
    high_water_percent = forms.FloatField(
        required=False, min_value=1, max_value=100, label="High mark, %", help_text="Fuller than this: more moves."
    )
    low_water_percent = forms.FloatField(
        required=False, min_value=1, max_value=100, label="Low mark, %", help_text="Until it is this full."
    )
    keep_every_steps = forms.IntegerField(
        required=False, min_value=1, label="For good, every", help_text="Steps that divide by it never expire."
    )
    expire_after_days = forms.FloatField(
        required=False, min_value=0.001, label="Expire after, days", help_text="Gone for good. Empty: nothing expires."
    )
    optimizer_newest = forms.IntegerField(
        required=False, min_value=1, label="Optimizer state of", help_text="So many newest steps. Empty: of all."
    )
    exempt_labels = forms.CharField(required=False, label="Exempt labels", help_text="Such as release, paper.")
    cron = forms.CharField(
        max_length=100, required=False, label="Schedule (cron)", help_text="Such as 0 3 * * *; empty: not by time."
    )
    time_zone = forms.CharField(max_length=64, initial="UTC", label="Time zone", help_text="Such as Europe/Berlin.")
    on_complete = forms.BooleanField(
        required=False, label="New checkpoints", help_text="Run after each new complete checkpoint"
    )
    proof = forms.ChoiceField(
        choices=RetentionPolicy.Proof.choices, initial=RetentionPolicy.Proof.READ_BACK, label="Proof of a copy"
    )
    where = forms.ChoiceField(
        choices=RetentionPolicy.Where.choices, label="Moved by", help_text="Agents read and write on their own node."
    )
    max_mb_per_second = forms.IntegerField(
        required=False, min_value=1, label="Cap, MB/s", help_text="Of each transfer. Empty: only the tiers' limits."
    )

    def __init__(
        self,
        *args: Any,
        tiers: Sequence[tuple[str, str]],
        runs: Sequence[tuple[str, str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["hot_tier"].choices = list(tiers)  # type: ignore[attr-defined]
        self.fields["cold_tier"].choices = [("", "nothing is moved"), *tiers]  # type: ignore[attr-defined]
        if runs is not None:
            every = ("", "every run without a policy of its own")
            self.fields["run"] = forms.ChoiceField(choices=[every, *runs], required=False, label="Training run")

    @classmethod
    def initial_of(cls, policy: RetentionPolicy) -> dict[str, Any]:
        """What the policy says, as the form shows it."""
        initial: dict[str, Any] = {name: getattr(policy, name) for name in _PLAIN}
        for field, column in _RATIOS.items():
            ratio = getattr(policy, column)
            initial[field] = None if ratio is None else round(ratio * 100, 3)
        rate = policy.max_bytes_per_second
        return initial | {
            "hot_tier": policy.hot_tier_id,
            "cold_tier": policy.cold_tier_id or "",
            "exempt_labels": ", ".join(policy.exempt_labels),
            "max_mb_per_second": rate // 1_000_000 if rate else None,
        }

    def groups(self) -> list[Group]:
        """Every field once, under what it is about."""
        return [
            Group(title, "", tuple(self[name] for name in names if name in self.fields)) for title, names in _GROUPS
        ]

    def details(self) -> dict[str, Any]:
        """What `policies.create_policy` takes beside run and tiers."""
        given = self.cleaned_data
        details: dict[str, Any] = {name: given[name] for name in _PLAIN}
        for field, column in _RATIOS.items():
            details[column] = None if given[field] is None else given[field] / 100
        words = given["exempt_labels"].replace(",", " ").split()
        cap = given["max_mb_per_second"]
        return details | {"exempt_labels": words, "max_bytes_per_second": cap * 1_000_000 if cap else None}
