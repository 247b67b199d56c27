"""The REST API, version 1: every app's routes under one router, and the schema."""

from __future__ import annotations

from django.urls import include, path

from apps.core.openapi_views import DocsView, SchemaView

urlpatterns = [
    path("schema/", SchemaView.as_view(), name="schema"),
    path("docs/", DocsView.as_view(url_name="schema"), name="api-docs"),
    path("v1/", include("apps.accounts.api_urls")),
    path("v1/", include("apps.fleet.api_urls")),
    path("v1/", include("apps.storage.api_urls")),
    path("v1/", include("apps.checkpoints.api_urls")),
    path("v1/", include("apps.transfers.api_urls")),
    path("v1/", include("apps.audits.api_urls")),
    path("v1/", include("apps.drills.api_urls")),
    path("v1/", include("apps.recovery.api_urls")),
    path("v1/", include("apps.alerts.api_urls")),
    path("v1/", include("apps.dashboard.api_urls")),
]
