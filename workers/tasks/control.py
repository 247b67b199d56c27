"""Waking, sweeping and ticking."""

from __future__ import annotations

from celery import shared_task

from apps.alerts import deliveries, relay
from apps.alerts import services as alerts
from apps.audits import schedules as audit_schedules
from apps.audits import stale
from apps.checkpoints import rescans, scan_pruning, scheduler_events
from apps.core import heartbeats
from apps.core.dispatch import wake_owner
from apps.drills import schedules
from apps.fleet import cluster_inventory, upkeep
from apps.recovery import services as recovery
from apps.storage import ceilings
from apps.transfers import schedules as policies
from workers.tasks.owners import ADVANCE, DUE


@shared_task(name="muster.control.advance")
def advance(owner_kind: str, owner_id: str) -> None:
    """Something that this row waited for has happened."""
    ADVANCE[owner_kind](owner_id)


@shared_task(name="muster.control.tick")
def tick() -> None:
    """Every second: schedules that are due, and scans after saves."""
    schedules.fire_due()
    rescans.fire_due()
    policies.fire_due()
    audit_schedules.fire_due()
    relay.relay()
    deliveries.wake_due(deliveries.JUST_NOW)
    heartbeats.beat(heartbeats.TICKS)


@shared_task(name="muster.control.sweep")
def sweep() -> None:
    """Every 10 s: whatever a lost message left lying."""
    upkeep.expire_leases()
    upkeep.mark_silent_agents()
    cluster_inventory.wake_due()
    for owner_kind, due in DUE:
        for owner_id in due():
            wake_owner(owner_kind, owner_id)
    rescans.request_overdue()
    ceilings.request_overdue()
    policies.fire_on_complete()
    scan_pruning.prune()
    upkeep.prune_events()
    stale.compare_due()
    recovery.follow_runs()
    alerts.evaluate()
    deliveries.wake_due()
    deliveries.prune()
    heartbeats.beat(heartbeats.SWEEPS)


@shared_task(name="muster.control.pulse")
def pulse(queue: str) -> None:
    """Every 15 s through each queue: its worker is known to work by the row that it writes."""
    heartbeats.beat(f"queue:{queue}")


@shared_task(name=cluster_inventory.TASK)
def inventory_cluster(cluster_id: str) -> None:
    """Ask a cluster's scheduler what it consists of."""
    cluster_inventory.take_inventory(cluster_id)
    scheduler_events.follow_jobs(cluster_id)
