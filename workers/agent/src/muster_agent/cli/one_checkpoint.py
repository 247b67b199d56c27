"""Seal, verify and reload take one checkpoint; a folder that holds several is answered with their names."""

from __future__ import annotations

import os

from muster_agent.cli.bucket import refuse_bucket
from muster_agent.cli.output import CommandFailed, ExitCode
from muster_agent.formats.walk import RootUnreadable, inventory
from muster_agent.manifest.beside import beside_path


def require_one_checkpoint(path: str) -> None:
    """Raises CommandFailed for a run's folder, or a folder of runs. What cannot be looked at is left to the command."""
    refuse_bucket(path)
    place = os.path.abspath(path)
    if not os.path.isdir(place) or os.path.lexists(beside_path(place)):
        return
    try:
        checkpoints = inventory(place).checkpoints
    except RootUnreadable:
        return
    inside = [one.path for one in checkpoints if one.step is not None or os.path.isdir(one.path)]
    if not inside or any(one.path == place for one in checkpoints):
        return
    count = "1 checkpoint" if len(inside) == 1 else f"{len(inside)} checkpoints"
    hint = f"name {'it' if len(inside) == 1 else 'one'}, such as {inside[0]}"
    raise CommandFailed(f"{path} is not a checkpoint, but holds {count}", hint=hint, code=ExitCode.USAGE)
