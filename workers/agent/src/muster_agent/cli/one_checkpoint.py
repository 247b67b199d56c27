"""Seal, verify and reload take one checkpoint; a folder that holds several is answered with their names."""

from __future__ import annotations

from muster_agent.cli.bucket import checked_place, small_files
from muster_agent.cli.output import CommandFailed, ExitCode
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.walk import RootUnreadable, inventory
from muster_agent.manifest.beside import ManifestUnreadable, read_beside
from muster_agent.storage.small_files import SmallFiles


def require_one_checkpoint(path: str, store: ObjectStore | None = None) -> None:
    """Raises CommandFailed for a run's folder, or a folder of runs. What cannot be looked at is left to the command."""
    place, files = checked_place(path), small_files(store)
    try:
        if not files.is_folder(place) or _is_sealed(place, files):
            return
        checkpoints = inventory(place, store=store).checkpoints
        inside = [one.path for one in checkpoints if one.step is not None or files.is_folder(one.path)]
    except (OSError, RootUnreadable):
        return
    if not inside or any(one.path == place for one in checkpoints):
        return
    count = "1 checkpoint" if len(inside) == 1 else f"{len(inside)} checkpoints"
    hint = f"name {'it' if len(inside) == 1 else 'one'}, such as {inside[0]}"
    raise CommandFailed(f"{path} is not a checkpoint, but holds {count}", hint=hint, code=ExitCode.USAGE)


def _is_sealed(place: str, files: SmallFiles) -> bool:
    try:
        return read_beside(place, files) is not None
    except ManifestUnreadable:
        return True
