"""What happened in one simulation: the agents' side from the work itself, the server's from its rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Attempt = tuple[str, int]
"""A task's id and its attempt."""


@dataclass(slots=True)
class Work:
    """One stretch of work at one attempt, on the true clock. `ended` is `done`, `stopped` or `killed`."""

    attempt: Attempt
    began_at: float
    ended_at: float | None = None
    ended: str | None = None


@dataclass(slots=True)
class TaskRow:
    """A task as the database has it at the end."""

    id: str
    state: str
    outcome: str
    attempt: int
    runs: int
    idempotent: bool
    group_id: str | None
    result: dict[str, Any] | None
    moves: list[tuple[str, str]]
    """Its transitions, oldest first."""
    seqs: dict[int, list[int]]
    """Stored sequence numbers of its events by attempt, in the order in which they were stored."""


@dataclass(slots=True)
class GroupRow:
    """A barrier at the end; `starts_at` on the true clock, as `Work` has it."""

    state: str
    starts_at: float | None


@dataclass(slots=True)
class History:
    works: list[Work] = field(default_factory=list)
    emitted: dict[Attempt, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Sequence numbers that an agent gave its events."""
    seen: dict[str, list[tuple[int, float | None]]] = field(default_factory=lambda: defaultdict(list))
    """(attempt, end of its lease) of each unfinished task at every look."""
    tasks: list[TaskRow] = field(default_factory=list)
    groups: dict[str, GroupRow] = field(default_factory=dict)
    revoked: list[str] = field(default_factory=list)
    """Agents that the server refuses at the end."""
