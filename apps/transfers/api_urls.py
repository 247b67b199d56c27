from __future__ import annotations

from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.checkpoints.api import ID
from apps.transfers import api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("policies", api.PolicyViewSet, "api-policy")
router.register(rf"policies/(?P<policy>{ID})/migrations", api.PolicyMigrationViewSet, "api-policy-migration")
router.register("transfers", api.TransferViewSet, "api-transfer")
router.register(rf"tiers/(?P<tier>{ID})/rate-limits", api.RateLimitViewSet, "api-tier-rate-limit")

_CHECKPOINT = rf"^checkpoints/(?P<checkpoint>{ID})"
urlpatterns = [
    *router.urls,
    re_path(rf"{_CHECKPOINT}/marks/?$", api.MarksViewSet.as_view({"get": "retrieve"}), name="api-checkpoint-marks"),
    re_path(
        rf"{_CHECKPOINT}/pin/?$", api.MarksViewSet.as_view({"put": "pin", "delete": "unpin"}), name="api-checkpoint-pin"
    ),
    re_path(rf"{_CHECKPOINT}/labels/?$", api.MarksViewSet.as_view({"put": "label"}), name="api-checkpoint-labels"),
]
