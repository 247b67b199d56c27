"""REST: long work of every kind in one shape."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.recovery import operations


class ProgressSerializer(serializers.Serializer[Any]):
    """`total` is null where nobody knows it yet."""

    done = serializers.IntegerField()
    total = serializers.IntegerField(allow_null=True)
    unit = serializers.CharField(help_text="bytes or checkpoints.")


class OperationSerializer(serializers.Serializer[Any]):
    """A drill, audit, transfer, repair, scan or measurement, whose id it has. `succeeded` is null until it is done."""

    id = serializers.CharField()
    kind = serializers.CharField(help_text="drill, audit, transfer, repair, scan or measurement.")
    state = serializers.CharField(help_text="The kind's own word.")
    done = serializers.BooleanField()
    succeeded = serializers.BooleanField(allow_null=True)
    outcome = serializers.CharField(allow_blank=True)
    error = serializers.CharField(allow_blank=True)
    progress = ProgressSerializer(allow_null=True)
    result_path = serializers.CharField(help_text="What it is, in full.")
    cancel_path = serializers.CharField(allow_null=True, help_text="POST here stops it; null where nothing does.")
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class OperationListSerializer(serializers.Serializer[Any]):
    items = OperationSerializer(many=True)


class OperationsView(APIView):
    @extend_schema(
        operation_id="list_operations",
        summary="What runs now, of every kind, newest first; at most 200",
        responses=OperationListSerializer,
    )
    def get(self, request: Request) -> Response:
        return Response(OperationListSerializer({"items": operations.running(request)}).data)


class OperationView(APIView):
    @extend_schema(
        operation_id="get_operation",
        summary="How far a drill, audit, transfer, repair, scan or measurement is, by its id",
        responses=OperationSerializer,
    )
    def get(self, request: Request, operation: str) -> Response:
        return Response(OperationSerializer(operations.operation(request, operation)).data)
