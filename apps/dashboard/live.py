"""Progress of agents' tasks as pages show it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TaskProgress:
    """One task's line: `percent` is None while nothing has been reported."""

    task: Any
    node: str
    phase: str
    done_bytes: int | None
    total_bytes: int | None

    @property
    def percent(self) -> str | None:
        if not self.total_bytes or self.done_bytes is None:
            return None
        return f"{100 * min(1.0, self.done_bytes / self.total_bytes):.0f}"


def progress_of(tasks: Iterable[Any]) -> list[TaskProgress]:
    return [
        TaskProgress(
            task=task,
            node=task.agent.node.name,
            phase=str(task.progress.get("phase") or ""),
            done_bytes=_whole(task.progress.get("done_bytes")),
            total_bytes=_whole(task.progress.get("total_bytes")),
        )
        for task in tasks
    ]


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
