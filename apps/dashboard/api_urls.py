from __future__ import annotations

from django.urls import re_path
from rest_framework.routers import SimpleRouter

from apps.dashboard import api

router = SimpleRouter()
router.trailing_slash = "/?"
router.register("saved-views", api.SavedViewViewSet, "api-saved-view")
router.register("bulk-operations", api.BulkOperationViewSet, "api-bulk-operation")
router.register(rf"bulk-operations/(?P<operation>{api.ID})/items", api.BulkItemViewSet, "api-bulk-operation-item")

urlpatterns = [*router.urls, re_path(r"^search/?$", api.SearchView.as_view(), name="api-search")]
