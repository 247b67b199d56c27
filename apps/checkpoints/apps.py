from __future__ import annotations

from django.apps import AppConfig


class CheckpointsConfig(AppConfig):
    name = "apps.checkpoints"
    label = "checkpoints"
