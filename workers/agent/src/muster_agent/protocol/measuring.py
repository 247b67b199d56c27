"""Parameters of the tasks that measure beside a reload."""

from __future__ import annotations

import msgspec

from muster_agent.protocol.wire import ReloadParams


class LoaderCompareParams(msgspec.Struct, frozen=True, kw_only=True):
    """Reload as `reload` says, then run the loader that this node's own configuration calls `loader` on the same
    checkpoint. The answer is a ReloadBody with both side by side in `evidence.loader_compare`."""

    loader: str
    reload: ReloadParams


class BandwidthParams(msgspec.Struct, frozen=True, kw_only=True):
    """Read the largest files under `root` for `seconds`. The answer is a ReloadBody that verified nothing."""

    root: str
    runner: str = "auto"
    """gdsio, elbencho, fio, builtin; `auto` takes the first that is installed."""
    seconds: float = 10.0
    depth: int = 16
    """Requests at work at once, or threads."""
    gpu: int | None = None
    """Where gdsio reads to."""
    evict: bool = True
    part: tuple[int, int] = (0, 1)
    """(number, count) of the nodes that read at once: each takes other files where there are enough."""
