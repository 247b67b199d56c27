"""What a task gets from the runtime: its roots and limits, a way to report and a way to be stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from muster_agent.jobs.control import JobControl
from muster_agent.jobs.loader_compare import Loader
from muster_agent.tasks.limits import Limits
from muster_agent.tasks.link_fault import LinkFault
from muster_agent.tasks.roots import Roots


class TaskFailed(Exception):
    """The task cannot be done. `code` is stable; the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Reporter(Protocol):
    """Where events go. All methods may be called from any thread and return at once."""

    def begin(self, phase: str) -> None: ...

    def end(self, phase: str) -> None: ...

    def log(self, message: str) -> None: ...

    def injected(self, at_unix_seconds: float, mono_seconds: float, data: dict[str, Any]) -> None:
        """A fault was injected at exactly this moment of the node's wall clock; it leaves on the server's."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """`clock_offset_seconds()` is the server's clock minus this node's, 0.0 while it is not known."""

    roots: Roots
    copy_roots: Roots
    """Where copies may be made and removed."""
    limits: Limits
    control: JobControl
    reporter: Reporter
    clock_offset_seconds: Callable[[], float]
    hook_directory: Path | None
    allow_disrupt: bool = True
    loaders: Mapping[str, Loader] = field(default_factory=dict)
    """The team's own loaders, by the names that this node's configuration gives them."""
    links: Mapping[str, LinkFault] = field(default_factory=dict)
    scan_cache: Path | None = None
    """Where inventories remember what they found; None: they read everything each time."""


Run = Callable[[], msgspec.Struct]
"""The part of a task after its barrier."""
