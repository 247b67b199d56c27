from __future__ import annotations

from rest_framework.routers import SimpleRouter

from apps.alerts import api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("alerts", api.AlertViewSet, "api-alert")

urlpatterns = router.urls
