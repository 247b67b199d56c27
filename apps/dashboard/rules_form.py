"""The form of a cluster's rules for drills. It only shapes input; the service judges it."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.drills.models import DrillRules


class LinesField(forms.CharField):
    """One text a line."""

    widget = forms.Textarea(attrs={"rows": 3})

    def clean(self, value: Any) -> Any:
        return [line.strip() for line in (super().clean(value) or "").splitlines() if line.strip()]


class RulesForm(forms.Form):
    """What drills may do on a cluster."""

    needs_approval = forms.BooleanField(
        required=False, label="Second approval", help_text="Somebody else approves each disruptive drill"
    )
    plan_only = forms.BooleanField(
        required=False, label="Plan only", help_text="Drills say what they would do; none begins"
    )
    windows = LinesField(
        required=False,
        label="Windows of disruptive drills",
        help_text="One a line, such as mon-fri 09:00-17:00; empty: always.",
    )
    time_zone = forms.CharField(max_length=64, label="Time zone", help_text="Of the windows.")
    max_nodes = forms.IntegerField(
        required=False, min_value=1, max_value=1_000_000, label="Most nodes of one drill", help_text="Empty: no limit."
    )
    max_tier_percent = forms.FloatField(
        required=False,
        min_value=0.1,
        max_value=100,
        label="Most of a tier's rate, %",
        help_text="That a reading drill may take; empty: no limit.",
    )
    breaker_failures = forms.IntegerField(
        min_value=1,
        max_value=100,
        label="Breaker",
        help_text="After so many disruptive drills in a row that went wrong no other starts.",
    )
    protected_runs = LinesField(
        required=False, label="Protected runs", help_text="One name a line: no drill touches these."
    )

    @classmethod
    def initial_of(cls, rules: DrillRules) -> dict[str, Any]:
        values = {name: getattr(rules, name) for name in cls.base_fields if hasattr(rules, name)}
        runs = rules.protected_runs.order_by("name").values_list("name", flat=True) if rules.is_stored else []
        ratio = rules.max_tier_ratio
        return {
            **values,
            "windows": "\n".join(rules.windows),
            "protected_runs": "\n".join(runs),
            "max_tier_percent": None if ratio is None else 100 * ratio,
        }

    def changes(self) -> dict[str, Any]:
        """What `rules.update_rules` takes."""
        given = dict(self.cleaned_data)
        percent = given.pop("max_tier_percent")
        return {**given, "max_tier_ratio": None if percent is None else percent / 100}
