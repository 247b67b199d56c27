from __future__ import annotations

from django.urls import URLPattern, URLResolver, re_path
from rest_framework.routers import SimpleRouter

from apps.checkpoints.api import ID
from apps.drills import api, node_actions_api, rules_api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("drills", api.DrillViewSet, "api-drill")
router.register(rf"drills/(?P<drill>{ID})/ranks", api.RankViewSet, "api-drill-rank")
router.register(rf"drills/(?P<drill>{ID})/events", api.DrillEventViewSet, "api-drill-event")
router.register("node-actions", node_actions_api.NodeActionViewSet, "api-node-action")
router.register("plans", api.PlanViewSet, "api-plan")
router.register(rf"plans/(?P<plan>{ID})/occurrences", api.OccurrenceViewSet, "api-plan-occurrence")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    re_path(rf"^clusters/(?P<cluster>{ID})/drill-rules/?$", rules_api.RulesView.as_view(), name="api-drill-rules"),
    re_path(
        rf"^clusters/(?P<cluster>{ID})/drill-rules/reset-breaker/?$",
        rules_api.ResetBreakerView.as_view(),
        name="api-breaker-reset",
    ),
    re_path(r"^drill-control/pause-plans/?$", api.PausePlansView.as_view(), name="api-plans-pause"),
    re_path(r"^drill-control/resume-plans/?$", api.ResumePlansView.as_view(), name="api-plans-resume"),
    re_path(r"^drill-control/?$", api.ControlView.as_view(), name="api-drill-control"),
    re_path(r"^drill-control/stop/?$", api.StopView.as_view(), name="api-drills-stop"),
    re_path(r"^drill-control/allow/?$", api.AllowView.as_view(), name="api-drills-allow"),
]
