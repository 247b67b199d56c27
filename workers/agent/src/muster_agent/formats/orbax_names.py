"""What Orbax puts into names: steps, and the mark of a save that has not ended. Pure."""

from __future__ import annotations

import re

TEMPORARY_MARK = ".orbax-checkpoint-tmp"
COMMIT_NAME = "commit_success.txt"
STEP_METADATA_NAME = "_CHECKPOINT_METADATA"
TREE_NAME = "_METADATA"
_STEP = re.compile(r"(?:.*[_-])?(\d{1,18})", re.ASCII)


def step_of_folder(name: str) -> int | None:
    """The step of a step folder, also under its temporary name: `200`, `ckpt_00000200`, `200.orbax-checkpoint-tmp-17`
    are 200."""
    match = _STEP.fullmatch(name.split(TEMPORARY_MARK, 1)[0])
    return int(match.group(1)) if match else None


def is_temporary_step(name: str) -> bool:
    """Whether a save gave this name to the step folder that it is writing, or was writing when it died."""
    return TEMPORARY_MARK in name and step_of_folder(name) is not None
