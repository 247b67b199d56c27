"""What the changes of each kind of row are told as: what a change may be, and what it is once its row is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from apps.alerts import of_checkpoints
from apps.alerts.drafts import draft_of
from apps.alerts.events import MAX_TEXT, Draft
from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan
from apps.core.models import Transition
from apps.drills.models import Drill
from apps.fleet.models import Agent
from apps.transfers.models import Transfer

_OF_TRANSFER = ("checkpoint__run", "cluster", "source__tier__cluster", "source__checkpoint__run")
_JUDGED = (Drill.ObjectiveState.MET, Drill.ObjectiveState.BREACHED)


@dataclass(frozen=True)
class Source:
    """`may_be` knows the change only, and names at least what `types` then gives. `find` reads the row with all that
    its events say, once; None where it is gone."""

    may_be: Callable[[Transition], Sequence[str]]
    find: Callable[[str], Any]
    types: Callable[[Transition, Any], Sequence[str]]
    draft: Callable[[Transition, Any, str], Draft]


# -- drills ------------------------------------------------------------------------------------------------------------
def _drill_may_be(row: Transition) -> Sequence[str]:
    """Its outcome stands at the beginning of the reason; whether it was in time, only the drill knows."""
    if row.new != Drill.State.FINISHED:
        return ("drill.started",) if row.new == Drill.State.RUNNING else ()
    outcome = row.reason.partition(":")[0]
    if outcome == Drill.Outcome.PASSED:
        return "drill.passed", "drill.breached", "objective.breached", "objective.recovered"
    return (f"drill.{outcome}",) if outcome in Drill.Outcome.values and outcome else ()


def _drill_types(row: Transition, drill: Drill) -> Sequence[str]:
    may_be = _drill_may_be(row)
    if "drill.passed" not in may_be:
        return may_be
    is_late = drill.objective_state == Drill.ObjectiveState.BREACHED
    return "drill.breached" if is_late else "drill.passed", *_turn_of(drill)


def _turn_of(drill: Drill) -> Sequence[str]:
    """Against the run's last drill of the same kind that was judged; before the first one the objective was kept."""
    earlier = Drill.objects.filter(
        run=drill.run_id, kind=drill.kind, outcome=Drill.Outcome.PASSED, objective_state__in=_JUDGED,
        finished_at__lt=drill.finished_at,
    )  # fmt: skip
    last = earlier.order_by("-finished_at").values_list("objective_state", flat=True).first()
    was_late, is_late = last == Drill.ObjectiveState.BREACHED, drill.objective_state == Drill.ObjectiveState.BREACHED
    if drill.objective_state not in _JUDGED or was_late == is_late:
        return ()
    return ("objective.breached",) if is_late else ("objective.recovered",)


def _find_drill(pk: str) -> Drill | None:
    return Drill.objects.select_related("run", "cluster").filter(pk=pk).first()


def _of_drill(row: Transition, drill: Drill, event_type: str) -> Draft:
    data = {
        "drill": drill.pk, "kind": drill.kind, "run": drill.run_id, "run_name": drill.run.name,
        "cluster": drill.cluster_id, "cluster_name": drill.cluster.name, "step": drill.checkpoint_step,
        "outcome": drill.outcome, "objective_state": drill.objective_state, "seconds": drill.seconds,
        "objective_seconds": drill.objective_seconds, "page": f"/drills/{drill.pk}/",
        "summary": f"{drill.get_kind_display()} drill of {drill.run.name}: {row.reason or row.new}"[:MAX_TEXT],
    }  # fmt: skip
    subject = f"run/{drill.run_id}" if event_type.startswith("objective.") else f"drill/{drill.pk}"
    return draft_of(row, event_type, drill.cluster_id, subject, data)


# -- agents ------------------------------------------------------------------------------------------------------------
def _agent_types(row: Transition, _agent: Agent | None = None) -> Sequence[str]:
    recovered = row.old == Agent.State.LOST and row.new in (Agent.State.ONLINE, Agent.State.BUSY)
    return ("agent.lost",) if row.new == Agent.State.LOST else ("agent.recovered",) if recovered else ()


def _find_agent(pk: str) -> Agent | None:
    return Agent.objects.select_related("node__cluster").filter(pk=pk).first()


def _of_agent(row: Transition, agent: Agent, event_type: str) -> Draft:
    node = agent.node
    data = {
        "agent": agent.pk, "node": node.pk, "node_name": node.name, "cluster": node.cluster_id,
        "cluster_name": node.cluster.name, "page": f"/nodes/{node.pk}/",
        "summary": f"The agent on {node.name} is {row.new}: {row.reason}"[:MAX_TEXT],
    }  # fmt: skip
    return draft_of(row, event_type, node.cluster_id, f"agent/{agent.pk}", data)


# -- audits ------------------------------------------------------------------------------------------------------------
def _audit_may_be(row: Transition) -> Sequence[str]:
    return ("checkpoint.verified", "checkpoint.corrupt") if row.new == Audit.State.FINISHED else ()


def _audit_types(_row: Transition, audit: Audit) -> Sequence[str]:
    if audit.mode != Audit.Mode.VERIFY:
        return ()
    if audit.outcome == Audit.Outcome.DAMAGED:
        return ("checkpoint.corrupt",)
    return ("checkpoint.verified",) if audit.outcome == Audit.Outcome.PASSED and not audit.is_sample else ()


def _find_audit(pk: str) -> Audit | None:
    found = Audit.objects.select_related("placement__checkpoint__run", "placement__tier__cluster")
    return found.filter(pk=pk).first()


def _of_audit(row: Transition, audit: Audit, event_type: str) -> Draft:
    checkpoint, tier = audit.placement.checkpoint, audit.placement.tier
    data = {
        "audit": audit.pk, **of_checkpoints.of_copy(audit.placement),
        "summary": f"Step {checkpoint.step} of {checkpoint.run.name} on {tier.name}: {audit.reason}"[:MAX_TEXT],
    }  # fmt: skip
    return draft_of(row, event_type, tier.cluster_id, f"checkpoint/{checkpoint.pk}", data)


# -- scans -------------------------------------------------------------------------------------------------------------
def _scan_types(row: Transition, _scan: InventoryScan | None = None) -> Sequence[str]:
    return {"finished": ("scan.finished",), "failed": ("scan.failed",)}.get(row.new, ())


def _find_scan(pk: str) -> InventoryScan | None:
    return InventoryScan.objects.select_related("tier__cluster").filter(pk=pk).first()


def _of_scan(row: Transition, scan: InventoryScan, event_type: str) -> Draft:
    tier = scan.tier
    data = {
        "scan": scan.pk, "tier": tier.pk, "tier_name": tier.name, "cluster": tier.cluster_id,
        "cluster_name": tier.cluster.name, "checkpoint_count": scan.checkpoint_count, "new_count": scan.new_count,
        "changed_count": scan.changed_count, "damage_count": scan.damage_count, "doubt": scan.doubt[:MAX_TEXT],
        "page": f"/scans/{scan.pk}/",
        "summary": f"Scan of {tier.name}: {scan.doubt or row.reason or row.new}"[:MAX_TEXT],
    }  # fmt: skip
    return draft_of(row, event_type, tier.cluster_id, f"scan/{scan.pk}", data)


# -- transfers ---------------------------------------------------------------------------------------------------------
def _transfer_may_be(row: Transition) -> Sequence[str]:
    ends = {"done": ("transfer.completed", "checkpoint.expired"), "failed": ("transfer.failed",)}
    return ends.get(row.new, ())


def _transfer_types(row: Transition, transfer: Transfer) -> Sequence[str]:
    """That a copy goes for good is news of its checkpoint too."""
    is_expired = transfer.kind == Transfer.Kind.EXPIRE
    return [one for one in _transfer_may_be(row) if is_expired or one != "checkpoint.expired"]


def _find_transfer(pk: str) -> Transfer | None:
    return Transfer.objects.select_related(*_OF_TRANSFER).filter(pk=pk).first()


def _of_transfer(row: Transition, transfer: Transfer, event_type: str) -> Draft:
    if event_type == "checkpoint.expired":
        return of_checkpoints.expired(row, transfer)
    checkpoint = transfer.checkpoint
    data = {
        "transfer": transfer.pk, "kind": transfer.kind, "checkpoint": checkpoint.pk, "step": checkpoint.step,
        "run": checkpoint.run_id, "run_name": checkpoint.run.name, "cluster": transfer.cluster_id,
        "cluster_name": transfer.cluster.name, "target_path": transfer.target_path[:MAX_TEXT],
        "page": f"/transfers/{transfer.pk}/",
        "summary": f"Transfer of step {checkpoint.step} of {checkpoint.run.name}: {row.reason or row.new}"[:MAX_TEXT],
    }  # fmt: skip
    return draft_of(row, event_type, transfer.cluster_id, f"transfer/{transfer.pk}", data)


SOURCES = {
    "drill": Source(_drill_may_be, _find_drill, _drill_types, _of_drill),
    "agent": Source(_agent_types, _find_agent, _agent_types, _of_agent),
    "audit": Source(_audit_may_be, _find_audit, _audit_types, _of_audit),
    "inventoryscan": Source(_scan_types, _find_scan, _scan_types, _of_scan),
    "transfer": Source(_transfer_may_be, _find_transfer, _transfer_types, _of_transfer),
    "placement": Source(
        of_checkpoints.may_be, of_checkpoints.find, of_checkpoints.types, of_checkpoints.became_known_or_complete
    ),
}
"""By the transition's owner kind."""
