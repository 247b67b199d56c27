"""Channels and deliveries on the wire. No secret is ever among the answers, but once when it was made."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.alerts import targets
from apps.alerts.channels import secret_count
from apps.alerts.models import Channel, Delivery, DeliveryAttempt, Severity
from apps.core.serializers import StrictSerializer


class ChannelSerializer(serializers.ModelSerializer[Channel]):
    """`target` without what may be secret: a webhook's query is left out, and of Slack's address only the host is
    there. `secret_count` is 2 while a signing key is replaced, null where the secret cannot be opened any more."""

    kind = serializers.CharField(help_text=", ".join(Channel.Kind.values))
    target = serializers.SerializerMethodField()
    min_severity = serializers.CharField(help_text=", ".join(Severity.values))
    clusters = serializers.SerializerMethodField(help_text="Ids; empty: every cluster.")
    event_types = serializers.ListField(child=serializers.CharField(), help_text="Of webhooks.")
    secret_count = serializers.SerializerMethodField()

    class Meta:
        model = Channel
        fields = [
            "id", "name", "kind", "target", "secret_count", "secrets_set_at", "min_severity", "clusters", "event_types",
            "enabled", "disabled_reason", "last_delivered_at", "created_by", "created_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_target(self, channel: Channel) -> str:
        return targets.shown(channel)

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_clusters(self, channel: Channel) -> list[str]:
        return sorted(cluster.pk for cluster in channel.clusters.all())

    @extend_schema_field({"type": ["integer", "null"]})
    def get_secret_count(self, channel: Channel) -> int | None:
        return secret_count(channel)


class NewChannelSerializer(ChannelSerializer):
    """A channel just made; `signing_key` is shown this once, and empty where none was made."""

    signing_key = serializers.CharField(read_only=True)

    class Meta(ChannelSerializer.Meta):
        fields = [*ChannelSerializer.Meta.fields, "signing_key"]


class SigningKeySerializer(serializers.Serializer[Any]):
    signing_key = serializers.CharField(read_only=True, help_text="Shown this once.")


class RotateSerializer(StrictSerializer):
    keep_old = serializers.BooleanField(default=True, help_text="Sign with both until the old one is dropped.")
    signing_key = serializers.CharField(
        max_length=200, required=False, write_only=True, help_text="whsec_ and base 64; absent: one is made."
    )


class UpdateChannelSerializer(StrictSerializer):
    name = serializers.CharField(max_length=100, required=False)
    target = serializers.CharField(
        max_length=1024, required=False, allow_blank=True,
        help_text="E-mail: addresses, with commas. Webhook, Slack: the URL. PagerDuty: empty for its own.",
    )  # fmt: skip
    secret = serializers.CharField(
        max_length=200, required=False, write_only=True,
        help_text="PagerDuty: the routing key. Webhook: a signing key (absent: one is made). Never shown again.",
    )  # fmt: skip
    min_severity = serializers.ChoiceField(choices=Severity.choices, required=False)
    clusters = serializers.ListField(
        child=serializers.CharField(max_length=63),
        max_length=500,
        required=False,
        help_text="Ids or names; [] is all.",
    )
    event_types = serializers.ListField(
        child=serializers.CharField(max_length=64), max_length=50, required=False,
        help_text="Of webhooks: patterns such as alert.* and drill.failed.",
    )  # fmt: skip
    enabled = serializers.BooleanField(required=False)


class CreateChannelSerializer(UpdateChannelSerializer):
    name = serializers.CharField(max_length=100)
    kind = serializers.ChoiceField(choices=Channel.Kind.choices)
    target = serializers.CharField(max_length=1024, allow_blank=True, default="")


class DeliveryAttemptSerializer(serializers.ModelSerializer[DeliveryAttempt]):
    class Meta:
        model = DeliveryAttempt
        fields = ["at", "seconds", "status", "problem", "answer"]
        read_only_fields = fields


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """`event` is the `webhook-id`, the same at every try and replay."""

    channel_name = serializers.CharField(source="channel.name")
    event_type = serializers.CharField(source="event.type")
    state = serializers.CharField(help_text=", ".join(Delivery.State.values))

    class Meta:
        model = Delivery
        fields = [
            "id", "channel", "channel_name", "event", "event_type", "subject", "state", "tries", "problem",
            "next_attempt_at", "requested_by", "created_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class WholeDeliverySerializer(DeliverySerializer):
    """With every try, the newest first."""

    attempts = serializers.SerializerMethodField()
    event_data = serializers.JSONField(source="event.data")

    class Meta(DeliverySerializer.Meta):
        fields = [*DeliverySerializer.Meta.fields, "event_data", "attempts"]

    @extend_schema_field(DeliveryAttemptSerializer(many=True))
    def get_attempts(self, delivery: Delivery) -> Any:
        return DeliveryAttemptSerializer(delivery.attempts.order_by("-pk")[:100], many=True).data
