"""Telling others."""

from __future__ import annotations

from celery import shared_task

from apps.alerts import dead_man, deliveries
from apps.drills import traces


@shared_task(name="muster.notify.dead_man")
def signal_dead_man() -> None:
    """Every minute, while all is watched."""
    dead_man.signal()


@shared_task(name="muster.notify.trace_drill")
def trace_drill(drill_id: str) -> None:
    """Where traces are on; a trace that is lost with its message is no loss of anything else."""
    traces.send(drill_id)


@shared_task(name="muster.notify.deliver")
def deliver(delivery_id: str) -> None:
    """One try of one delivery, where it is due."""
    deliveries.deliver(delivery_id)
