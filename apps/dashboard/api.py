"""REST: what spans several apps: search, saved views of lists, and one verb over many rows."""

from __future__ import annotations

from typing import Any

import django_filters.rest_framework as filters
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts import saved_views
from apps.accounts.access import capped, global_role, reaches, require
from apps.accounts.models import ApiToken, Role, SavedView, User
from apps.core.errors import NotFound
from apps.core.models import BulkItem, BulkOperation
from apps.core.serializers import body_of, query_of
from apps.dashboard.bulk import services
from apps.dashboard.selectors.find import found
from apps.dashboard.serializers import (
    BulkItemSerializer,
    BulkOperationSerializer,
    CreateBulkOperationSerializer,
    CreateSavedViewSerializer,
    SavedViewSerializer,
    SearchQuerySerializer,
    SearchSerializer,
)

ID = "[a-z0-9_-]+"


class SearchView(APIView):
    @extend_schema(
        operation_id="search",
        summary="Find runs, plans, nodes, tiers, clusters and checkpoints by name or step, anything by its id",
        parameters=[SearchQuerySerializer],
        responses=SearchSerializer,
    )
    def get(self, request: Request) -> Response:
        text = query_of(request, SearchQuerySerializer).validated_data["q"]
        return Response(SearchSerializer({"groups": found(request, text)}).data)


class SavedViewFilter(filters.FilterSet):  # type: ignore[misc]  # it ships no types
    list = filters.CharFilter(field_name="list_name", label="The list's page, such as drills")

    class Meta:
        model = SavedView
        fields: list[str] = []


@extend_schema_view(
    list=extend_schema(operation_id="list_saved_views", summary="Saved views of lists: one's own and the shared ones"),
    retrieve=extend_schema(operation_id="get_saved_view", summary="One saved view"),
)
class SavedViewViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[SavedView]):
    queryset = SavedView.objects.select_related("owner")
    serializer_class = SavedViewSerializer
    filterset_class = SavedViewFilter
    lookup_value_regex = ID
    sort_fields = ("-created_at", "name")

    def get_queryset(self) -> QuerySet[SavedView]:
        if getattr(self, "swagger_fake_view", False):
            return SavedView.objects.none()
        return saved_views.visible_to(_user(self.request))

    @extend_schema(
        operation_id="create_saved_view",
        summary="Keep a list's query under a name; the same name again gets the new query",
        request=CreateSavedViewSerializer,
        responses={201: SavedViewSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateSavedViewSerializer)
        view = saved_views.save_view(owner=_user(request), list_name=wanted.pop("list"), **wanted)
        return Response(SavedViewSerializer(view).data, status=status.HTTP_201_CREATED)

    @extend_schema(operation_id="delete_saved_view", summary="Delete a saved view", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        saved_views.delete_view(view=self._changeable(), actor=request.user.get_username())
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _changeable(self) -> SavedView:
        view: SavedView = self.get_object()
        if view.owner_id != _user(self.request).pk:
            require(_role(self.request), Role.ADMIN)
        return view


@extend_schema_view(
    list=extend_schema(operation_id="list_bulk_operations", summary="Bulk operations: one's own, all for an admin"),
    retrieve=extend_schema(operation_id="get_bulk_operation", summary="One bulk operation and how far it is"),
)
class BulkOperationViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[BulkOperation]):
    queryset = BulkOperation.objects.all()
    serializer_class = BulkOperationSerializer
    lookup_value_regex = ID
    sort_fields = ("-created_at",)

    def get_queryset(self) -> QuerySet[BulkOperation]:
        return operations_of(self.request)

    @extend_schema(
        operation_id="create_bulk_operation",
        summary="Do one thing to many rows: to these ids, or to all that match a list's query",
        description="Without `expected_count` nothing begins (200): the answer says how many rows would be meant, and "
        "how many of them would be refused for want of a role.",
        request=CreateBulkOperationSerializer,
        responses={200: BulkOperationSerializer, 201: BulkOperationSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateBulkOperationSerializer)
        chosen = services.choose(
            request,
            list_name=wanted["list"],
            verb_name=wanted["verb"],
            ids=wanted.get("ids", []),
            query=wanted.get("query"),
        )
        actor, parameters = request.user.get_username(), wanted["parameters"]
        if "expected_count" not in wanted:
            return Response(BulkOperationSerializer(_preview(chosen, parameters, actor)).data)
        operation = services.start(
            chosen=chosen, parameters=parameters, expected_count=wanted["expected_count"], actor=actor
        )
        return Response(BulkOperationSerializer(operation).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="cancel_bulk_operation",
        summary="Stop a bulk operation: rows that wait stay as they are",
        request=None,
        responses=BulkOperationSerializer,
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        operation = services.cancel(operation=self.get_object(), actor=request.user.get_username())
        return Response(BulkOperationSerializer(operation).data)


@extend_schema_view(
    list=extend_schema(operation_id="list_bulk_operation_items", summary="What became of each row of an operation")
)
class BulkItemViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[BulkItem]):
    queryset = BulkItem.objects.all()
    serializer_class = BulkItemSerializer
    sort_fields = ("id",)

    def get_queryset(self) -> QuerySet[BulkItem]:
        if getattr(self, "swagger_fake_view", False):
            return BulkItem.objects.none()
        operation = operations_of(self.request).filter(pk=self.kwargs["operation"]).first()
        if operation is None:
            raise NotFound("There is no such operation.")
        return BulkItem.objects.filter(operation=operation)


def operations_of(request: Any) -> QuerySet[BulkOperation]:
    """One's own; all for an admin."""
    if reaches(_role(request), Role.ADMIN):
        return BulkOperation.objects.all()
    return BulkOperation.objects.filter(actor=request.user.get_username())


def _preview(chosen: services.Chosen, parameters: dict[str, Any], actor: str) -> BulkOperation:
    """As the operation would be; no row."""
    told = BulkOperation(
        list_name=chosen.verb.list_name,
        verb=chosen.verb.name,
        parameters=parameters,
        query=chosen.query,
        actor=actor,
        state="preview",
        total_count=chosen.count,
        refused_count=len(chosen.refused),
        created_at=timezone.now(),
    )
    told.pk = None  # type: ignore[assignment]  # it is saved nowhere
    return told


def _user(request: Request) -> User:
    assert isinstance(request.user, User)
    return request.user


def _role(request: Any) -> Role:
    token = request.auth if isinstance(request.auth, ApiToken) else None
    return capped(global_role(request.user), token)
