"""The one shape in which every scheduler's nodes and jobs come, and what may be asked of it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

PARKED_REASON = "muster standby"
"""Why a spare is kept out of use; by it Muster knows the nodes that it may bring in."""


class SchedulerError(Exception):
    """The scheduler could not be asked, or refused. The message says what it said and what to do."""


class SchedulerNode(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is the scheduler's own word with its flags (`mixed+drain`); `usable`: it places new work there now;
    `parked`: it is up, and only kept out of use as a spare."""

    name: str
    state: str
    usable: bool
    parked: bool = False
    reason: str = ""
    cpu_count: int | None = None
    gpu_count: int | None = None
    memory_bytes: int | None = None
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


class SchedulerJob(msgspec.Struct, frozen=True, kw_only=True):
    """`restart_count`: how often it was requeued. `eligible_at`: before it the scheduler does not even try to start it.
    Slurm's times are whole seconds."""

    job_id: str
    name: str
    state: str
    user: str = ""
    partition: str = ""
    nodes: tuple[str, ...] = ()
    reason: str = ""
    restart_count: int = 0
    submitted_at: datetime | None = None
    eligible_at: datetime | None = None
    started_at: datetime | None = None


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: str
    node_count: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment. `version` is the scheduler's own."""

    nodes: tuple[SchedulerNode, ...]
    jobs: tuple[SchedulerJob, ...] = ()
    partitions: tuple[Partition, ...] = ()
    version: str = ""


class Scheduler(Protocol):
    """Each raises SchedulerError. What it asks for has been accepted when the call returns; whether it has taken
    effect, `node` tells."""

    def snapshot(self) -> Snapshot: ...

    def node(self, name: str) -> SchedulerNode: ...

    def job(self, job_id: str) -> SchedulerJob | None:
        """None for a job that the scheduler no longer knows."""

    def drain(self, node: str, reason: str) -> None:
        """No new work; what runs there runs on."""

    def fail(self, node: str, reason: str) -> None:
        """As if the node had died: its jobs end there, and are requeued where they may be."""

    def resume(self, node: str) -> None:
        """Place work there again."""

    def requeue_hold_seconds(self) -> float | None:
        """How long a requeued job has to wait by configuration; None where it is not known."""

    requeue_hold_cure: str
    """What an administrator can do about that wait."""
