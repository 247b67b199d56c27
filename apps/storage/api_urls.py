from __future__ import annotations

from rest_framework.routers import SimpleRouter

from apps.storage.api import CeilingRunViewSet, CeilingViewSet, TierViewSet

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("tiers", TierViewSet, basename="api-tier")
router.register(r"tiers/(?P<tier_id>[a-z0-9_]+)/ceilings", CeilingViewSet, basename="api-tier-ceiling")
router.register("ceiling-runs", CeilingRunViewSet, basename="api-ceiling-run")

urlpatterns = router.urls
