"""Listing tiers whose folders are mounted where the workers run."""

from __future__ import annotations

from celery import shared_task

from apps.checkpoints import worker_scans


@shared_task(name="muster.scan.slice")
def list_slice(scan_id: str) -> None:
    """At most half a minute of one scan; the next slice is woken where it is not done."""
    worker_scans.work(scan_id)
