"""Who am I, users, tokens and the activity log."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts import activity, selectors, services
from apps.accounts.access import global_role, require
from apps.accounts.filters import ActivityFilter
from apps.accounts.models import ActivityEntry, ApiToken, Role, User
from apps.accounts.serializers import (
    ActivityCheckSerializer,
    ActivitySerializer,
    CreateTokenSerializer,
    CreateUserSerializer,
    ExportQuerySerializer,
    NewTokenSerializer,
    TokenSerializer,
    UpdateUserSerializer,
    UserSerializer,
    WhoAmISerializer,
)
from apps.core.errors import NotFound
from apps.core.etags import EDITABLE, ConditionalMixin
from apps.core.renderers import JSONLinesRenderer
from apps.core.serializers import body_of, query_of
from apps.core.streaming import streamed


def require_global(request: Request, needed: Role) -> None:
    """Raise unless the caller has `needed` on every cluster."""
    token = request.auth if isinstance(request.auth, ApiToken) else None
    require(global_role(request.user, token), needed, signed_in=request.user.is_authenticated)


def refuse_escalation(request: Request, wanted: Role) -> None:
    """A token cannot buy a token above itself; a signed-in person may ask for any, since the user's role caps it."""
    if isinstance(request.auth, ApiToken):
        require(Role(request.auth.role), wanted)


class WhoAmIView(APIView):
    @extend_schema(
        operation_id="who_am_i", summary="The account and role behind this request", responses=WhoAmISerializer
    )
    def get(self, request: Request) -> Response:
        token = request.auth if isinstance(request.auth, ApiToken) else None
        user = request.user
        assert isinstance(user, User)
        body = {
            "username": user.username,
            "role": global_role(user, token).value,
            "is_service": user.is_service,
            "token_expires_at": token.expires_at if token else None,
        }
        return Response(WhoAmISerializer(body).data)


@extend_schema_view(list=extend_schema(summary="List API tokens: one's own, or everybody's for an admin"))
class TokenViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[ApiToken]):
    queryset = ApiToken.objects.all()
    serializer_class = TokenSerializer
    sort_fields = ("-created_at",)

    def get_queryset(self) -> QuerySet[ApiToken]:
        tokens = selectors.tokens_visible_to(self.request.user)
        if isinstance(self.request.auth, ApiToken) and self.request.auth.role != Role.ADMIN:
            return tokens.filter(user=self.request.auth.user)
        return tokens

    @extend_schema(
        summary="Create a token; its secret is in this answer only",
        request=CreateTokenSerializer,
        responses={201: NewTokenSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateTokenSerializer)
        owner = self._owner(request, wanted.pop("username", None))
        role = Role(wanted["role"])
        refuse_escalation(request, role)
        token, secret = services.create_token(
            user=owner, name=wanted["name"], role=role, days=wanted["days"], actor=request.user.get_username()
        )
        body = {**TokenSerializer(token).data, "secret": secret}
        return Response(body, status=status.HTTP_201_CREATED)

    def _owner(self, request: Request, username: str | None) -> User:
        assert isinstance(request.user, User)
        if username is None or username == request.user.username:
            return request.user
        require_global(request, Role.ADMIN)
        owner = User.objects.filter(username=username).first()
        if owner is None:
            raise NotFound(f"There is no user {username!r}.", pointer="/username")
        return owner

    @extend_schema(summary="Revoke a token at once", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        token = self.get_object()
        services.revoke_token(token=token, actor=request.user.get_username())
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(
    list=extend_schema(summary="List users (admin)"), retrieve=extend_schema(summary="One user (admin)")
)
class UserViewSet(ConditionalMixin, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[User]):
    guarded = EDITABLE
    queryset = User.objects.all()
    serializer_class = UserSerializer
    sort_fields = ("username", "-date_joined")

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require_global(request, Role.ADMIN)

    @extend_schema(
        summary="Create a user or service account (admin)",
        request=CreateUserSerializer,
        responses={201: UserSerializer},
    )
    def create(self, request: Request) -> Response:
        user = services.add_user(actor=request.user.get_username(), **body_of(request, CreateUserSerializer))
        return Response(UserSerializer(user).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        summary="Change a user's role, or close the account (admin)",
        request=UpdateUserSerializer,
        responses=UserSerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        user = services.update_user(
            user=self.get_object(), actor=request.user.get_username(), **body_of(request, UpdateUserSerializer)
        )
        return Response(UserSerializer(user).data)


@extend_schema_view(list=extend_schema(summary="The activity log, newest first (admin)"))
class ActivityViewSet(mixins.ListModelMixin, viewsets.GenericViewSet[ActivityEntry]):
    queryset = ActivityEntry.objects.all()
    serializer_class = ActivitySerializer
    filterset_class = ActivityFilter
    sort_fields = ("-at",)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        require_global(request, Role.ADMIN)

    @extend_schema(
        operation_id="export_activity",
        summary="The activity log as JSON lines in the order of its chain, to check it elsewhere (admin)",
        parameters=[ExportQuerySerializer],
        responses={(200, JSONLinesRenderer.media_type): OpenApiTypes.BINARY},
    )
    @action(detail=False, methods=["get"], renderer_classes=[JSONLinesRenderer], filterset_class=None)
    def export(self, request: Request) -> StreamingHttpResponse:
        after_id = query_of(request, ExportQuerySerializer).validated_data["after"]
        return streamed(
            request._request,
            activity.export(after_id),
            name=f"activity-{timezone.now():%Y%m%dT%H%MZ}.ndjson",
            content_type=JSONLinesRenderer.media_type,
        )

    @extend_schema(
        operation_id="get_activity_check",
        summary="What the last check of the activity log's chain found (admin)",
        responses=ActivityCheckSerializer,
    )
    @action(detail=False, methods=["get"], filterset_class=None, pagination_class=None)
    def check(self, request: Request) -> Response:
        found = activity.last_check()
        if found is None:
            raise NotFound("The chain was not checked yet; POST checks it now.")
        return Response(ActivityCheckSerializer(found).data)

    @extend_schema(
        operation_id="check_activity",
        summary="Check the activity log's whole chain now (admin)",
        request=None,
        responses=ActivityCheckSerializer,
    )
    @check.mapping.post
    def check_now(self, request: Request) -> Response:
        return Response(ActivityCheckSerializer(activity.check()).data)
