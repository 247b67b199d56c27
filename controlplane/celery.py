"""The Celery application. Tasks live in `workers.tasks` and are sent by name (`apps.core.dispatch`)."""

from __future__ import annotations

import os

from celery import Celery

from controlplane import alive, task_logs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("muster")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.imports = tuple(f"workers.tasks.{name}" for name in ("control", "move", "notify", "owners", "scan"))
alive.watch_workers()
task_logs.watch_tasks()
