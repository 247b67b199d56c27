"""Task kinds and their adapters. Each is imported when it is first asked for, so that the agent starts light."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from muster_agent.protocol.measuring import BandwidthParams, LoaderCompareParams
from muster_agent.protocol.probe import ProbeParams
from muster_agent.protocol.wire import (
    CeilingParams,
    CopyParams,
    DisruptParams,
    InventoryParams,
    ReloadParams,
    SealParams,
    TaskKind,
    VerifyParams,
)
from muster_agent.tasks.context import Run, TaskContext


class Handler(NamedTuple):
    """`prepare(params, context)` does what may happen before a barrier and gives the rest as a function."""

    params_type: type[msgspec.Struct]
    prepare: Callable[[Any, TaskContext], Run]


_HANDLERS: dict[TaskKind, tuple[type[msgspec.Struct], str]] = {
    TaskKind.INVENTORY: (InventoryParams, "muster_agent.tasks.inventory"),
    TaskKind.SEAL: (SealParams, "muster_agent.tasks.seal"),
    TaskKind.VERIFY: (VerifyParams, "muster_agent.tasks.verify"),
    TaskKind.RELOAD: (ReloadParams, "muster_agent.tasks.reload"),
    TaskKind.CEILING: (CeilingParams, "muster_agent.tasks.ceiling"),
    TaskKind.DISRUPT: (DisruptParams, "muster_agent.tasks.disrupt"),
    TaskKind.LOADER_COMPARE: (LoaderCompareParams, "muster_agent.tasks.loader_compare"),
    TaskKind.BANDWIDTH: (BandwidthParams, "muster_agent.tasks.bandwidth"),
    TaskKind.PROBE: (ProbeParams, "muster_agent.tasks.probe"),
    TaskKind.COPY: (CopyParams, "muster_agent.tasks.copy"),
}


def handler_for(kind: str) -> Handler | None:
    """None for a kind that this agent does not know."""
    try:
        params_type, module = _HANDLERS[TaskKind(kind)]
    except (ValueError, KeyError):
        return None
    return Handler(params_type, importlib.import_module(module).prepare)


def load_all() -> None:
    """Import every adapter, so that no task has to wait for it."""
    for kind in TaskKind:
        handler_for(kind)
