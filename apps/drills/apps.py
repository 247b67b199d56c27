from __future__ import annotations

from django.apps import AppConfig


class DrillsConfig(AppConfig):
    name = "apps.drills"
    label = "drills"

    def ready(self) -> None:
        from apps.drills.finish import OWNER_KIND
        from apps.drills.given_objects import supplement
        from apps.fleet import handout

        handout.register(OWNER_KIND, supplement)
