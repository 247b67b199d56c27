from __future__ import annotations

from django.urls import URLPattern, URLResolver, path
from rest_framework.routers import SimpleRouter

from apps.fleet import api

router = SimpleRouter()
router.register("clusters", api.ClusterViewSet, "api-cluster")
router.register("cluster-inventories", api.ClusterInventoryViewSet, "api-cluster-inventory")
router.register("nodes", api.NodeViewSet, "api-node")
router.register("join-tokens", api.JoinTokenViewSet, "api-join-token")
router.register("agents", api.AgentViewSet, "api-agent")
router.register("tasks", api.AgentTaskViewSet, "api-task")

urlpatterns: list[URLPattern | URLResolver] = [
    *router.urls,
    path("tasks/<slug:task_id>/events/", api.AgentEventViewSet.as_view({"get": "list"}), name="api-task-events"),
]
