"""All routes: agents, the REST API and the pages."""

from __future__ import annotations

from django.urls import include, path

from controlplane import monitoring

handler400 = "controlplane.error_views.bad_request"
handler404 = "controlplane.error_views.not_found"
handler500 = "controlplane.error_views.server_error"

urlpatterns = [
    path("agent/v1/", include("apps.fleet.agent_api.urls")),
    path("agent/v1/", include("apps.checkpoints.agent_api.urls")),
    path("metrics", monitoring.MetricsView.as_view(), name="metrics"),
    path("healthz", monitoring.is_up, name="healthz"),
    path("healthz/watching", monitoring.is_watching, name="healthz-watching"),
    path("api/", include("controlplane.api_urls")),
    path("", include("apps.accounts.urls")),
    path("", include("apps.dashboard.urls")),
]
