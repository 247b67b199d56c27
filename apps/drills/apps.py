from __future__ import annotations

from django.apps import AppConfig


class DrillsConfig(AppConfig):
    name = "apps.drills"
    label = "drills"
