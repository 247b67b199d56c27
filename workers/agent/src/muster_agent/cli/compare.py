"""`muster reload --compare`: the same files by other loaders, side by side. For the command line; no agent does it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec

from muster_agent.cli.output import CommandFailed, ExitCode
from muster_agent.probes.page_cache import cached_ratio, evict

INSTALL = {
    "torch": "torch",
    "torch_mmap": "torch",
    "dcp": "torch numpy",
    "safetensors": "safetensors torch",
    "plain": "",
}
"""The loaders there are, and what each needs installed."""
SECONDS_PER_LOADER = 1800.0
_OURS = (("muster", ()), ("muster_resident", ("--resident",)))
_MUSTER = "import sys; from muster_agent.cli import main; sys.exit(main())"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One loader. `outcome`: ran, missing, unfit, failed or timed_out; the figures are None unless it ran. `bytes` are
    those of the files that it reads, `resident_bytes` what it leaves in memory, each page touched; `verified` None
    where nothing was compared."""

    loader: str
    outcome: str
    version: str = ""
    detail: str = ""
    bytes: int | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_rss_bytes: int | None = None
    resident_bytes: int | None = None
    cached_ratio_before: float | None = None
    verified: bool | None = None

    @property
    def bytes_per_second(self) -> float | None:
        return self.bytes / self.seconds if self.bytes and self.seconds else None

    @property
    def cpu_seconds_per_gigabyte(self) -> float | None:
        return self.cpu_seconds / self.bytes * 1e9 if self.bytes and self.cpu_seconds is not None else None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`python`: the interpreter of the other loaders."""

    path: str
    python: str
    rows: tuple[Row, ...]


def parse_loaders(text: str) -> tuple[str, ...]:
    """Names between commas. Raises CommandFailed for an unknown one."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in INSTALL]
    if unknown or not names:
        message = f"there is no loader {unknown[0]!r}" if unknown else "no loader is named"
        raise CommandFailed(message, hint=f"name some of {', '.join(INSTALL)}", code=ExitCode.USAGE)
    return names


def compare(path: str, files: Sequence[str], loaders: Sequence[str], python: str) -> Comparison:
    """Each loader once, in a process of its own, over files that were evicted immediately before."""
    rows = [_ours(name, path, options) for name, options in _OURS]
    with resources.as_file(resources.files("muster_agent") / "peers" / "load.py") as program:
        rows += [_theirs(name, path, files, [python, str(program)]) for name in loaders]
    return Comparison(path=path, python=python, rows=tuple(rows))


def _theirs(name: str, path: str, files: Sequence[str], command: Sequence[str]) -> Row:
    task = json.dumps({"path": path, "files": list(files)})
    row = _cold(Row(loader=name, outcome="failed"), files)
    done = _run([*command, name, task])
    if isinstance(done, str):
        return msgspec.structs.replace(row, outcome="timed_out" if done == "timed out" else "failed", detail=done)
    answer = _last_line(done.stdout)
    if answer is None:
        return msgspec.structs.replace(row, detail=_why(done))
    try:
        return msgspec.convert({**msgspec.to_builtins(row), **answer}, Row)
    except msgspec.ValidationError as error:
        return msgspec.structs.replace(row, detail=f"its answer makes no sense: {error}")


def _ours(name: str, path: str, options: Sequence[str]) -> Row:
    row = Row(loader=name, outcome="failed")
    done = _run([sys.executable, "-c", _MUSTER, "reload", path, "--json", "--no-write", *options])
    if isinstance(done, str):
        return msgspec.structs.replace(row, outcome="timed_out" if done == "timed out" else "failed", detail=done)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return msgspec.structs.replace(row, detail=_why(done))
    return Row(
        loader=name,
        outcome="ran",
        version=report["effective"],
        detail=report["reason"],
        bytes=report["bytes"],
        seconds=report["seconds"],
        cpu_seconds=report["cpu_seconds"],
        peak_rss_bytes=report["peak_rss_bytes"],
        resident_bytes=report["evidence"].get("resident_bytes", 0),
        cached_ratio_before=report["cached_ratio_before"],
        verified=report["verified"],
    )


def _cold(row: Row, files: Sequence[str]) -> Row:
    evict(files)
    return msgspec.structs.replace(row, cached_ratio_before=cached_ratio(files))


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str] | str:
    """What the process said, or why there is none. It begins in an empty folder, so that no file there is imported."""
    with tempfile.TemporaryDirectory(prefix="muster-compare-") as folder:
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS_PER_LOADER,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "timed out"
        except OSError as error:
            return f"{command[0]} could not be started: {error.strerror}"


def _last_line(text: str) -> dict[str, Any] | None:
    """The answer of the program; libraries may have printed before it."""
    try:
        answer = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return answer if isinstance(answer, dict) and "outcome" in answer else None


def _why(done: subprocess.CompletedProcess[str]) -> str:
    last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    return f"ended with {done.returncode}: {last[0][:500]}"


def interpreter(given: str | None) -> str:
    """The one that was named, else that of MUSTER_COMPARE_PYTHON, else this one."""
    return given or os.environ.get("MUSTER_COMPARE_PYTHON") or sys.executable
