"""REST: the resume point, readiness, the history of times to resume, incidents and recoveries."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
from drf_spectacular.utils import extend_schema, extend_schema_view
from muster_agent.decide.model import ResumeDecision
from rest_framework import mixins, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.models import Role
from apps.checkpoints import resume
from apps.checkpoints.api import ID
from apps.checkpoints.models import Placement, TrainingRun
from apps.checkpoints.resume_serializers import ResumePointSerializer, ResumeQuerySerializer
from apps.checkpoints.runs import find_run
from apps.core.errors import NotFound
from apps.core.serializers import StrictSerializer, body_of, query_of
from apps.drills.models import Drill
from apps.fleet.access import scoped, visible_clusters
from apps.fleet.rest import ScopedViewSet
from apps.recovery import reporting, selectors
from apps.recovery.advice import advise
from apps.recovery.advice_inputs import inputs_of
from apps.recovery.checklist_evidence import checklist
from apps.recovery.checklist_serializers import ChecklistQuerySerializer, ChecklistSerializer
from apps.recovery.filters import IncidentFilter
from apps.recovery.first_steps import are_done, first_steps
from apps.recovery.first_steps_facts import focus
from apps.recovery.history import GroupBy, groups, history
from apps.recovery.matrix import MAX_TIERS, columns
from apps.recovery.matrix_serializers import TierComparisonSerializer
from apps.recovery.rank_shard_audit import rank_shard_audit
from apps.recovery.rank_shard_serializers import RankShardAuditSerializer
from apps.recovery.readiness import readiness_rows, summary
from apps.recovery.readiness_serializers import (
    FirstStepsQuerySerializer,
    FirstStepsSerializer,
    ReadinessListSerializer,
)
from apps.recovery.serializers import (
    AdviceQuerySerializer,
    AdviceSerializer,
    GroupsQuerySerializer,
    GroupsSerializer,
    HistoryQuerySerializer,
    HistorySerializer,
    IncidentSerializer,
    ReportIncidentSerializer,
    WhatIfQuerySerializer,
    WhatIfSerializer,
)
from apps.recovery.what_if import Question, answers, question, standard_questions, tier_model
from apps.storage.api import visible_cluster
from apps.storage.models import StorageTier


class ResumePointView(APIView):
    """What a launch script or CI asks before a restart."""

    @extend_schema(
        operation_id="get_resume_point",
        summary="Which checkpoint the run would resume from, and how long that would take",
        parameters=[ResumeQuerySerializer],
        responses=ResumePointSerializer,
    )
    def get(self, request: Request, name_or_id: str) -> Response:
        query = query_of(request, ResumeQuerySerializer)
        run = find_run(request, name_or_id)
        decision = predicted(run, resume.resume_decision(run, query.resume_request(run)))
        body = resume.decision_json(decision)
        if query.validated_data["evidence"]:
            body["evidence"] = resume.evidence_for(run)
        return Response(body)


def predicted(run: TrainingRun, decision: ResumeDecision) -> ResumeDecision:
    """The decision with `predicted_seconds`; None stays where no drill has measured this run."""
    rows = Placement.objects.filter(checkpoint__run=run, path=decision.path or "", tier__name=decision.tier or "")
    copy = selectors.with_ceiling(rows).first() if decision.path else None
    guess = selectors.predictions([(run.pk, copy)]).get(run.pk) if copy is not None else None
    return msgspec.structs.replace(decision, predicted_seconds=guess.seconds) if guess else decision


class ReadinessView(APIView):
    @extend_schema(
        operation_id="get_readiness",
        summary="Every run: if it died now. The worst first",
        responses=ReadinessListSerializer,
    )
    def get(self, request: Request) -> Response:
        rows = readiness_rows(request)
        counts = Counter(row.verdict.value for row in rows)
        return Response(ReadinessListSerializer({"items": rows, "by_verdict": counts, **summary(rows)}).data)


class FirstStepsView(APIView):
    @extend_schema(
        operation_id="get_first_steps",
        summary="How far a cluster has come to its first answer, and the request that does the next step",
        parameters=[FirstStepsQuerySerializer],
        responses=FirstStepsSerializer,
    )
    def get(self, request: Request) -> Response:
        wanted = query_of(request, FirstStepsQuerySerializer).validated_data.get("cluster")
        clusters = visible_clusters(request)
        if wanted is not None:
            clusters = clusters.filter(pk=visible_cluster(request, wanted).pk)
        facts = focus(clusters)
        steps = first_steps(facts)
        body = {"cluster": facts.cluster, "cluster_name": facts.cluster_name, "done": are_done(steps), "steps": steps}
        return Response(FirstStepsSerializer(body).data)


class ChecklistView(APIView):
    @extend_schema(
        operation_id="get_checklist",
        summary="A run's five validation steps with their last evidence, verdict and next action, and its score",
        parameters=[ChecklistQuerySerializer],
        responses=ChecklistSerializer,
    )
    def get(self, request: Request, name_or_id: str) -> Response:
        asked = query_of(request, ChecklistQuerySerializer).validated_data
        run = find_run(request, name_or_id)
        return Response(ChecklistSerializer(checklist(run, timedelta(seconds=asked["max_age_seconds"]))).data)


class RankShardAuditView(APIView):
    @extend_schema(
        operation_id="get_rank_shard_audit",
        summary="How a copy's bytes are cut for its ranks, and the seconds that a better cut is predicted to save",
        responses=RankShardAuditSerializer,
    )
    def get(self, request: Request, placement: str) -> Response:
        rows = scoped(request, Placement.objects.select_related("tier"), "tier__cluster")
        copy = rows.filter(pk=placement).first()
        if copy is None:
            raise NotFound(f"There is no placement {placement} here.")
        return Response(RankShardAuditSerializer(rank_shard_audit(copy)).data)


class RtoHistoryView(APIView):
    @extend_schema(
        operation_id="get_rto_history",
        summary="A run's drills of one kind with phases, and what they prove together",
        parameters=[HistoryQuerySerializer],
        responses=HistorySerializer,
    )
    def get(self, request: Request) -> Response:
        wanted = query_of(request, HistoryQuerySerializer).validated_data
        run = find_run(request, wanted["run"])
        return Response(HistorySerializer(history(run, wanted["kind"], wanted["days"])).data)


class RtoGroupsView(APIView):
    @extend_schema(
        operation_id="get_rto_groups",
        summary="Drills of one kind by run, tier, format or node group: spread, objective, budget, regression",
        parameters=[GroupsQuerySerializer],
        responses=GroupsSerializer,
    )
    def get(self, request: Request) -> Response:
        wanted = query_of(request, GroupsQuerySerializer).validated_data
        visible = scoped(request, Drill.objects.all(), "cluster")
        found = groups(visible, GroupBy(wanted["by"]), wanted["kind"], wanted["days"])
        return Response(GroupsSerializer(found).data)


class AdviceView(APIView):
    @extend_schema(
        operation_id="get_advice",
        summary="How often to save, how many spares, and what failures cost, with the source of every input",
        parameters=[AdviceQuerySerializer],
        responses=AdviceSerializer,
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, AdviceQuerySerializer).validated_data
        run = find_run(request, asked.pop("run"))
        return Response(AdviceSerializer(advise(inputs_of(run, asked))).data)


class WhatIfView(APIView):
    @extend_schema(
        operation_id="get_what_if",
        summary="Predicted time to resume for sizes and readers that were never drilled, and what an objective needs",
        parameters=[WhatIfQuerySerializer],
        responses=WhatIfSerializer,
    )
    def get(self, request: Request) -> Response:
        asked = query_of(request, WhatIfQuerySerializer).validated_data
        rows = scoped(request, StorageTier.objects.select_related("cluster"), "cluster")
        tier = rows.filter(pk=asked["tier"]).first()
        if tier is None:
            raise NotFound(f"There is no tier {asked['tier']} here.")
        known = tier_model(tier)
        return Response(
            WhatIfSerializer(
                {"known": known, "items": answers(known, _questions(asked), asked.get("objective_seconds"))}
            ).data
        )


class TierComparisonView(APIView):
    @extend_schema(
        operation_id="get_tier_comparison",
        summary="Tiers side by side, from measured drills only",
        responses=TierComparisonSerializer,
    )
    def get(self, request: Request) -> Response:
        query_of(request, StrictSerializer)
        rows = scoped(request, StorageTier.objects.select_related("cluster"), "cluster")
        tiers = list(rows.order_by("cluster__name", "speed_order", "name")[:MAX_TIERS])
        return Response(TierComparisonSerializer({"items": columns(tiers)}).data)


def _questions(asked: dict[str, Any]) -> list[Question]:
    if "total_bytes" not in asked:
        return standard_questions()
    nodes, readers = asked.get("nodes"), asked.get("readers")
    return [question(asked["total_bytes"], asked["ranks"], node_count=nodes, reader_count=readers)]


@extend_schema_view(
    list=extend_schema(operation_id="list_incidents", summary="Real disruptions with their recoveries"),
    retrieve=extend_schema(operation_id="get_incident", summary="One disruption with its recovery"),
)
class IncidentViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, ScopedViewSet):
    queryset = selectors.incidents()
    serializer_class = IncidentSerializer
    filterset_class = IncidentFilter
    lookup_value_regex = ID
    cluster_path = "run__cluster"
    sort_fields = ("-fault_at", "-created_at")
    needs: ClassVar = {"create": Role.OPERATOR}

    @extend_schema(
        operation_id="report_incident",
        summary="Report a real disruption; the training hook's records measure the way back where there are any",
        request=ReportIncidentSerializer,
        responses={201: IncidentSerializer},
    )
    def create(self, request: Request) -> Response:
        given = body_of(request, ReportIncidentSerializer)
        run = find_run(request, given.pop("run"))
        self.authorize(run.cluster)
        incident = reporting.report_incident(run=run, actor=self.actor, **given)
        return Response(
            IncidentSerializer(selectors.incidents().get(pk=incident.pk)).data, status=status.HTTP_201_CREATED
        )
