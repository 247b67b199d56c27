"""Reading much: tiers whose folders are mounted where the workers run, and the activity log."""

from __future__ import annotations

from celery import shared_task

from apps.accounts import activity
from apps.checkpoints import worker_scans


@shared_task(name="muster.scan.slice")
def list_slice(scan_id: str) -> None:
    """At most half a minute of one scan; the next slice is woken where it is not done."""
    worker_scans.work(scan_id)


@shared_task(name="muster.scan.check_activity")
def check_activity() -> None:
    """Every night: whether the activity log is as it was written."""
    activity.check()
