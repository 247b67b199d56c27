"""What an order gets only at the moment when it is handed out: secrets that no row may hold.

An app above registers, for the tasks of its own kind of owner, a function that gives further parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apps.fleet.models import AgentTask

Supplement = Callable[[AgentTask], dict[str, Any]]

_SUPPLEMENTS: dict[str, Supplement] = {}


def register(owner_kind: str, supplement: Supplement) -> None:
    """From now on its parameters are added to those of this owner's tasks. It must not raise."""
    _SUPPLEMENTS[owner_kind] = supplement


def params_for(task: AgentTask) -> dict[str, Any]:
    """The task's parameters with what is added now."""
    supplement = _SUPPLEMENTS.get(task.owner_kind)
    return {**task.params, **supplement(task)} if supplement else dict(task.params)
