"""The way in: one checkpoint, or all of them under a place, in any format that Muster reads."""

from __future__ import annotations

from muster_agent.formats.checkpoint import absolute_path, files_of, read_checkpoint, state_shards
from muster_agent.formats.walk import Inventory, RootUnreadable, inventory

__all__ = ["Inventory", "RootUnreadable", "absolute_path", "files_of", "inventory", "read_checkpoint", "state_shards"]
