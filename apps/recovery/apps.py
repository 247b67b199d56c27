from __future__ import annotations

from django.apps import AppConfig


class RecoveryConfig(AppConfig):
    name = "apps.recovery"
    label = "recovery"
