from __future__ import annotations

from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.checkpoints import api, batch_api, scan_api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register(rf"runs/(?P<run>{api.RUN})/steps", api.StepViewSet, "api-run-step")
router.register(rf"runs/(?P<run>{api.RUN})/attempts", api.AttemptViewSet, "api-run-attempt")
router.register("runs", api.RunViewSet, "api-run")
router.register("checkpoints", api.CheckpointViewSet, "api-checkpoint")
router.register(
    rf"checkpoints/(?P<checkpoint>{api.ID})/placements", api.CheckpointPlacementViewSet, "api-checkpoint-placement"
)
router.register(rf"checkpoints/(?P<checkpoint>{api.ID})/shards", api.CheckpointShardViewSet, "api-checkpoint-shard")
router.register(rf"checkpoints/(?P<checkpoint>{api.ID})/tensors", api.CheckpointTensorViewSet, "api-checkpoint-tensor")
router.register(
    rf"checkpoints/(?P<checkpoint>{api.ID})/findings", api.CheckpointFindingViewSet, "api-checkpoint-finding"
)
router.register("stepless-checkpoints", api.SteplessCheckpointViewSet, "api-stepless-checkpoint")
router.register("placements", api.PlacementViewSet, "api-placement")
router.register(rf"placements/(?P<placement>{api.ID})/shards", api.PlacementShardViewSet, "api-placement-shard")
router.register(rf"placements/(?P<placement>{api.ID})/evidence", api.EvidenceViewSet, "api-placement-evidence")
router.register("findings", api.FindingViewSet, "api-finding")
router.register("inventory-changes", scan_api.InventoryChangeViewSet, "api-inventory-change")
router.register("scans", scan_api.ScanViewSet, "api-scan")
router.register(rf"scans/(?P<scan>{api.ID})/changes", scan_api.ScanChangeViewSet, "api-scan-change")

urlpatterns = [
    re_path(r"^checkpoints:batch/?$", batch_api.RegisterCheckpointsView.as_view(), name="api-register-checkpoints"),
    *router.urls,
]
