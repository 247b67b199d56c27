"""REST: channels and deliveries. They are of no single cluster, so roles must hold everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.alerts import channels, deliveries
from apps.alerts.channels_serializers import (
    ChannelSerializer,
    CreateChannelSerializer,
    DeliverySerializer,
    NewChannelSerializer,
    RotateSerializer,
    SigningKeySerializer,
    UpdateChannelSerializer,
    WholeDeliverySerializer,
)
from apps.alerts.filters import ChannelFilter, DeliveryFilter
from apps.core.etags import EDITABLE, ConditionalMixin
from apps.core.serializers import body_of
from apps.fleet.access import require_role
from apps.storage.api import visible_cluster


class _OfMuster(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Any]):
    """Asks for the action's role on every cluster before anything is looked up."""

    needs: ClassVar[Mapping[str, Role]] = {}
    lookup_value_regex = "[a-z0-9_]+"
    sort_fields: ClassVar[tuple[str, ...]] = ("-created_at",)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require_role(request, self.needs.get(self.action, Role.VIEWER))

    @property
    def actor(self) -> str:
        return self.request.user.get_username()


@extend_schema_view(
    list=extend_schema(operation_id="list_channels", summary="List channels"),
    retrieve=extend_schema(operation_id="get_channel", summary="One channel"),
)
class ChannelViewSet(ConditionalMixin, _OfMuster):
    queryset = channels.channel_rows()
    serializer_class = ChannelSerializer
    filterset_class = ChannelFilter
    needs: ClassVar = {
        **dict.fromkeys(("create", "partial_update", "destroy", "rotate", "drop_old_key"), Role.ADMIN),
        "test": Role.OPERATOR,
    }
    sort_fields = ("-created_at", "name")
    guarded = EDITABLE

    @extend_schema(
        operation_id="create_channel",
        summary="Add a channel; a signing key that is made is in this answer only",
        request=CreateChannelSerializer,
        responses={201: NewChannelSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = _with_clusters(request, body_of(request, CreateChannelSerializer))
        channel, key = channels.create_channel(actor=self.actor, **wanted)
        body = {**ChannelSerializer(channel).data, "signing_key": key}
        return Response(body, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="update_channel",
        summary="Change a channel, disable or enable it",
        request=UpdateChannelSerializer,
        responses=ChannelSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        channel = self.get_object()
        changes = _with_clusters(request, body_of(request, UpdateChannelSerializer))
        changed = channels.update_channel(channel=channel, changes=changes, actor=self.actor)
        return Response(ChannelSerializer(changed).data)

    @extend_schema(
        operation_id="delete_channel", summary="Delete a channel with its log of deliveries", responses={204: None}
    )
    def destroy(self, request: Request, pk: str) -> Response:
        channels.delete_channel(channel=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="rotate_channel",
        summary="Replace a webhook's signing key; messages carry signatures of both meanwhile",
        request=RotateSerializer,
        responses=SigningKeySerializer,
    )
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        channel, wanted = self.get_object(), body_of(request, RotateSerializer)
        key = channels.rotate_signing_key(
            channel=channel, actor=self.actor, secret=wanted.get("signing_key", ""), keep_old=wanted["keep_old"]
        )
        return Response({"signing_key": key})

    @extend_schema(
        operation_id="drop_channel_old_key",
        summary="End the rotation: sign with the newest key alone",
        request=None,
        responses=ChannelSerializer,
    )
    @action(detail=True, methods=["post"], url_path="drop-old-key")
    def drop_old_key(self, request: Request, pk: str) -> Response:
        return Response(ChannelSerializer(channels.drop_old_key(channel=self.get_object(), actor=self.actor)).data)

    @extend_schema(
        operation_id="test_channel",
        summary="Send a test, tried once; the delivery tells what came back",
        request=None,
        responses={201: DeliverySerializer},
    )
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        delivery = channels.send_test(channel=self.get_object(), actor=self.actor)
        return Response(DeliverySerializer(delivery).data, status=status.HTTP_201_CREATED)


@extend_schema_view(list=extend_schema(operation_id="list_deliveries", summary="The log of deliveries"))
class DeliveryViewSet(_OfMuster):
    queryset = deliveries.delivery_rows()
    serializer_class = DeliverySerializer
    filterset_class = DeliveryFilter
    needs: ClassVar = {"replay": Role.OPERATOR}

    @extend_schema(
        operation_id="get_delivery", summary="One delivery with its tries", responses=WholeDeliverySerializer
    )
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response(WholeDeliverySerializer(self.get_object()).data)

    @extend_schema(
        operation_id="replay_delivery",
        summary="Send it again, with the same id",
        request=None,
        responses=DeliverySerializer,
    )
    @action(detail=True, methods=["post"])
    def replay(self, request: Request, pk: str) -> Response:
        delivery = deliveries.replay(delivery=self.get_object(), actor=self.actor)
        return Response(DeliverySerializer(delivery).data)


def _with_clusters(request: Request, wanted: dict[str, Any]) -> dict[str, Any]:
    if "clusters" in wanted:
        wanted["clusters"] = [visible_cluster(request, name) for name in wanted["clusters"]]
    return wanted
