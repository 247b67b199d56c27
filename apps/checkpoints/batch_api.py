"""REST: many checkpoints at once, told by whoever saved them."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import ErrorDetail
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.models import Role
from apps.checkpoints.batch_serializers import (
    RegisterCheckpointsSerializer,
    RegisteredSerializer,
    ToldCheckpointSerializer,
)
from apps.checkpoints.registering import ask_for_scans, register
from apps.core.errors import ApplicationError, InvalidInput
from apps.core.parsers import BoundedJSONParser, JSONLinesParser
from apps.core.serializers import body_of
from apps.fleet.access import require_role, scoped
from apps.storage.models import StorageTier


class RegisterCheckpointsView(APIView):
    parser_classes = (BoundedJSONParser, JSONLinesParser)

    @extend_schema(
        operation_id="register_checkpoints",
        summary="Tell of checkpoints that were saved: up to 1,000 copies, as JSON or one a line",
        description=(
            "Each item (`ToldCheckpoint`) gets an answer of its own, in order; those that are refused leave the others "
            "alone. A copy told here is `unknown` until a scan, which is asked for, has seen it. As "
            "`application/x-ndjson` each line is one item."
        ),
        request={"application/json": RegisterCheckpointsSerializer, "application/x-ndjson": ToldCheckpointSerializer},
        responses=RegisteredSerializer,
    )
    def post(self, request: Request) -> Response:
        items = body_of(request, RegisterCheckpointsSerializer)["items"]
        names = {item["tier"] for item in items if isinstance(item.get("tier"), str) and "\0" not in item["tier"]}
        tiers = {tier.pk: tier for tier in scoped(request, StorageTier.objects.filter(pk__in=names), "cluster")}
        answers = [_taken(request, index, item, tiers) for index, item in enumerate(items)]
        fresh = {items[one["index"]]["tier"] for one in answers if one["status"] == 201}
        ask_for_scans([tiers[pk] for pk in sorted(fresh)])
        counts = [sum(one["status"] == status for one in answers) for status in (201, 200)]
        body = {"items": answers, "created_count": counts[0], "known_count": counts[1]}
        return Response(RegisteredSerializer({**body, "refused_count": len(answers) - sum(counts)}).data)


def _taken(request: Request, index: int, item: Any, tiers: dict[str, StorageTier]) -> dict[str, Any]:
    told = ToldCheckpointSerializer(data=item)
    if not told.is_valid():
        return _refused(index, 400, list(_flat(told.errors, "")))
    values = dict(told.validated_data)
    try:
        tier = tiers.get(values["tier"])
        if tier is None:
            raise InvalidInput("There is no such tier that you may see.", pointer="/tier")
        require_role(request, Role.OPERATOR, tier.cluster_id)
        done = register(tier=tier, told=values, actor=request.user.get_username())
    except ApplicationError as error:
        found = {"pointer": error.pointer, "code": error.code, "detail": error.detail}
        return _refused(index, error.status, [found])
    ids = {"placement": done.placement.pk, "checkpoint": done.placement.checkpoint_id}
    return {"index": index, "status": 201 if done.is_new else 200, **ids, "errors": []}


def _refused(index: int, status: int, errors: list[dict[str, Any]]) -> dict[str, Any]:
    return {"index": index, "status": status, "placement": None, "checkpoint": None, "errors": errors}


def _flat(errors: Any, pointer: str) -> Any:
    """DRF's nested errors with a JSON pointer each."""
    if isinstance(errors, ErrorDetail):
        yield {"pointer": pointer or None, "code": errors.code, "detail": str(errors)}
    elif isinstance(errors, dict):
        for name, one in errors.items():
            yield from _flat(one, pointer if name == "non_field_errors" else f"{pointer}/{name}")
    else:
        for place, one in enumerate(errors):
            yield from _flat(one, pointer if isinstance(one, ErrorDetail) else f"{pointer}/{place}")
