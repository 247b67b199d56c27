from __future__ import annotations

from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.alerts import api, channels_api, rules_api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("alerts", api.AlertViewSet, "api-alert")
router.register("alert-rules", rules_api.AlertRuleViewSet, "api-alert-rule")
router.register("silences", rules_api.SilenceViewSet, "api-silence")
router.register("channels", channels_api.ChannelViewSet, "api-channel")
router.register("deliveries", channels_api.DeliveryViewSet, "api-delivery")

urlpatterns = [*router.urls, re_path("^health/?$", api.HealthView.as_view(), name="api-health")]
