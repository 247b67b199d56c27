"""What every `muster` command shares at its edge: exit codes, JSON on stdout, messages and errors on stderr."""

from __future__ import annotations

import json
import sys
from enum import IntEnum
from typing import IO, Any

import click
import msgspec

from muster_agent.protocol.printable import one_line as one_line
from muster_agent.protocol.printable import printable as printable


class ExitCode(IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    CONFLICT = 5
    TIMEOUT = 6
    DAMAGE = 7
    OBJECTIVE_BREACHED = 8
    SERVER_UNREACHABLE = 9


class CommandFailed(click.ClickException):
    """A failure that the user can act on: one sentence of what happened, one of what to do, and an exit code."""

    def __init__(self, message: str, *, hint: str = "", code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = int(code)  # type: ignore[misc]  # click reads it from the instance

    def show(self, file: IO[Any] | None = None) -> None:
        say(f"muster: {self.message}", file)
        if self.hint:
            say(f"  what to do: {self.hint}", file)


def say(text: str, file: IO[Any] | None = None) -> None:
    """Write one message for a person, to stderr unless told otherwise."""
    click.echo(printable(text), file=file or sys.stderr)


def print_json(value: object) -> None:
    """Write one JSON document to stdout; `value` may hold msgspec structs, enums and tuples."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2))


_DECIMAL, _BINARY = ("kB", "MB", "GB", "TB", "PB"), ("KiB", "MiB", "GiB", "TiB", "PiB")


def human_rate(bytes_per_second: float) -> str:
    """Decimal units, as storage is sold: `1.50 GB/s`, `48.0 MB/s`, `812.0 kB/s`."""
    if bytes_per_second >= 1e8:
        return f"{bytes_per_second / 1e9:.2f} GB/s"
    return f"{_scaled(bytes_per_second, 1000, _DECIMAL)}/s"


def human_bytes(size_bytes: int) -> str:
    """What lies on a storage or comes from it, in the decimal units of its rate: `1.5 GB`; below 1 kB the exact
    count."""
    return _scaled(size_bytes, 1000, _DECIMAL)


def human_memory(size_bytes: int) -> str:
    """What lies in memory, in the binary units in which memory is sold: `1.5 GiB`; below 1 KiB the exact count."""
    return _scaled(size_bytes, 1024, _BINARY)


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    if value < base:
        return f"{value:.0f} B"
    for unit in units:
        value /= base
        if value < base or unit == units[-1]:
            break
    return f"{value:.1f} {unit}"
