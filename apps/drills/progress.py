"""How far the clients of a drill are while they work: by node, with the ranks that each reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from apps.drills.finish import OWNER_KIND
from apps.drills.models import Drill
from apps.fleet.models import AgentTask

MAX_CLIENTS = 512


@dataclass(frozen=True, kw_only=True)
class ClientProgress:
    """One client of the round at work. What it has not reported is None, or "" for a phase; `bytes_per_second` is over
    the phase so far, by the agent's own times."""

    task: AgentTask
    node: str
    ranks: tuple[int, ...]
    phase: str = ""
    done_bytes: int | None = None
    total_bytes: int | None = None
    bytes_per_second: float | None = None

    @property
    def state(self) -> str:
        return self.task.outcome or self.task.state

    @property
    def percent(self) -> str | None:
        if not self.total_bytes or self.done_bytes is None:
            return None
        return f"{100 * min(1.0, self.done_bytes / self.total_bytes):.0f}"


def progress_of(drill: Drill) -> list[ClientProgress]:
    """Of the newest round, by rank; none for a drill that has finished."""
    if drill.state == Drill.State.FINISHED:
        return []
    rows = AgentTask.objects.filter(owner_kind=OWNER_KIND, owner_id=drill.pk).select_related("agent__node")
    newest = rows.order_by("-created_at", "-pk").first()
    if newest is None:
        return []
    if newest.group_id is not None:
        rows = rows.filter(group_id=newest.group_id)
    tasks = rows.defer("params", "result", "late_results").order_by("created_at", "pk")[:MAX_CLIENTS]
    return _by_rank(drill, tasks)


def _by_rank(drill: Drill, tasks: Iterable[AgentTask]) -> list[ClientProgress]:
    ranks = {client["agent"]: tuple(client["ranks"]) for client in drill.facts.get("clients") or ()}
    found = [_one(task, ranks.get(task.agent_id, ())) for task in tasks]
    return sorted(found, key=lambda one: (one.ranks[:1] or (-1,), one.node))


def _one(task: AgentTask, ranks: tuple[int, ...]) -> ClientProgress:
    told: dict[str, Any] = task.progress
    phase, done = str(told.get("phase") or ""), _whole(told.get("done_bytes"))
    return ClientProgress(
        task=task,
        node=task.agent.node.name,
        ranks=ranks,
        phase=phase,
        done_bytes=done,
        total_bytes=_whole(told.get("total_bytes")),
        bytes_per_second=_rate(told, phase, done),
    )


def _rate(told: dict[str, Any], phase: str, done: int | None) -> float | None:
    begin, at = ((told.get("phases") or {}).get(phase) or {}).get("begin"), told.get("at")
    if done is None or not isinstance(begin, (int, float)) or not isinstance(at, (int, float)) or at <= begin:
        return None
    return done / (at - begin)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
