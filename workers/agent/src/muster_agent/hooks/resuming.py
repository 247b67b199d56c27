"""Where to resume, asked once for all ranks: rank 0 runs `muster resume-point`, the others are told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

FOUND, FRESH = "found", "no_checkpoints"
Broadcast = Callable[[list[Any]], Any]


class ResumePoint(msgspec.Struct, frozen=True, kw_only=True):
    """`path` and `step` are None where training begins at step 0: nothing was ever saved here."""

    path: str | None
    step: int | None


class CannotResume(RuntimeError):
    """Checkpoints are there and none can be used, or nobody knows. Starting at step 0 would throw the run away."""


def resume_point(
    checkpoints: str | os.PathLike[str],
    *,
    rank: int = 0,
    broadcast: Broadcast | None = None,
    arguments: Sequence[str] = (),
    timeout_seconds: float = 600.0,
) -> ResumePoint:
    """The same answer on every rank. Raises CannotResume, on every rank too.

    broadcast: hands the one-element list of rank 0 to all, in place: `torch.distributed.broadcast_object_list`; None
    where there is one rank. arguments: for `muster resume-point`, such as `["--world-size", "64"]`.
    """
    told: list[Any] = [_asked(checkpoints, arguments, timeout_seconds) if rank == 0 else None]
    if broadcast is not None:
        broadcast(told)
    answer = told[0]
    if answer["refused"]:
        raise CannotResume(answer["refused"])
    return ResumePoint(path=answer["path"], step=answer["step"])


def _asked(checkpoints: str | os.PathLike[str], arguments: Sequence[str], timeout_seconds: float) -> dict[str, Any]:
    """As plain values, which every way of broadcasting takes; a refusal has to reach the other ranks as well."""
    command = [_muster(), "resume-point", os.fspath(checkpoints), "--json", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return _refused(f"`muster resume-point` gave no answer: {problem}")
    return interpreted(done.returncode, done.stdout, done.stderr)


def interpreted(exit_code: int, output: str, said: str) -> dict[str, Any]:
    """What `muster resume-point --json` answered, as `path`, `step` and `refused` (empty where it may start). Pure."""
    try:
        answer = json.loads(output)
        outcome, path, step = answer["outcome"], answer["path"], answer["step"]
    except (ValueError, KeyError, TypeError):
        return _refused(f"`muster resume-point` failed with exit code {exit_code}: {said.strip()[-2000:]}")
    if exit_code == 0 and outcome == FOUND and path:
        return {"path": path, "step": step, "refused": ""}
    if outcome == FRESH:
        return {"path": None, "step": None, "refused": ""}
    return _refused(f"not starting: {outcome}. {said.strip()[-2000:]}")


def _refused(why: str) -> dict[str, Any]:
    return {"path": None, "step": None, "refused": why}


def _muster() -> str:
    """The command beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "muster"
    return str(beside) if beside.exists() else shutil.which("muster") or "muster"
