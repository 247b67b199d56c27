from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from apps.fleet.agent_api import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("enrol", views.enrol, name="agent-enrol"),
    path("poll", views.poll, name="agent-poll"),
    path("tasks/<slug:task_id>/ack", views.ack, name="agent-task-ack"),
    path("tasks/<slug:task_id>/ready", views.ready, name="agent-task-ready"),
    path("tasks/<slug:task_id>/events", views.task_events, name="agent-task-events"),
    path("tasks/<slug:task_id>/release", views.release, name="agent-task-release"),
    path("tasks/<slug:task_id>/attempts/<int:attempt>/result", views.result, name="agent-task-result"),
]
