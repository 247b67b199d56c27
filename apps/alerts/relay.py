"""Turns transition rows into events for the webhooks that asked for them.

A transition row is written with the change itself, so nothing can happen without one; this only reads them, once each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.alerts.events import MAX_TEXT, Draft, enabled_channels, publish, wishes_of
from apps.alerts.models import Channel
from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan
from apps.core.models import Transition
from apps.drills.models import Drill
from apps.fleet.models import Agent
from apps.transfers.models import Transfer

AT_ONCE = 500
_ENDS = {"done": "transfer.completed", "failed": "transfer.failed"}


def relay() -> int:
    """Look at up to 500 transitions that nobody has looked at yet. Gives how many. Two at once tell each only once."""
    rows = list(Transition.objects.filter(processed_at=None).order_by("pk")[:AT_ONCE])
    if not rows:
        return 0
    channels = [channel for channel in enabled_channels() if channel.kind == Channel.Kind.WEBHOOK]
    kinds = {row.pk: _type_of(row) for row in rows} if channels else {}
    telling = {pk: kind for pk, kind in kinds.items() if kind and any(wishes_of(one).has(kind) for one in channels)}
    for row in rows:
        if row.pk in telling:
            _tell(row, telling[row.pk], channels)
    rest = [row.pk for row in rows if row.pk not in telling]
    Transition.objects.filter(pk__in=rest, processed_at=None).update(processed_at=timezone.now())
    return len(rows)


@transaction.atomic
def _tell(row: Transition, kind: str, channels: Sequence[Channel]) -> None:
    """Whoever marks the row tells it."""
    if Transition.objects.filter(pk=row.pk, processed_at=None).update(processed_at=timezone.now()) != 1:
        return
    draft = _DRAFTS[row.owner_kind](row, kind)
    if draft is not None:
        publish(draft, channels)


def _type_of(row: Transition) -> str:
    """The event that this change is; "" where it is none. For a drill's and an audit's end its row is read."""
    if row.owner_kind == "drill":
        started = "drill.started" if row.new == Drill.State.RUNNING else ""
        return _drill_end(row) if row.new == Drill.State.FINISHED else started
    if row.owner_kind == "agent":
        recovered = row.old == Agent.State.LOST and row.new in (Agent.State.ONLINE, Agent.State.BUSY)
        return "agent.lost" if row.new == Agent.State.LOST else "agent.recovered" if recovered else ""
    if row.owner_kind == "audit" and row.new == Audit.State.FINISHED:
        return _audit_end(row)
    if row.owner_kind == "inventoryscan":
        return {"finished": "scan.finished", "failed": "scan.failed"}.get(row.new, "")
    return _ENDS.get(row.new, "") if row.owner_kind == "transfer" else ""


def _drill_end(row: Transition) -> str:
    """Its outcome stands at the beginning of the reason; whether it was in time, only the drill knows."""
    outcome = row.reason.partition(":")[0]
    if outcome != Drill.Outcome.PASSED:
        return f"drill.{outcome}" if outcome in Drill.Outcome.values and outcome else ""
    late = Drill.objects.filter(pk=row.owner_id, objective_state=Drill.ObjectiveState.BREACHED).exists()
    return "drill.breached" if late else "drill.passed"


def _audit_end(row: Transition) -> str:
    audit = Audit.objects.filter(pk=row.owner_id).first()
    if audit is None or audit.mode != Audit.Mode.VERIFY:
        return ""
    is_whole = audit.outcome == Audit.Outcome.PASSED and not audit.is_sample
    return "checkpoint.corrupt" if audit.outcome == Audit.Outcome.DAMAGED else "checkpoint.verified" if is_whole else ""


def _draft(row: Transition, kind: str, cluster_id: str, subject: str, data: dict[str, Any]) -> Draft:
    shared = {"old": row.old, "new": row.new, "reason": row.reason[:MAX_TEXT], "actor": row.actor}
    return Draft(kind, subject, cluster_id, {**data, **shared}, row.at, source_key=f"transition:{row.pk}")


def _of_drill(row: Transition, kind: str) -> Draft | None:
    drill = Drill.objects.select_related("run", "cluster").filter(pk=row.owner_id).first()
    if drill is None:
        return None
    data = {
        "drill": drill.pk, "kind": drill.kind, "run": drill.run_id, "run_name": drill.run.name,
        "cluster": drill.cluster_id, "cluster_name": drill.cluster.name, "step": drill.checkpoint_step,
        "outcome": drill.outcome, "objective_state": drill.objective_state, "seconds": drill.seconds,
        "objective_seconds": drill.objective_seconds, "page": f"/drills/{drill.pk}/",
        "summary": f"{drill.get_kind_display()} drill of {drill.run.name}: {row.reason or row.new}"[:MAX_TEXT],
    }  # fmt: skip
    return _draft(row, kind, drill.cluster_id, f"drill/{drill.pk}", data)


def _of_agent(row: Transition, kind: str) -> Draft | None:
    agent = Agent.objects.select_related("node__cluster").filter(pk=row.owner_id).first()
    if agent is None:
        return None
    node = agent.node
    data = {
        "agent": agent.pk, "node": node.pk, "node_name": node.name, "cluster": node.cluster_id,
        "cluster_name": node.cluster.name, "page": f"/nodes/{node.pk}/",
        "summary": f"The agent on {node.name} is {row.new}: {row.reason}"[:MAX_TEXT],
    }  # fmt: skip
    return _draft(row, kind, node.cluster_id, f"agent/{agent.pk}", data)


def _of_audit(row: Transition, kind: str) -> Draft | None:
    found = Audit.objects.select_related("placement__checkpoint__run", "placement__tier__cluster")
    audit = found.filter(pk=row.owner_id).first()
    if audit is None:
        return None
    copy, checkpoint, tier = audit.placement, audit.placement.checkpoint, audit.placement.tier
    data = {
        "audit": audit.pk, "checkpoint": checkpoint.pk, "step": checkpoint.step, "run": checkpoint.run_id,
        "run_name": checkpoint.run.name, "placement": copy.pk, "path": copy.path[:MAX_TEXT], "tier_name": tier.name,
        "cluster": tier.cluster_id, "cluster_name": tier.cluster.name, "page": f"/checkpoints/{checkpoint.pk}/",
        "summary": f"Step {checkpoint.step} of {checkpoint.run.name} on {tier.name}: {audit.reason}"[:MAX_TEXT],
    }  # fmt: skip
    return _draft(row, kind, tier.cluster_id, f"checkpoint/{checkpoint.pk}", data)


def _of_scan(row: Transition, kind: str) -> Draft | None:
    scan = InventoryScan.objects.select_related("tier__cluster").filter(pk=row.owner_id).first()
    if scan is None:
        return None
    tier = scan.tier
    data = {
        "scan": scan.pk, "tier": tier.pk, "tier_name": tier.name, "cluster": tier.cluster_id,
        "cluster_name": tier.cluster.name, "checkpoint_count": scan.checkpoint_count, "new_count": scan.new_count,
        "changed_count": scan.changed_count, "damage_count": scan.damage_count, "doubt": scan.doubt[:MAX_TEXT],
        "page": f"/scans/{scan.pk}/",
        "summary": f"Scan of {tier.name}: {scan.doubt or row.reason or row.new}"[:MAX_TEXT],
    }  # fmt: skip
    return _draft(row, kind, tier.cluster_id, f"scan/{scan.pk}", data)


def _of_transfer(row: Transition, kind: str) -> Draft | None:
    transfer = Transfer.objects.select_related("checkpoint__run", "cluster").filter(pk=row.owner_id).first()
    if transfer is None:
        return None
    checkpoint = transfer.checkpoint
    data = {
        "transfer": transfer.pk, "kind": transfer.kind, "checkpoint": checkpoint.pk, "step": checkpoint.step,
        "run": checkpoint.run_id, "run_name": checkpoint.run.name, "cluster": transfer.cluster_id,
        "cluster_name": transfer.cluster.name, "target_path": transfer.target_path[:MAX_TEXT],
        "page": f"/transfers/{transfer.pk}/",
        "summary": f"Transfer of step {checkpoint.step} of {checkpoint.run.name}: {row.reason or row.new}"[:MAX_TEXT],
    }  # fmt: skip
    return _draft(row, kind, transfer.cluster_id, f"transfer/{transfer.pk}", data)


_DRAFTS: dict[str, Callable[[Transition, str], Draft | None]] = {
    "drill": _of_drill,
    "agent": _of_agent,
    "audit": _of_audit,
    "inventoryscan": _of_scan,
    "transfer": _of_transfer,
}
