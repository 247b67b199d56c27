"""Which task, and which request woke it, stands on every line that a worker logs."""

from __future__ import annotations

from typing import Any

from celery import signals

from apps.core import logs


def _began(task: Any = None, **_told: Any) -> None:
    logs.task_name.set(str(getattr(task, "name", "")))
    headers = getattr(task.request, "headers", None) or {}
    logs.request_id.set(str(headers.get("request_id") or getattr(task.request, "request_id", None) or ""))


def _ended(**_told: Any) -> None:
    logs.task_name.set("")
    logs.request_id.set("")


def watch_tasks() -> None:
    """In this process, a worker's or its child's."""
    signals.task_prerun.connect(_began, weak=False)
    signals.task_postrun.connect(_ended, weak=False)
