from __future__ import annotations

from django.urls import URLPattern, URLResolver, re_path
from rest_framework.routers import SimpleRouter

from apps.checkpoints.api import ID
from apps.recovery import api, objectives_api, operations_api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("objectives", objectives_api.ObjectiveViewSet, "api-objective")
router.register("incidents", api.IncidentViewSet, "api-incident")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    # a run's name may hold slashes, and `cluster/name` tells equal names apart
    re_path(r"^runs/(?P<name_or_id>.+)/resume-point/?$", api.ResumePointView.as_view(), name="api-resume-point"),
    re_path(r"^runs/(?P<name_or_id>.+)/checklist/?$", api.ChecklistView.as_view(), name="api-checklist"),
    re_path(
        rf"^placements/(?P<placement>{ID})/rank-shards/?$", api.RankShardAuditView.as_view(), name="api-rank-shards"
    ),
    re_path(r"^operations/?$", operations_api.OperationsView.as_view(), name="api-operations"),
    re_path(rf"^operations/(?P<operation>{ID})/?$", operations_api.OperationView.as_view(), name="api-operation"),
    re_path(r"^readiness/?$", api.ReadinessView.as_view(), name="api-readiness"),
    re_path(r"^first-steps/?$", api.FirstStepsView.as_view(), name="api-first-steps"),
    re_path(r"^rto-history/?$", api.RtoHistoryView.as_view(), name="api-rto-history"),
    re_path(r"^rto-groups/?$", api.RtoGroupsView.as_view(), name="api-rto-groups"),
    re_path(r"^advice/?$", api.AdviceView.as_view(), name="api-advice"),
    re_path(r"^what-if/?$", api.WhatIfView.as_view(), name="api-what-if"),
    re_path(r"^tier-comparison/?$", api.TierComparisonView.as_view(), name="api-tier-comparison"),
]
