from __future__ import annotations

from rest_framework.routers import SimpleRouter

from apps.audits import api, repair_api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("audits", api.AuditViewSet, "api-audit")
router.register("audit-policies", api.AuditPolicyViewSet, "api-audit-policy")
router.register("audit-policies/(?P<policy>[a-z0-9_-]+)/rounds", api.AuditRoundViewSet, "api-audit-round")
router.register("repairs", repair_api.RepairViewSet, "api-repair")

urlpatterns = router.urls
