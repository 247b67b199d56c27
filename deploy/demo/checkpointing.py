"""Rank-sharded checkpoints of the demo trainer.

    <run folder>/step-<N>/rank-00000-of-00004.safetensors   one per rank
    <run folder>/step-<N>/checkpoint.json                   written last: a step without it is not committed

Every file is written under a temporary name, flushed and renamed, so a kill at any point leaves a whole checkpoint or
one that anybody can see is not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deploy.demo.safetensors_file import DamagedFile, check_crc, parse_tensors, read_bytes_into, write_file

FORMAT = "muster-ranked-safetensors"
MARKER_NAME = "checkpoint.json"
_STEP_NAME = re.compile(r"step-(\d+)")


class UnusableCheckpoint(Exception):
    """The checkpoint cannot be resumed from; the message says why and what to do."""


def step_path(run_path: Path, step: int) -> Path:
    return run_path / f"step-{step}"


def rank_file_name(rank: int, world_size: int) -> str:
    return f"rank-{rank:05d}-of-{world_size:05d}.safetensors"


def save(
    run_path: Path, step: int, ranks: Sequence[Mapping[str, np.ndarray]], metadata: Mapping[str, str] | None = None
) -> Path:
    """Write the checkpoint of `step`, one file per rank's tensors, and commit it; gives its path. Raises OSError.

    A folder that an earlier attempt left at this step is replaced: this run reached the step again.
    """
    path = step_path(run_path, step)
    remove(path)
    path.mkdir()
    sizes_bytes: dict[str, int] = {}
    for rank, tensors in enumerate(ranks):
        name = rank_file_name(rank, len(ranks))
        temporary = path / f"{name}.tmp"
        described = {**(metadata or {}), "step": str(step), "rank": str(rank), "world_size": str(len(ranks))}
        sizes_bytes[name] = write_file(temporary, tensors, described)
        temporary.rename(path / name)
    _flush_folder(path)
    _commit(path, {"format": FORMAT, "step": step, "world_size": len(ranks), "files": sizes_bytes})
    _flush_folder(run_path)
    return path


class CheckpointReader:
    """Loads one checkpoint in the phases that a restart is timed by: `allocate`, `read`, `verify`, `tensors`.

    Constructing it reads checkpoint.json and the files' sizes. Everything raises UnusableCheckpoint.
    """

    def __init__(self, path: Path, *, world_size: int) -> None:
        self.path = path
        marker = _read_marker(path)
        if marker["world_size"] != world_size:
            raise UnusableCheckpoint(
                f"{path}: saved by {marker['world_size']} ranks, this run has {world_size}. Resume with as many ranks."
            )
        self.step: int = marker["step"]
        self._sizes_bytes: dict[Path, int] = {path / name: size for name, size in marker["files"].items()}
        self._buffers: dict[Path, np.ndarray] = {}
        for file, size_bytes in self._sizes_bytes.items():
            _check_size(file, size_bytes)

    def allocate(self) -> None:
        """Take the memory, and touch it, so that the reads are not charged for page faults."""
        for file, size_bytes in self._sizes_bytes.items():
            self._buffers[file] = np.zeros(size_bytes, np.uint8)
            self._buffers[file][:: os.sysconf("SC_PAGE_SIZE")] = 1

    def read(self) -> None:
        for file, buffer in self._buffers.items():
            with _unusable():
                read_bytes_into(file, buffer)

    def verify(self) -> None:
        """Check the very bytes that will be used, after reading and before any of them is used."""
        for file, buffer in self._buffers.items():
            with _unusable():
                check_crc(file, buffer)

    def tensors(self) -> list[tuple[dict[str, np.ndarray], dict[str, str]]]:
        """Per rank: tensors (views into the read buffers) and metadata."""
        with _unusable():
            return [parse_tensors(file, self._buffers[file]) for file in sorted(self._buffers)]


class _unusable:  # noqa: N801 - used as a statement
    """Turn what reading can raise into one error that says what to do."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if isinstance(problem, DamagedFile | OSError | KeyError | TypeError | ValueError):
            raise UnusableCheckpoint(
                f"{problem}. Resume from another step: `muster resume-point` names the newest good one."
            ) from problem


def committed_steps(run_path: Path) -> list[int]:
    """Steps with a committed checkpoint, newest first."""
    return sorted((step for step, path in _step_folders(run_path) if (path / MARKER_NAME).exists()), reverse=True)


def prune(run_path: Path, *, keep: int, loaded: Path | None = None) -> list[Path]:
    """Remove all but the `keep` newest committed steps, and what interrupted saves left below the newest; gives what
    was removed. The checkpoint that this attempt was `loaded` from always stays: nothing newer is proven yet."""
    steps = committed_steps(run_path)
    kept = set(steps[:keep])
    removed = [
        path
        for step, path in _step_folders(run_path)
        if step not in kept and path != loaded and steps and step < steps[0]
    ]
    for path in removed:
        remove(path)
    return removed


def remove(path: Path) -> None:
    """Remove a checkpoint. Its marker goes first: a kill in between leaves a step that is visibly not committed."""
    if not path.exists():
        return
    (path / MARKER_NAME).unlink(missing_ok=True)
    _flush_folder(path)
    shutil.rmtree(path)


def _commit(path: Path, marker: dict[str, Any]) -> None:
    temporary = path / f"{MARKER_NAME}.tmp"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(marker, stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(path / MARKER_NAME)
    _flush_folder(path)


def _flush_folder(path: Path) -> None:
    """Make renames in a folder survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_marker(path: Path) -> dict[str, Any]:
    try:
        marker: dict[str, Any] = json.loads((path / MARKER_NAME).read_text(encoding="utf-8"))
        known = marker["format"] == FORMAT and isinstance(marker["step"], int) and isinstance(marker["world_size"], int)
        if not known or any(Path(name).name != name for name in marker["files"]):
            raise ValueError(f"not a {FORMAT} checkpoint")
        return marker
    except FileNotFoundError:
        raise UnusableCheckpoint(
            f"{path}: no {MARKER_NAME}, so it was never committed. Resume from another step: `muster resume-point` "
            "names the newest good one."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UnusableCheckpoint(f"{path / MARKER_NAME}: cannot be used: {problem}") from problem


def _check_size(file: Path, size_bytes: int) -> None:
    with _unusable():
        found_bytes = file.stat().st_size
        if found_bytes != size_bytes:
            raise DamagedFile(f"{file}: {found_bytes} bytes on disk, {size_bytes} were written")


def _step_folders(run_path: Path) -> list[tuple[int, Path]]:
    matches = [(entry, _STEP_NAME.fullmatch(entry.name)) for entry in run_path.iterdir()]
    return [(int(match[1]), entry) for entry, match in matches if match and entry.is_dir()]
