from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AlertsConfig(AppConfig):
    name = "apps.alerts"
    label = "alerts"

    def ready(self) -> None:
        from apps.alerts.rules import ensure_standard_rules

        post_migrate.connect(ensure_standard_rules, sender=self)
