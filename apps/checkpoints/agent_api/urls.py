from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from apps.checkpoints.agent_api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("hook-records", views.hook_records, name="agent-hook-records"),
]
