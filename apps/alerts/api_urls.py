from __future__ import annotations

from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.alerts import api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("alerts", api.AlertViewSet, "api-alert")

urlpatterns = [*router.urls, re_path("^health/?$", api.HealthView.as_view(), name="api-health")]
