"""REST: retention policies and their plans, transfers, pins and labels, rate limits of tiers."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.models import Role
from apps.checkpoints.api import ID, PartsViewSet
from apps.checkpoints.models import Checkpoint, Placement
from apps.checkpoints.runs import find_run
from apps.core.errors import InvalidInput
from apps.core.etags import EDITABLE
from apps.core.serializers import body_of
from apps.fleet.access import scoped
from apps.fleet.rest import ReadViewSet, ScopedViewSet
from apps.storage.api import visible_cluster, visible_tier
from apps.storage.models import StorageTier
from apps.transfers import marks, planning, policies, rate_limits, selectors, services
from apps.transfers.filters import PolicyFilter, TransferFilter
from apps.transfers.models import Migration, RetentionPolicy, TierRateLimit, Transfer
from apps.transfers.serializers import (
    CreatePolicySerializer,
    CreateRateLimitSerializer,
    CreateTransferSerializer,
    LabelsSerializer,
    MarksSerializer,
    MigrationSerializer,
    PinSerializer,
    PolicyPlanSerializer,
    PolicySerializer,
    RateLimitSerializer,
    TransferSerializer,
    UpdatePolicySerializer,
)


@extend_schema_view(
    list=extend_schema(operation_id="list_policies", summary="List retention policies"),
    retrieve=extend_schema(operation_id="get_policy", summary="One retention policy"),
)
class PolicyViewSet(ReadViewSet):
    queryset = selectors.policies()
    serializer_class = PolicySerializer
    filterset_class = PolicyFilter
    lookup_value_regex = ID
    cluster_path = "cluster"
    needs: ClassVar = dict.fromkeys(("create", "partial_update", "destroy", "run"), Role.OPERATOR)
    guarded = EDITABLE
    sort_fields = ("-created_at", "name")

    @extend_schema(
        operation_id="create_policy",
        summary="Add a retention policy; it only plans until told otherwise",
        request=CreatePolicySerializer,
        responses={201: PolicySerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreatePolicySerializer)
        cluster = visible_cluster(request, wanted.pop("cluster"))
        self.authorize(cluster)
        run = wanted.pop("run", None)
        policy = policies.create_policy(
            cluster=cluster,
            run=None if run is None else find_run(request, run),
            actor=self.actor,
            **self._with_tiers(request, wanted),
        )
        return Response(PolicySerializer(policy).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="update_policy",
        summary="Change a retention policy",
        request=UpdatePolicySerializer,
        responses=PolicySerializer,
    )
    def partial_update(self, request: Request, pk: str) -> Response:
        policy = self._authorized()
        changes = self._with_tiers(request, body_of(request, UpdatePolicySerializer))
        return Response(PolicySerializer(policies.update_policy(policy=policy, changes=changes, actor=self.actor)).data)

    @extend_schema(operation_id="delete_policy", summary="Delete a policy; its transfers go on", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        policies.delete_policy(policy=self._authorized(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="get_policy_plan",
        summary="What the policy would do now, and why each other copy stays",
        request=None,
        responses=PolicyPlanSerializer,
    )
    @action(detail=True, methods=["get"])
    def plan(self, request: Request, pk: str) -> Response:
        return Response(PolicyPlanSerializer(selectors.plan_json(planning.preview(self.get_object()))).data)

    @extend_schema(
        operation_id="run_policy",
        summary="Run the policy now: record its plan and, unless it only plans, begin it",
        request=None,
        responses={201: MigrationSerializer},
    )
    @action(detail=True, methods=["post"])
    def run(self, request: Request, pk: str) -> Response:
        migration = planning.run_policy(policy=self._authorized(), actor=self.actor)
        return Response(MigrationSerializer(migration).data, status=status.HTTP_201_CREATED)

    def _authorized(self) -> RetentionPolicy:
        policy: RetentionPolicy = self.get_object()
        self.authorize(policy.cluster_id)
        return policy

    def _with_tiers(self, request: Request, wanted: dict[str, Any]) -> dict[str, Any]:
        for field in ("hot_tier", "cold_tier"):
            if wanted.get(field) is not None:
                wanted[field] = visible_tier(request, wanted[field], f"/{field}")
        return wanted


@extend_schema_view(
    list=extend_schema(operation_id="list_policy_migrations", summary="What a policy planned, each time it ran")
)
class PolicyMigrationViewSet(PartsViewSet):
    queryset = selectors.migrations()
    serializer_class = MigrationSerializer
    cluster_path = "policy__cluster"
    sort_fields = ("-created_at",)

    def of_parent(self, rows: QuerySet[Migration]) -> QuerySet[Migration]:
        return rows.filter(policy=self.parent(RetentionPolicy.objects.all(), "cluster", self.kwargs["policy"]))


@extend_schema_view(
    list=extend_schema(operation_id="list_transfers", summary="List transfers"),
    retrieve=extend_schema(operation_id="get_transfer", summary="One transfer"),
)
class TransferViewSet(ReadViewSet):
    queryset = selectors.transfers()
    serializer_class = TransferSerializer
    filterset_class = TransferFilter
    lookup_value_regex = ID
    cluster_path = "cluster"
    needs: ClassVar = dict.fromkeys(("create", "pause", "resume", "cancel"), Role.OPERATOR)
    sort_fields = ("-created_at",)

    @extend_schema(
        operation_id="create_transfer",
        summary="Move, copy, stage or retire one copy of a checkpoint",
        request=CreateTransferSerializer,
        responses={201: TransferSerializer},
    )
    def create(self, request: Request) -> Response:
        wanted = body_of(request, CreateTransferSerializer)
        placement = self._placement(request, wanted.pop("placement"))
        self.authorize(placement.tier.cluster)
        tier = wanted.pop("tier", None)
        transfer = services.request_transfer(
            placement=placement,
            kind=wanted.pop("kind"),
            target_tier=None if tier is None else visible_tier(request, tier, "/tier"),
            actor=self.actor,
            **wanted,
        )
        return Response(TransferSerializer(transfer).data, status=status.HTTP_201_CREATED)

    @extend_schema(
        operation_id="pause_transfer", summary="Let a transfer wait", request=None, responses=TransferSerializer
    )
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: str) -> Response:
        return Response(TransferSerializer(services.pause(transfer=self._authorized(), actor=self.actor)).data)

    @extend_schema(
        operation_id="resume_transfer",
        summary="Let a paused transfer go on",
        request=None,
        responses=TransferSerializer,
    )
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        return Response(TransferSerializer(services.resume(transfer=self._authorized(), actor=self.actor)).data)

    @extend_schema(
        operation_id="cancel_transfer",
        summary="Stop a transfer and remove the part that was copied",
        request=None,
        responses=TransferSerializer,
    )
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        return Response(TransferSerializer(services.cancel(transfer=self._authorized(), actor=self.actor)).data)

    def _authorized(self) -> Transfer:
        transfer: Transfer = self.get_object()
        self.authorize(transfer.cluster_id)
        return transfer

    def _placement(self, request: Request, pk: str) -> Placement:
        rows = Placement.objects.select_related("checkpoint__run", "tier__cluster", "manifest").defer("manifest__body")
        placement = scoped(request, rows, "tier__cluster").filter(pk=pk).first()
        if placement is None:
            raise InvalidInput(f"There is no placement {pk!r} that you may see.", pointer="/placement")
        return placement


class MarksViewSet(ScopedViewSet):
    """Pins and labels of one checkpoint."""

    queryset = Checkpoint.objects.select_related("run", "pin").prefetch_related("labels")
    serializer_class = MarksSerializer
    cluster_path = "run__cluster"
    lookup_url_kwarg = "checkpoint"
    needs: ClassVar = dict.fromkeys(("pin", "unpin", "label"), Role.OPERATOR)

    @extend_schema(operation_id="get_checkpoint_marks", summary="Whether a checkpoint is pinned, and its labels")
    def retrieve(self, request: Request, checkpoint: str) -> Response:
        return self._answer(self.get_object())

    @extend_schema(
        operation_id="pin_checkpoint",
        summary="Keep a checkpoint for good, wherever it lies",
        request=PinSerializer,
        responses=MarksSerializer,
    )
    def pin(self, request: Request, checkpoint: str) -> Response:
        row = self._authorized()
        marks.pin(checkpoint=row, reason=body_of(request, PinSerializer)["reason"], actor=self.actor)
        return self._answer(self.get_object())

    @extend_schema(
        operation_id="unpin_checkpoint", summary="Let policies decide again", request=None, responses={204: None}
    )
    def unpin(self, request: Request, checkpoint: str) -> Response:
        marks.unpin(checkpoint=self._authorized(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(
        operation_id="label_checkpoint",
        summary="Make these the checkpoint's labels",
        request=LabelsSerializer,
        responses=MarksSerializer,
    )
    def label(self, request: Request, checkpoint: str) -> Response:
        row = self._authorized()
        marks.set_labels(checkpoint=row, labels=body_of(request, LabelsSerializer)["labels"], actor=self.actor)
        return self._answer(self.get_object())

    def _authorized(self) -> Checkpoint:
        row: Checkpoint = self.get_object()
        self.authorize(row.run.cluster_id)
        return row

    def _answer(self, row: Checkpoint) -> Response:
        return Response(MarksSerializer(marks.marks_of(row)).data)


@extend_schema_view(
    list=extend_schema(operation_id="list_tier_rate_limits", summary="How fast transfers may use a tier")
)
class RateLimitViewSet(mixins.DestroyModelMixin, PartsViewSet):
    queryset = TierRateLimit.objects.all()
    serializer_class = RateLimitSerializer
    cluster_path = "tier__cluster"
    needs: ClassVar = dict.fromkeys(("create", "destroy"), Role.OPERATOR)
    sort_fields = ("-created_at",)
    lookup_value_regex = "[a-z0-9_-]+"

    def of_parent(self, rows: QuerySet[TierRateLimit]) -> QuerySet[TierRateLimit]:
        return rows.filter(tier=self._tier())

    @extend_schema(
        operation_id="create_tier_rate_limit",
        summary="Limit how fast all transfers together may use a tier, in a window of the day",
        request=CreateRateLimitSerializer,
        responses={201: RateLimitSerializer},
    )
    def create(self, request: Request, tier: str) -> Response:
        row = self._tier()
        self.authorize(row.cluster_id)
        limit = rate_limits.add(tier=row, actor=self.actor, **body_of(request, CreateRateLimitSerializer))
        return Response(RateLimitSerializer(limit).data, status=status.HTTP_201_CREATED)

    @extend_schema(operation_id="delete_tier_rate_limit", summary="Remove a rate limit", responses={204: None})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        limit = self.get_object()
        self.authorize(limit.tier.cluster_id)
        rate_limits.remove(limit=limit, actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _tier(self) -> StorageTier:
        tier: StorageTier = self.parent(StorageTier.objects.all(), "cluster", self.kwargs["tier"])
        return tier
