from __future__ import annotations

from django.apps import AppConfig


class TransfersConfig(AppConfig):
    name = "apps.transfers"
    label = "transfers"
