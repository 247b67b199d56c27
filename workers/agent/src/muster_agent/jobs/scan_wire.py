"""What passes between an agent and the process that takes its inventories."""

from __future__ import annotations

import msgspec

from muster_agent.protocol.wire import InventoryBody, InventoryParams


class Wanted(msgspec.Struct, tag=True):
    params: InventoryParams
    cache_file: str | None


class Moved(msgspec.Struct, tag=True):
    """Progress; sent often enough that a cut connection is noticed."""

    done: int
    total: int
    counts: dict[str, int]


class Noted(msgspec.Struct, tag=True):
    text: str


class Listed(msgspec.Struct, tag=True):
    body: InventoryBody


class Unreadable(msgspec.Struct, tag=True):
    """The root could not be listed; see `RootUnreadable`."""

    path: str
    reason: str
    hint: str
    is_missing: bool


class Broke(msgspec.Struct, tag=True):
    """Anything else that ended it."""

    text: str


Said = Moved | Noted | Listed | Unreadable | Broke
