"""What a cluster consists of: its scheduler's word beside its agents', and what changed since last time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from apps.fleet.schedulers.base import Partition, SchedulerJob, SchedulerNode, Snapshot

SILENT = ("stale", "lost", "revoked", "incompatible")


class AgentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent is and tells of its node. `gpu_count` None: an agent that does not tell. `file_systems`: by the
    root that it may read."""

    state: str
    version: str = ""
    gpu_count: int | None = None
    file_systems: dict[str, str] = {}


class InventoryNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node as both sides know it; None where a side does not."""

    name: str
    scheduler: SchedulerNode | None = None
    agent: AgentFacts | None = None
    problems: tuple[str, ...] = ()


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """A whole inventory."""

    nodes: tuple[InventoryNode, ...] = ()
    partitions: tuple[Partition, ...] = ()
    jobs: tuple[SchedulerJob, ...] = ()


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """`what` is appeared, vanished or changed; then `field` names what, from `before` to `after`."""

    kind: str
    name: str
    what: str
    field: str = ""
    before: Any = None
    after: Any = None


def contents(snapshot: Snapshot | None, agents: Mapping[str, AgentFacts]) -> Contents:
    """Both sides joined by name. `snapshot` None: there is no scheduler to ask, so no node lacks one."""
    listed = {node.name: node for node in snapshot.nodes} if snapshot else {}
    known = {_name_in(listed, name): facts for name, facts in agents.items()}
    names = sorted(listed.keys() | known.keys())
    nodes = (_joined(name, listed.get(name), known.get(name), snapshot is not None) for name in names)
    if snapshot is None:
        return Contents(nodes=tuple(nodes))
    return Contents(nodes=tuple(nodes), partitions=snapshot.partitions, jobs=snapshot.jobs)


def _name_in(listed: Mapping[str, SchedulerNode], name: str) -> str:
    """Schedulers use short host names where an agent may have the full one."""
    short = name.partition(".")[0]
    return short if name not in listed and short in listed else name


def _joined(name: str, scheduler: SchedulerNode | None, agent: AgentFacts | None, has_scheduler: bool) -> InventoryNode:
    problems = []
    if agent is not None and agent.state in SILENT and scheduler is not None and scheduler.usable:
        problems.append(f"The scheduler places work here, but its agent is {agent.state}: look at the agent's log.")
    if agent is not None and scheduler is None and has_scheduler:
        problems.append("The scheduler knows no node of this name: join the agent with --name as it is called there.")
    promised, seen = (scheduler.gpu_count if scheduler else None), (agent.gpu_count if agent else None)
    if promised is not None and seen is not None and promised != seen:
        problems.append(
            f"The scheduler promises {promised} GPUs, the agent sees {seen}: drain it and look at the driver."
        )
    return InventoryNode(name=name, scheduler=scheduler, agent=agent, problems=tuple(problems))


def without_agent(nodes: Iterable[InventoryNode]) -> list[str]:
    """The scheduler's nodes that no agent has joined from: blind spots of every drill."""
    return [node.name for node in nodes if node.scheduler is not None and node.agent is None]


def changes(before: Contents, after: Contents) -> list[Change]:
    """What differs, in the order nodes, partitions, jobs."""
    return [
        *_compared("node", _by_name(before.nodes), _by_name(after.nodes), _NODE_FIELDS),
        *_compared("partition", _by_name(before.partitions), _by_name(after.partitions), _PARTITION_FIELDS),
        *_compared("job", _by_id(before.jobs), _by_id(after.jobs), _JOB_FIELDS),
    ]


_NODE_FIELDS = (
    "scheduler.state",
    "scheduler.gpu_count",
    "scheduler.partitions",
    "agent.state",
    "agent.version",
    "agent.gpu_count",
    "agent.file_systems",
)
_PARTITION_FIELDS = ("state", "node_count")
_JOB_FIELDS = ("state", "nodes", "restart_count")


def _by_name(rows: Iterable[Any]) -> dict[str, Any]:
    return {row.name: row for row in rows}


def _by_id(jobs: Iterable[SchedulerJob]) -> dict[str, SchedulerJob]:
    return {job.job_id: job for job in jobs}


def _compared(kind: str, before: dict[str, Any], after: dict[str, Any], fields: tuple[str, ...]) -> Iterable[Change]:
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield Change(kind=kind, name=name, what="appeared")
        elif name not in after:
            yield Change(kind=kind, name=name, what="vanished")
        else:
            for field in fields:
                old, new = _read(before[name], field), _read(after[name], field)
                if old != new:
                    yield Change(kind=kind, name=name, what="changed", field=field, before=old, after=new)


def _read(row: Any, path: str) -> Any:
    """The value at `a.b`, None where there is no `a`."""
    for part in path.split("."):
        row = getattr(row, part) if row is not None else None
    return row
