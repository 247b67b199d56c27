"""Other libraries' loaders over the same tensors, each in a fresh process of an interpreter that has them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

LOADERS = ("torch_load", "torch_mmap", "dcp", "safetensors", "fastsafetensors", "runai", "tensorstore")
VARIABLE = "MUSTER_PEERS_PYTHON"
_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = Path(__file__).with_name("peer_loaders.py")
_SECONDS = 300


class Loaded(NamedTuple):
    """One load with the hashing of every byte."""

    seconds: float
    cpu_seconds: float
    bytes: int
    rss_bytes: int
    version: str


def interpreter() -> str | None:
    """The one that has the libraries; None where there is none."""
    named = os.environ.get(VARIABLE)
    made = _ROOT / ".venv-peers" / "bin" / "python"
    return named or (str(made) if made.exists() else None)


def write(python: str, folder: Path, originals: Sequence[Path]) -> None:
    """The same tensors in the formats that the loaders read."""
    folder.mkdir()
    subprocess.run([python, str(_PROGRAM), "write", str(folder), *map(str, originals)], check=True, capture_output=True)


def load(python: str, loader: str, folder: Path) -> Loaded | str:
    """What one load took, or why it did not happen."""
    command = [python, str(_PROGRAM), loader, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer within {_SECONDS} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return Loaded(**json.loads(lines[-1]))
