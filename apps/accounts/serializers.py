"""Accounts on the wire."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.accounts.models import ActivityCheck, ActivityEntry, ApiToken, Role, User
from apps.core.serializers import StrictSerializer, WholeNumberField

TOKEN_ROLES = [(role.value, role.label) for role in Role if role != Role.NONE]


class WhoAmISerializer(serializers.Serializer[Any]):
    username = serializers.CharField()
    role = serializers.ChoiceField(choices=Role.choices, allow_blank=True)
    is_service = serializers.BooleanField()
    token_expires_at = serializers.DateTimeField(allow_null=True, help_text="Of the token; null for a session.")


class TokenSerializer(serializers.ModelSerializer[ApiToken]):
    user = serializers.CharField(source="user.username")

    class Meta:
        model = ApiToken
        fields = ["id", "name", "user", "role", "created_at", "expires_at", "last_used_at", "revoked_at"]


class NewTokenSerializer(TokenSerializer):
    """A token just made: the only time its secret is shown."""

    secret = serializers.CharField(read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = [*TokenSerializer.Meta.fields, "secret"]


class CreateTokenSerializer(StrictSerializer):
    name = serializers.CharField(max_length=100)
    role = serializers.ChoiceField(choices=TOKEN_ROLES, default=Role.VIEWER.value)
    days = WholeNumberField(min_value=1, max_value=365, default=90)
    username = serializers.CharField(max_length=150, required=False, help_text="Another account's; admins only.")


class UserSerializer(serializers.ModelSerializer[User]):
    class Meta:
        model = User
        fields = ["id", "username", "role", "is_service", "is_active", "date_joined", "last_login"]


class CreateUserSerializer(StrictSerializer):
    username = serializers.RegexField(r"^[\w.@+-]{1,150}\Z")
    role = serializers.ChoiceField(choices=Role.choices, allow_blank=True, default=Role.VIEWER.value)
    is_service = serializers.BooleanField(default=False)
    password = serializers.CharField(max_length=256, required=False, write_only=True)


class UpdateUserSerializer(StrictSerializer):
    role = serializers.ChoiceField(choices=Role.choices, allow_blank=True, required=False)
    is_active = serializers.BooleanField(required=False)


class ActivitySerializer(serializers.ModelSerializer[ActivityEntry]):
    cluster = serializers.CharField(source="cluster_id", help_text="Empty where it is about no one cluster.")
    request_id = serializers.CharField(help_text="Empty where no request did it, as on the command line.")
    previous = serializers.CharField(help_text="The digest of the entry before; 64 zeros before the first.")
    digest = serializers.CharField(help_text="SHA-256 of the entry's canonical JSON (docs/security.md).")

    class Meta:
        model = ActivityEntry
        fields = [
            "id", "at", "actor", "action", "target_kind", "target_id", "cluster", "request_id", "detail", "previous",
            "digest",
        ]  # fmt: skip


class ActivityCheckSerializer(serializers.ModelSerializer[ActivityCheck]):
    up_to_id = serializers.IntegerField(help_text="The last entry up to which the chain holds; 0 where there is none.")
    broken_id = serializers.IntegerField(allow_null=True, help_text="The first entry that does not hold.")

    class Meta:
        model = ActivityCheck
        fields = ["at", "up_to_id", "entry_count", "broken_id", "problem"]


class ExportQuerySerializer(serializers.Serializer[Any]):
    after = WholeNumberField(
        min_value=0, max_value=2**63 - 1, default=0, help_text="Only entries behind the one with this id."
    )
