"""What a node says of itself when it is to take over for another: parameters and result of the task kind `probe`."""

from __future__ import annotations

import msgspec


class ProbeParams(msgspec.Struct, frozen=True, kw_only=True):
    """Say what this node is now: nothing is asked for in particular."""


class MountFact(msgspec.Struct, frozen=True, kw_only=True):
    """One of the agent's roots. `problem`: why it cannot be used; sizes are None where nothing tells them."""

    root: str
    file_system: str = ""
    total_bytes: int | None = None
    free_bytes: int | None = None
    problem: str = ""


class ProbeBody(msgspec.Struct, frozen=True, kw_only=True):
    agent_version: str
    gpu_count: int | None
    mounts: tuple[MountFact, ...]
