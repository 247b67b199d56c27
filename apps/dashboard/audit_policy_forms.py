"""The form of an audit policy. It only shapes input; the service judges it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from apps.audits.models import AuditPolicy
from apps.dashboard.forms import Group

_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Policy", ("cluster", "name", "enabled")),
    ("Which copies", ("run", "tier", "newest", "skip_verified_days")),
    ("How thoroughly", ("mode", "sample_percent", "repairs")),
    ("When it runs", ("cron", "time_zone", "missed")),
    ("By whom, how fast", ("where", "at_once", "max_mb_per_second", "through_cache")),
)
_PLAIN = (
    "name", "enabled", "newest", "skip_verified_days", "mode", "repairs", "cron", "time_zone", "missed", "where",
    "at_once", "through_cache",
)  # fmt: skip


class AuditPolicyForm(forms.Form):
    """Percent and MB/s for people; ratios and bytes for the service."""

    name = forms.CharField(max_length=63, help_text="a-z, 0-9, - and _.")
    enabled = forms.BooleanField(required=False, initial=True, label="Enabled", help_text="Runs when it is due")
    run = forms.ChoiceField(required=False, label="Training run")
    tier = forms.ChoiceField(required=False, label="Tier")
    newest = forms.IntegerField(
        required=False, min_value=1, label="Newest steps", help_text="Of each run on each tier. Empty: all."
    )
    skip_verified_days = forms.FloatField(
        required=False, min_value=0.001, label="Skip if proven, days", help_text="Whole, within so many days."
    )
    mode = forms.ChoiceField(choices=AuditPolicy.Mode.choices, initial=AuditPolicy.Mode.SAMPLE, label="What is read")
    sample_percent = forms.FloatField(
        min_value=0.001, max_value=100, initial=10, label="Sample, %", help_text="Each run reads other chunks."
    )
    repairs = forms.BooleanField(
        required=False, label="Repair", help_text="Rewrite bad chunks from a verified copy at once"
    )
    cron = forms.CharField(
        max_length=100, required=False, label="Schedule (cron)", help_text="Such as 0 3 * * *; empty: by hand."
    )
    time_zone = forms.CharField(max_length=64, initial="UTC", label="Time zone", help_text="Such as Europe/Berlin.")
    missed = forms.ChoiceField(
        choices=AuditPolicy.Missed.choices, label="If a time was missed", initial=AuditPolicy.Missed.SKIP
    )
    where = forms.ChoiceField(
        choices=AuditPolicy.Where.choices, initial=AuditPolicy.Where.AS_SCANNED, label="Who reads"
    )
    at_once = forms.IntegerField(min_value=1, max_value=1000, initial=1, label="Audits at once")
    max_mb_per_second = forms.IntegerField(
        required=False, min_value=1, label="Cap, MB/s", help_text="Of all its audits together."
    )
    through_cache = forms.BooleanField(
        required=False,
        label="Through the page cache",
        help_text="Faster for warm files; damage on the storage below what memory holds stays unseen",
    )

    def __init__(
        self,
        *args: Any,
        runs: Sequence[tuple[str, str]],
        tiers: Sequence[tuple[str, str]],
        clusters: Sequence[tuple[str, str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["run"].choices = [("", "every run"), *runs]  # type: ignore[attr-defined]
        self.fields["tier"].choices = [("", "every tier"), *tiers]  # type: ignore[attr-defined]
        if clusters is not None:
            self.fields["cluster"] = forms.ChoiceField(choices=clusters, label="Cluster")

    @classmethod
    def initial_of(cls, policy: AuditPolicy) -> dict[str, Any]:
        """What the policy says, as the form shows it."""
        rate = policy.max_bytes_per_second
        return {name: getattr(policy, name) for name in _PLAIN} | {
            "run": policy.run_id or "",
            "tier": policy.tier_id or "",
            "sample_percent": round(policy.sample_ratio * 100, 3),
            "max_mb_per_second": rate // 1_000_000 if rate else None,
        }

    def groups(self) -> list[Group]:
        """Every field once, under what it is about."""
        return [
            Group(title, "", tuple(self[name] for name in names if name in self.fields)) for title, names in _GROUPS
        ]

    def details(self) -> dict[str, Any]:
        """What `policies.create_policy` takes beside the cluster, the run and the tier."""
        given = self.cleaned_data
        cap = given["max_mb_per_second"]
        return {name: given[name] for name in _PLAIN} | {
            "sample_ratio": given["sample_percent"] / 100,
            "max_bytes_per_second": cap * 1_000_000 if cap else None,
        }
