"""The body of `POST /checkpoints:batch` and its answer."""

from __future__ import annotations

from typing import Any

from muster_agent.formats.base import Role as ShardRole
from rest_framework import serializers

from apps.checkpoints.intake import MAX_PATH_CHARACTERS, MAX_SHARD_PATH_CHARACTERS
from apps.core.serializers import StrictSerializer, WholeNumberField

MAX_ITEMS = 1000
MAX_SHARDS = 20_000
SHARD_ROLES = [(role.value, role.value) for role in ShardRole]
_MAX_BYTES = 2**63 - 1
_MAX_RANK = 2**31 - 1
_NAME = r"^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*\Z"
_PARTS_THAT_LEAD_AWAY = frozenset({"", ".", ".."})


class ToldShardSerializer(StrictSerializer):
    """One file, by its path inside the checkpoint."""

    path = serializers.RegexField(_NAME, max_length=MAX_SHARD_PATH_CHARACTERS)
    size_bytes = WholeNumberField(min_value=0, max_value=_MAX_BYTES)
    rank = WholeNumberField(min_value=0, max_value=_MAX_RANK, allow_null=True, default=None)
    role = serializers.ChoiceField(choices=SHARD_ROLES, default=ShardRole.OTHER.value)

    def validate_path(self, path: str) -> str:
        if _PARTS_THAT_LEAD_AWAY & set(path.split("/")):
            raise serializers.ValidationError("Name a file inside the checkpoint, without . and .. in it.")
        return path


class ToldCheckpointSerializer(StrictSerializer):
    """One copy of one checkpoint, as whoever saved it tells."""

    tier = serializers.CharField(max_length=63, help_text="A tier's id.")
    path = serializers.CharField(max_length=MAX_PATH_CHARACTERS, help_text="Below the tier's place.")
    run = serializers.CharField(max_length=255, help_text="The training run's name; it is made where it is new.")
    step = WholeNumberField(min_value=0, max_value=_MAX_BYTES)
    format = serializers.RegexField(r"^[a-z0-9_]{1,32}\Z")
    world_size = WholeNumberField(min_value=1, max_value=_MAX_RANK, allow_null=True, default=None)
    saved_at = serializers.DateTimeField(allow_null=True, default=None)
    shards = ToldShardSerializer(many=True, allow_empty=False)

    def validate_shards(self, shards: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len(shards) > MAX_SHARDS:
            raise serializers.ValidationError(f"At most {MAX_SHARDS} files are told at once.")
        if len({shard["path"] for shard in shards}) < len(shards):
            raise serializers.ValidationError("The same path is there twice.")
        if sum(shard["size_bytes"] for shard in shards) > _MAX_BYTES:
            raise serializers.ValidationError("Together they are larger than anything that is stored.")
        return shards


class RegisterCheckpointsSerializer(StrictSerializer):
    """Each item is judged by itself; `ToldCheckpoint` is its form."""

    items = serializers.ListField(child=serializers.DictField(), min_length=1, max_length=MAX_ITEMS)


class ItemErrorSerializer(serializers.Serializer[Any]):
    pointer = serializers.CharField(allow_null=True)
    code = serializers.CharField()
    detail = serializers.CharField()


class RegisteredItemSerializer(serializers.Serializer[Any]):
    """What became of the item at `index`: 201 recorded, 200 known already, else refused for `errors`."""

    index = serializers.IntegerField()
    status = serializers.IntegerField()
    placement = serializers.CharField(allow_null=True)
    checkpoint = serializers.CharField(allow_null=True)
    errors = ItemErrorSerializer(many=True)  # type: ignore[assignment]  # a field, not the serializer's own errors


class RegisteredSerializer(serializers.Serializer[Any]):
    items = RegisteredItemSerializer(many=True)
    created_count = serializers.IntegerField()
    known_count = serializers.IntegerField()
    refused_count = serializers.IntegerField()
