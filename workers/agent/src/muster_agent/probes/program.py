"""Running one measuring program to its end: nothing on stdin, in a group of its own, stopped within a moment."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

_LOOK_SECONDS = 0.1
_GRACE_SECONDS = 3.0


class Output(NamedTuple):
    """What it printed, and its exit status."""

    stdout: str
    stderr: str
    status: int


class ProgramFailed(Exception):
    """It gave no output to read; the message is half a sentence."""


def run_program(argv: Sequence[str], *, seconds: float, check: Callable[[], None] = lambda: None) -> Output:
    """`argv` without a shell, for at most `seconds`. `check` is called every moment; whatever it raises ends the
    program and goes on. Raises ProgramFailed."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ProgramFailed(f"{argv[0]} could not be started: {error.strerror}") from error
    ends_at = time.monotonic() + seconds
    try:
        while True:
            check()
            try:
                stdout, stderr = child.communicate(timeout=_LOOK_SECONDS)
                return Output(stdout, stderr, child.returncode)
            except subprocess.TimeoutExpired:
                if time.monotonic() > ends_at:
                    raise ProgramFailed(f"{argv[0]} did not end in time") from None
    finally:
        if child.poll() is None:
            _end(child)


def _end(child: subprocess.Popen[str]) -> None:
    """With a moment to end what it started itself: fio's jobs leave its group, and would keep its pipes open."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(child.pid, number)
        try:
            child.wait(timeout=_GRACE_SECONDS)
            break
        except subprocess.TimeoutExpired:
            continue
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
