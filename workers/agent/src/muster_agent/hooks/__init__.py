"""What a trainer imports to say where it stands: steps, saves and the phases of a restart.

Needs the standard library and msgspec only. Nothing here raises into the training loop or waits for a disk.
"""

from __future__ import annotations

from muster_agent.hooks.reporter import RunReporter

__all__ = ["RunReporter"]
