"""The team's own loader beside our engine, on the same files: what deserialization costs.

The loader runs in a process of its own, as the user of a sudo rule that the node's administrator installed; without
that rule nothing runs. It alone may unpickle. The server asks for it by name and never sends a command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import msgspec

from muster_agent.jobs.control import JobControl
from muster_agent.probes.page_cache import cached_ratio, evict
from muster_agent.protocol.results import LoaderReport, ReloadReport

LOOK_SECONDS = 0.1
RULE_SECONDS = 10.0
MAX_ANSWER_BYTES = 64 * 1024
_SUDO = ("sudo", "-n")


class Loader(msgspec.Struct, frozen=True, kw_only=True):
    """`argv` is called as `user`, the checkpoint's path in place of `{path}` (or behind it all, where it has none)."""

    argv: tuple[str, ...]
    user: str
    max_seconds: float = 3600.0


class LoaderRefused(Exception):
    """It is not run; the message says why and what to do."""


class _Answer(msgspec.Struct, frozen=True):
    """The last line that a loader may print, as JSON."""

    bytes: int | None = None
    phases: dict[str, float] = {}


def command(loader: Loader, path: str) -> list[str]:
    """What sudo is asked to run. Raises LoaderRefused for a loader that is none."""
    if not loader.argv or not os.path.isabs(loader.argv[0]):
        raise LoaderRefused("the loader's argv does not begin with an absolute path; correct it in config.json")
    if not loader.user or loader.user.startswith("-"):
        raise LoaderRefused("the loader names no user to run as; correct it in config.json")
    argv = [path if word == "{path}" else word for word in loader.argv]
    return argv if "{path}" in loader.argv else [*argv, path]


def require_rule(loader: Loader, argv: Sequence[str]) -> None:
    """Raises LoaderRefused unless sudo would run exactly this, without asking for a password."""
    asked = [*_SUDO, "-l", "-u", loader.user, "--", *argv]
    try:
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, timeout=RULE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LoaderRefused(f"sudo could not be asked ({type(error).__name__}); install it and a rule") from error
    if done.returncode != 0:
        raise LoaderRefused(
            f"no sudo rule lets this agent run {argv[0]} as {loader.user}: the node's administrator has to install one "
            "(docs/agent.md)"
        )


def run_loader(loader: Loader, path: str, files: Sequence[str], control: JobControl, *, cold: bool) -> LoaderReport:
    """Run it over the checkpoint at `path`, whose files are `files`, from cold where asked. Raises LoaderRefused,
    Cancelled."""
    argv = command(loader, path)
    require_rule(loader, argv)
    if cold:
        evict(files)
    cached = cached_ratio(files)
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        child = subprocess.Popen(
            [*_SUDO, "-u", loader.user, "--", *argv],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            start_new_session=True,
        )
        status, usage = _wait(child, control.check, began + loader.max_seconds)
        seconds = time.monotonic() - began
        text = _tail(said)
    answer = _answer(text)
    return LoaderReport(
        seconds=seconds,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_rss_bytes=usage.ru_maxrss * 1024,
        bytes=answer.bytes if answer.bytes is not None else sum(map(os.path.getsize, files)),
        phases=answer.phases,
        cached_ratio_before=cached,
        error="" if status == 0 else f"it ended with status {status}: {_last_line(text)}",
    )


def _wait(child: subprocess.Popen[bytes], check: Callable[[], None], ends_at: float) -> tuple[int, Any]:
    """Its exit status and what it used, with its children. Cancelled or late, all of it is ended."""
    try:
        while True:
            check()
            if time.monotonic() > ends_at:
                raise LoaderRefused("the loader did not end within its max_seconds; raise them in config.json")
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode, usage
            time.sleep(LOOK_SECONDS)
    finally:
        if child.returncode is None:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """sudo passes SIGTERM on to what runs as another user; we may not signal that ourselves."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except (ProcessLookupError, PermissionError):
            child.send_signal(number)
        try:
            child.wait(timeout=3)
            return
        except subprocess.TimeoutExpired:
            continue


def _tail(said: IO[bytes]) -> str:
    said.seek(0, os.SEEK_END)
    said.seek(max(0, said.tell() - MAX_ANSWER_BYTES))
    return said.read().decode("utf-8", "replace")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"


def _answer(text: str) -> _Answer:
    try:
        return msgspec.json.decode(_last_line(text), type=_Answer)
    except msgspec.MsgspecError:
        return _Answer()


def side_by_side(engine: ReloadReport, own: LoaderReport) -> Mapping[str, float | None]:
    """CPU seconds per GB and rate of both; the ratios are the loader's over the engine's. None: not measured."""
    rows = {
        "engine": (engine.bytes, engine.seconds, engine.cpu_seconds),
        "own": (own.bytes, own.seconds, own.cpu_seconds),
    }
    told: dict[str, float | None] = {}
    for name, (count, seconds, cpu) in rows.items():
        told[f"{name}_cpu_seconds_per_gb"] = cpu / (count / 1e9) if count else None
        told[f"{name}_bytes_per_second"] = count / seconds if seconds > 0 else None
    told["cpu_ratio"] = _ratio(told["own_cpu_seconds_per_gb"], told["engine_cpu_seconds_per_gb"])
    told["time_ratio"] = _ratio(told["engine_bytes_per_second"], told["own_bytes_per_second"])
    return told


def _ratio(upper: float | None, lower: float | None) -> float | None:
    return upper / lower if upper is not None and lower else None
