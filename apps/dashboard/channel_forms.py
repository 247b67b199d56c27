"""The forms of channels. They only shape input; the services judge it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from apps.alerts.models import Channel, Severity
from apps.alerts.wants import EVENT_TYPES
from apps.dashboard.rules_form import LinesField

Choices = Sequence[tuple[str, str]]
TARGETS = {
    "email": ("Addresses", "One or more, with commas."),
    "slack": ("Incoming webhook", "Its whole address is kept secret; only the host is shown later."),
    "pagerduty": ("Events API address", "Empty: PagerDuty's own."),
    "webhook": ("Address", "https, or http inside MUSTER_ALLOWED_NETWORKS."),
}


class ChannelForm(forms.Form):
    """What a channel of one kind has."""

    name = forms.CharField(max_length=100)
    target = forms.CharField(max_length=1024, required=False)
    min_severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.WARNING, label="From severity on")
    clusters = forms.MultipleChoiceField(required=False, label="Clusters", help_text="None chosen: every cluster.")
    enabled = forms.BooleanField(required=False, initial=True, help_text="Is told")

    def __init__(self, *args: Any, kind: str, clusters: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        self.fields["clusters"].choices = clusters  # type: ignore[attr-defined]
        self.fields["target"].label, self.fields["target"].help_text = TARGETS[kind]
        if kind == Channel.Kind.PAGERDUTY:
            self.fields["secret"] = forms.CharField(
                max_length=200, required=False, label="Routing key", widget=forms.PasswordInput(),
                help_text="Of the service's Events API v2 integration. Empty: as it is.",
            )  # fmt: skip
        if kind == Channel.Kind.WEBHOOK:
            told = f"One a line: {', '.join(EVENT_TYPES)}; alert.* takes all of alerts."
            self.fields["event_types"] = LinesField(label="Events", initial="alert.*", help_text=told)

    @classmethod
    def initial_of(cls, channel: Channel, shown_target: str) -> dict[str, Any]:
        return {
            "name": channel.name,
            "target": shown_target,
            "min_severity": channel.min_severity,
            "clusters": [cluster.pk for cluster in channel.clusters.all()],
            "enabled": channel.enabled,
            "event_types": "\n".join(channel.event_types),
        }

    def changes(self, shown_target: str) -> dict[str, Any]:
        """What `channels.update_channel` takes, but for the clusters, which are ids here. A target that was left as it
        was shown is left as it is."""
        given = dict(self.cleaned_data)
        if given["target"] == shown_target:
            del given["target"]
        if not given.get("secret"):
            given.pop("secret", None)
        return given
