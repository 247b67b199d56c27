"""Moving and reading bytes of tiers that are mounted where the workers run."""

from __future__ import annotations

from celery import shared_task

from apps.audits import repairing, working
from apps.transfers import moving


@shared_task(name="muster.move.slice")
def move_slice(transfer_id: str) -> None:
    """At most half a minute of one transfer; the next slice is woken where it is not done."""
    moving.work(transfer_id)


@shared_task(name="muster.move.audit_slice")
def audit_slice(audit_id: str) -> None:
    """At most half a minute of one audit; the next slice is woken where it is not done."""
    working.work(audit_id)


@shared_task(name="muster.move.repair_slice")
def repair_slice(repair_id: str) -> None:
    """At most half a minute of one repair; the next slice is woken where it is not done."""
    repairing.work(repair_id)
