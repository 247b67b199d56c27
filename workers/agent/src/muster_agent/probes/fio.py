"""fio, where it is installed: how it is called, and what its report says. `read_*` runs it, `parse_*` is pure."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

ENGINES = ("psync", "io_uring")


class FioRate(NamedTuple):
    """What fio read, and in what time."""

    read_bytes: int
    seconds: float


def is_installed() -> bool:
    return shutil.which("fio") is not None


def command(
    paths: Sequence[str], *, engine: str, block_bytes: int, depth: int, seconds: float, loop: bool = False
) -> list[str]:
    """Sequential reads around the page cache, never a write: fio creates a file that is missing unless told not to.
    With `loop` it begins again until the time is over."""
    return [
        "fio", "--name=ceiling", "--readonly", "--allow_file_create=0", "--rw=read", "--direct=1", "--invalidate=1",
        f"--ioengine={engine}", f"--bs={block_bytes}", f"--iodepth={depth}", f"--runtime={seconds:.0f}",
        *(["--time_based=1", "--thread=1"] if loop else []),
        "--output-format=json", f"--filename={':'.join(path.replace(':', chr(92) + ':') for path in paths)}",
    ]  # fmt: skip


def read_fio(paths: Sequence[str], *, engine: str, block_bytes: int, depth: int, seconds: float) -> FioRate | str:
    """One run over the files, or half a sentence that says why there is none."""
    argv = command(paths, engine=engine, block_bytes=block_bytes, depth=depth, seconds=seconds)
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds * 4 + 30, check=False
        )
    except subprocess.TimeoutExpired:
        return "fio did not end in time"
    except OSError as error:
        return f"fio could not be started: {error.strerror}"
    return parse_fio(done.stdout, done.stderr)


def parse_fio(stdout: str, stderr: str = "") -> FioRate | str:
    """The rate in fio's JSON report, which lines of text may precede; or why it has none."""
    try:
        job = json.loads(stdout[stdout.index("{") :])["jobs"][0]
        if job["error"]:
            return f"fio ended with error {job['error']}"
        read = job["read"]
        rate = FioRate(int(read["io_bytes"]), int(read["runtime"]) / 1000)
    except (ValueError, KeyError, IndexError, TypeError):
        said = next((line for line in stderr.splitlines() if line.strip()), "it printed no report")
        return f"fio failed: {said.strip()[:200]}"
    return rate if rate.read_bytes > 0 and rate.seconds > 0 else "fio read nothing"
