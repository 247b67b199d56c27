from __future__ import annotations

from rest_framework.routers import SimpleRouter

from apps.audits.api import AuditViewSet

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("audits", AuditViewSet, "api-audit")

urlpatterns = router.urls
