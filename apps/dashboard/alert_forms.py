"""The forms of alert rules and silences. They only shape input; the services judge it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone

from apps.alerts.models import AlertRule, RuleKind, Severity
from apps.alerts.rule_kinds import KINDS, Kind
from apps.core import units

Choices = Sequence[tuple[str, str]]


class SpanField(forms.CharField):
    """A span of time as people write it; seconds for the service."""

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        seconds = units.seconds_of(text)
        if text and seconds is None:
            raise forms.ValidationError("Write a span such as 30m, 36h or 7d.")
        return seconds


def span_text(seconds: float) -> str:
    """As the field takes it."""
    for name, unit in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and seconds % unit == 0:
            return f"{seconds / unit:.0f}{name}"
    return f"{seconds:g}s"


def threshold_field(kind: Kind) -> forms.Field | None:
    """For the kind's unit; None where it has none."""
    if kind.unit == "seconds":
        return SpanField(max_length=20, label="Longer than", help_text="Such as 30m, 36h or 7d.")
    if kind.unit == "ratio":
        told = f"A share or factor from 0 to {kind.most:g}, such as 0.9."
        return forms.FloatField(label="More than", min_value=0, max_value=kind.most, help_text=told)
    return None


class RuleForm(forms.Form):
    """What a rule says; its threshold is in the kind's unit."""

    enabled = forms.BooleanField(required=False, label="Enabled", help_text="Alerts on it")
    severity = forms.ChoiceField(choices=Severity.choices, help_text="Channels take alerts from a severity on.")

    def __init__(self, *args: Any, kind: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = threshold_field(KINDS[kind])
        if field is not None:
            self.fields["threshold"] = field

    @classmethod
    def initial_of(cls, rule: Any) -> dict[str, Any]:
        """What a rule says, as the form shows it."""
        values = {"enabled": rule.enabled, "severity": rule.severity}
        if rule.threshold is None:
            return values
        is_span = KINDS[rule.kind].unit == "seconds"
        return {**values, "threshold": span_text(rule.threshold) if is_span else rule.threshold}


class NewRuleForm(RuleForm):
    """The same, with the place it is for."""

    def __init__(self, *args: Any, kind: str, clusters: Choices, runs: Choices, **kwargs: Any) -> None:
        super().__init__(*args, kind=kind, **kwargs)
        own = self.fields
        self.fields = {"cluster": forms.ChoiceField(choices=clusters, label="Cluster")}
        if KINDS[kind].by_run:
            every = [("", "every run of it"), *runs]
            self.fields["run"] = forms.ChoiceField(choices=every, required=False, label="Training run")
        self.fields.update(own)


class SilenceForm(forms.Form):
    """Which alerts are not told, for how long and why."""

    reason = forms.CharField(max_length=500, label="Why", help_text="Such as: NAS maintenance, ticket 4711.")
    lasts = SpanField(max_length=20, label="For how long", initial="4h", help_text="Such as 30m, 4h, 2d; at most 90d.")
    cluster = forms.ChoiceField(label="Cluster")
    rule = forms.ChoiceField(required=False, label="Rule", choices=[("", "every rule"), *RuleKind.choices])
    run = forms.ChoiceField(required=False, label="Training run")
    subject_id = forms.CharField(max_length=40, required=False, label="Subject", help_text="The id of one thing.")
    summary_contains = forms.CharField(
        max_length=200, required=False, label="Text contains", help_text="Such as a node's or a tier's name."
    )

    def __init__(self, *args: Any, clusters: Choices, runs: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["cluster"].choices = clusters  # type: ignore[attr-defined]
        self.fields["cluster"].required = False
        self.fields["run"].choices = [("", "every run"), *runs]  # type: ignore[attr-defined]

    def details(self) -> dict[str, Any]:
        """What `silences.create_silence` takes beside the cluster and the run."""
        given = self.cleaned_data
        ends_at = timezone.now() + timedelta(seconds=given["lasts"])
        return {name: given[name] for name in ("reason", "rule", "subject_id", "summary_contains")} | {
            "ends_at": ends_at
        }


def threshold_words(rule: AlertRule) -> str:
    """For people; empty where the kind has none, or it holds from the first moment on."""
    if not rule.threshold:
        return ""
    kind = KINDS[rule.kind]
    if kind.unit == "seconds":
        return units.duration(rule.threshold)
    return f"{100 * rule.threshold:g} %" if kind.most == 1.0 else f"{rule.threshold:g} times"
