"""Inventory scans: an agent lists a root, the control plane records what it found."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.db import DataError, IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone
from muster_agent.protocol.wire import InventoryBody, InventoryParams, TaskKind

from apps.accounts.services import log_activity
from apps.checkpoints.models import InventoryScan
from apps.checkpoints.scan_results import take_in
from apps.core import slices
from apps.core.dispatch import enqueue, wake_owner
from apps.core.errors import Conflict, InvalidInput
from apps.core.models import Transition
from apps.core.transitions import record, transition
from apps.core.wakeups import announce
from apps.fleet import selectors as fleet
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask
from apps.storage.models import StorageTier
from apps.storage.paths import contains, normalized_uri

log = logging.getLogger(__name__)

OWNER_KIND = "scan"
SLICE = "muster.scan.slice"
"""The Celery task that lists for at most half a minute, where the workers list themselves."""
LOOK_AGAIN = timedelta(seconds=30)
"""How soon the sweeper looks at a scan again, in case a message was lost."""
UNFINISHED = (InventoryScan.State.QUEUED, InventoryScan.State.RUNNING)


@transaction.atomic
def request_scan(
    *,
    tier: StorageTier,
    root: str | None = None,
    agent: Agent | None = None,
    accepts_loss: bool = False,
    planned_at: datetime | None = None,
    actor: str,
    is_logged: bool = True,
) -> InventoryScan:
    """Have `root` listed (default: the whole tier). Raises InvalidInput for a root outside the tier, Conflict
    when it is being scanned already or no agent that is online reaches it. `accepts_loss`: what is not there any more
    was removed on purpose. `planned_at`: the moment of a schedule that it answers. `is_logged`: a person asked, so that
    it belongs into the activity log."""
    place = _root_of(tier, root)
    by_workers = agent is None and tier.scanned_by == StorageTier.ScannedBy.WORKERS
    lister = None if by_workers else _agent_for(tier, place, agent)
    now = timezone.now()
    scan = InventoryScan(
        tier=tier,
        agent=lister,
        root=place,
        accepts_loss=accepts_loss,
        planned_at=planned_at,
        requested_by=actor,
        created_at=now,
        next_attempt_at=now + LOOK_AGAIN,
    )
    try:
        with transaction.atomic():
            scan.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(f"{place} is being scanned already; wait for that scan, or cancel it.") from error
    _hand_out(scan)
    record("inventoryscan", scan.pk, old="", new=scan.state, actor=actor)
    if is_logged:
        log_activity(
            actor=actor,
            action="scan.request",
            target_kind="scan",
            target_id=scan.pk,
            cluster_id=scan.tier.cluster_id,
            detail={"root": place},
        )
    return scan


def _hand_out(scan: InventoryScan) -> None:
    if scan.agent is None:
        enqueue(SLICE, scan_id=scan.pk)
        return
    tasks.create_task(
        agent=scan.agent,
        kind=TaskKind.INVENTORY,
        params=InventoryParams(root=scan.root, store=scan.tier.store),
        owner_kind=OWNER_KIND,
        owner_id=scan.pk,
    )


def _root_of(tier: StorageTier, root: str | None) -> str:
    place = tier.uri if root is None else normalized_uri(root, pointer="/root")
    if not contains(tier.uri, place):
        raise InvalidInput(f"{place} is not inside {tier.uri}, where {tier.name} lies.", pointer="/root")
    return place


def _agent_for(tier: StorageTier, place: str, agent: Agent | None) -> Agent:
    """The agent asked for, if it can do it; else the first that can."""
    reaching = fleet.agents_reaching(place, tier.cluster)
    if agent is None:
        chosen = next(iter(reaching), None)
        if chosen is None:
            raise Conflict(
                f"No agent that is online in {tier.cluster.name} reaches {place}; "
                "start one whose roots contain it (`muster agent join --root`).",
                code="no_agent",
            )
        return chosen
    if all(other.pk != agent.pk for other in reaching):
        raise Conflict(
            f"This agent is not online, or {place} is in none of its roots.", code="no_agent", pointer="/agent"
        )
    return agent


@transaction.atomic
def cancel_scan(*, scan: InventoryScan, actor: str) -> InventoryScan:
    """Stop a scan; what it had listed is dropped. Raises Conflict for one that has ended."""
    if scan.state not in UNFINISHED:
        raise Conflict(f"This scan has ended already ({scan.state}); there is nothing to cancel.")
    reason = f"cancelled by {actor}"
    tasks.cancel_owner(owner_kind=OWNER_KIND, owner_id=scan.pk, reason=reason)
    log_activity(
        actor=actor, action="scan.cancel", target_kind="scan", target_id=scan.pk, cluster_id=scan.tier.cluster_id
    )
    if scan.agent_id is None:
        end(scan, InventoryScan.State.CANCELLED, reason)
    else:
        advance(scan.pk)
    scan.refresh_from_db()
    return scan


def due() -> list[str]:
    """Unfinished scans that nobody has looked at for a while."""
    rows = InventoryScan.objects.filter(next_attempt_at__lte=timezone.now(), state__in=UNFINISHED)
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def advance(scan_id: str) -> None:
    """Look at a scan's task and do what is due. Calling it twice, or from two workers, changes nothing."""
    scan = InventoryScan.objects.select_related("tier__cluster").filter(pk=scan_id, state__in=UNFINISHED).first()
    if scan is None:
        return
    if scan.agent_id is None:
        InventoryScan.objects.filter(pk=scan.pk).update(next_attempt_at=timezone.now() + LOOK_AGAIN)
        enqueue(SLICE, scan_id=scan.pk)
        return
    task = tasks.tasks_of(OWNER_KIND, scan_id).last()
    if task is None:
        end(scan, InventoryScan.State.FAILED, "its task is gone; scan again")
    elif not task.outcome:
        _note_progress(scan, task)
    elif task.outcome == AgentTask.Outcome.DONE:
        _take_result(scan, task)
    elif task.outcome == AgentTask.Outcome.CANCELLED:
        end(scan, InventoryScan.State.CANCELLED, task.error)
    else:
        end(scan, InventoryScan.State.FAILED, _why(task), error_code=task.error_code or task.outcome)


def _note_progress(scan: InventoryScan, task: AgentTask) -> None:
    began = task.state not in (AgentTask.State.QUEUED, AgentTask.State.LEASED)
    if began and transition(
        scan, old=InventoryScan.State.QUEUED, new=InventoryScan.State.RUNNING, started_at=timezone.now()
    ):
        announce(f"scan:{scan.pk}")
    unleased = InventoryScan.objects.filter(pk=scan.pk, state__in=UNFINISHED, lease_expires_at=None)
    unleased.update(next_attempt_at=timezone.now() + LOOK_AGAIN)


def lease(scan: InventoryScan) -> bool:
    """Keep other workers out for a while; False when one is at it."""
    seconds = timedelta(seconds=settings.SCAN_LEASE_SECONDS)
    return slices.take_lease(scan, lease=seconds, state__in=UNFINISHED)


def _take_result(scan: InventoryScan, task: AgentTask) -> None:
    """Ingest, under a lease in the row, so that a second worker keeps out while the first one is at it."""
    if not lease(scan):
        return
    try:
        body = tasks.body(task, InventoryBody)
    except msgspec.ValidationError as error:
        end(scan, InventoryScan.State.FAILED, f"the agent's answer was not understood ({error}); update the agent")
        return
    try:
        fields = take_in(scan, body, handed_out_at(task) or scan.created_at)
    except DataError as error:
        log.exception("scan %s could not be recorded", scan.pk)
        end(scan, InventoryScan.State.FAILED, f"the listing could not be recorded: {error}")
        return
    end(scan, InventoryScan.State.FINISHED, "", **fields)
    if InventoryScan.objects.filter(pk=scan.pk, state__in=UNFINISHED).exists():
        # Another worker noted progress meanwhile, so the scan is not ended: the result is still needed.
        wake_owner(OWNER_KIND, scan.pk)
        return
    tasks.forget_result(task)


def handed_out_at(task: AgentTask) -> datetime | None:
    """A moment that surely lies before the work, and close to it: when the last attempt was given to its agent.
    (`started_at` comes with the first events, which may be as late as the result.)"""
    handed_out = Transition.objects.filter(owner_kind="agenttask", owner_id=task.pk, new=AgentTask.State.LEASED)
    at: datetime | None = handed_out.aggregate(at=Max("at"))["at"]
    return at


def _why(task: AgentTask) -> str:
    if task.outcome == AgentTask.Outcome.LOST:
        return f"the agent was lost while it listed ({task.error or 'no word from it'}); nothing was taken for gone"
    if task.outcome == AgentTask.Outcome.UNSUPPORTED:
        return "this agent is too old to take inventories; update it"
    return task.error or "the agent gave no reason"


def end(scan: InventoryScan, state: InventoryScan.State, error: str, **fields: Any) -> None:
    """End it, whoever did the listing."""
    now = timezone.now()
    ended = {"error": error, "finished_at": now, "next_attempt_at": None, **fields}
    if transition(scan, old=UNFINISHED, new=state, reason=error, **ended):
        announce(f"scan:{scan.pk}")
