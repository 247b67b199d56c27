"""Telling others."""

from __future__ import annotations

from celery import shared_task

from apps.alerts import dead_man


@shared_task(name="muster.notify.dead_man")
def signal_dead_man() -> None:
    """Every minute, while all is watched."""
    dead_man.signal()
