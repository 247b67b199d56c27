"""Bodies of what spans several apps."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.accounts.models import SavedView
from apps.core.models import BulkItem, BulkOperation
from apps.core.serializers import StrictSerializer
from apps.dashboard.bulk.services import MAX_ITEMS
from apps.dashboard.bulk.verbs import VERBS
from apps.dashboard.lists.catalogue import LISTS

_VERBS = sorted({verb for _list, verb in VERBS})


class SearchQuerySerializer(serializers.Serializer[Any]):
    q = serializers.CharField(max_length=200, help_text="A part of a name, a step, or an id.")


class FoundSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    detail = serializers.CharField(help_text="The cluster or the run that it belongs to.")
    url = serializers.CharField(help_text="Its page, from the server's root.")


class FoundGroupSerializer(serializers.Serializer[Any]):
    label = serializers.CharField()  # type: ignore[assignment]  # the base class has an attribute of that name
    items = FoundSerializer(many=True)


class SearchSerializer(serializers.Serializer[Any]):
    groups = FoundGroupSerializer(many=True)


class SavedViewSerializer(serializers.ModelSerializer[SavedView]):
    list = serializers.CharField(source="list_name", read_only=True, help_text="The list's page, such as drills.")
    owner = serializers.CharField(source="owner.username", read_only=True)

    class Meta:
        model = SavedView
        fields = ["id", "list", "name", "query", "shared", "owner", "created_at"]
        read_only_fields = fields


class CreateSavedViewSerializer(StrictSerializer):
    list = serializers.ChoiceField(choices=sorted(LISTS))
    name = serializers.CharField(max_length=100)
    query = serializers.CharField(max_length=2000, allow_blank=True, help_text="As in its address: kind=herd&q=x.")
    shared = serializers.BooleanField(default=False)


class CreateBulkOperationSerializer(StrictSerializer):
    list = serializers.ChoiceField(choices=sorted({name for name, _verb in VERBS}))
    verb = serializers.ChoiceField(choices=_VERBS)
    ids = serializers.ListField(
        child=serializers.CharField(max_length=40), required=False, max_length=MAX_ITEMS, help_text="These rows."
    )
    query = serializers.CharField(
        max_length=2000,
        required=False,
        allow_blank=True,
        help_text="All rows that match, as in the list's address; empty: all rows of the list.",
    )
    parameters = serializers.DictField(child=serializers.CharField(max_length=500), default=dict)
    expected_count = serializers.IntegerField(
        required=False,
        min_value=0,
        help_text="How many rows the caller means; nothing begins where it is another number (409). Absent: a preview.",
    )

    def validate(self, attrs: Any) -> Any:
        if ("ids" in attrs) == ("query" in attrs):
            raise serializers.ValidationError({"ids": "Give either ids or a query."})
        return attrs


class BulkOperationSerializer(serializers.ModelSerializer[BulkOperation]):
    id = serializers.CharField(read_only=True, allow_null=True, help_text="null: a preview, nothing has begun.")
    list = serializers.CharField(source="list_name", read_only=True)
    state = serializers.CharField(read_only=True, help_text="preview, queued, running, finished or cancelled.")
    parameters = serializers.DictField(read_only=True)

    class Meta:
        model = BulkOperation
        fields = [
            "id", "list", "verb", "parameters", "query", "actor", "state", "total_count", "done_count",
            "refused_count", "created_at", "finished_at",
        ]  # fmt: skip
        read_only_fields = fields


class BulkItemSerializer(serializers.ModelSerializer[BulkItem]):
    outcome = serializers.CharField(read_only=True, help_text="done, refused, or empty while it waits.")

    class Meta:
        model = BulkItem
        fields = ["target_id", "label", "outcome", "detail", "done_at"]
        read_only_fields = fields
