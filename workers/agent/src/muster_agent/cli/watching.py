"""Waiting for a drill, an audit, a transfer or a scan, and what its end means as an exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from muster_agent.cli.output import CommandFailed, ExitCode, human_bytes, say
from muster_agent.cli.shapes import row_of
from muster_agent.cli.shapes import seconds as spoken

if TYPE_CHECKING:
    from muster_agent.rest import Client

POLL_SECONDS = 1.0
INTERRUPTED = 130
Look = Callable[[], dict[str, Any]]
ENDED = frozenset({"finished", "done", "failed", "cancelled", "lost"})


def watch(
    look: Look,
    *,
    what: str,
    cancel: str,
    timeout_seconds: float | None,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """The row once it has ended. Its states go to stderr: one line that changes at a terminal, else a line for each.
    Ctrl-C only stops watching. Raises CommandFailed (timeout)."""
    line = ProgressLine()
    ends_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    try:
        while True:
            row = look()
            line.show(progress_of(row))
            if row["state"] in ENDED:
                line.end()
                return row
            if ends_at is not None and time.monotonic() >= ends_at:
                line.end()
                hint = f"it goes on: look again with `muster describe`, or stop it with `{cancel}`"
                raise CommandFailed(f"{what} has not ended in time", hint=hint, code=ExitCode.TIMEOUT)
            sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        line.end()
        say(f"{what} goes on; stop it with: {cancel}")
        raise SystemExit(INTERRUPTED) from None


class ProgressLine:
    """The last word on one line, rewritten at a terminal; elsewhere every new word is a line."""

    def __init__(self) -> None:
        self.at_terminal = sys.stderr.isatty()
        self.last = ""

    def show(self, text: str) -> None:
        if text == self.last:
            return
        if self.at_terminal:
            click.echo(f"\r\x1b[2K{text}", nl=False, file=sys.stderr)
        else:
            say(text)
        self.last = text

    def end(self) -> None:
        if self.at_terminal and self.last:
            click.echo(file=sys.stderr)


def progress_of(row: dict[str, Any]) -> str:
    """`running, 40 % of 1.2 TB`, or the state alone where there is no count."""
    state = str(row["state"])
    total = row.get("total_bytes")
    done = row.get("copied_bytes")
    if total and done is not None:
        return f"{state}, {done / total:.0%} of {human_bytes(total)}"
    return f"{state}, {human_bytes(total)}" if total else state


def drill_exit(drill: dict[str, Any]) -> ExitCode:
    """0 passed; 8 passed, but over its objective; 7 failed or lost; 1 where it never ran to an end."""
    if drill.get("outcome") == "passed":
        return ExitCode.OBJECTIVE_BREACHED if drill.get("objective_state") == "breached" else ExitCode.OK
    return ExitCode.DAMAGE if drill.get("outcome") in ("failed", "lost") else ExitCode.ERROR


def end_with(code: ExitCode) -> None:
    if code is not ExitCode.OK:
        raise SystemExit(int(code))


def summary_of(drill: dict[str, Any]) -> list[str]:
    """What a drill found, in a few lines for people."""
    title = "storage part only, not an RTO" if drill.get("is_storage_only") else "time to resume"
    lines = [f"{drill['id']}: {drill['kind']} of {drill['run_name']}: {drill['outcome'] or drill['state']}"]
    if drill.get("seconds") is not None:
        limit = drill.get("objective_seconds")
        goal = f", objective {spoken(limit)}: {drill['objective_state']}" if limit is not None else ""
        lines.append(f"  {spoken(drill['seconds'])} ({title}){goal}")
    for phase, value in (drill.get("phases") or {}).items():
        if value is not None:
            lines.append(f"    {phase:14}{spoken(value)}")
    if drill.get("lost_steps") is not None:
        lines.append(f"  lost: {drill['lost_steps']} steps, {spoken(drill.get('lost_seconds'))}")
    if drill.get("reason"):
        lines.append(f"  reason: {drill['reason']}")
    return lines


def drill_look(client: Client, identifier: str) -> Look:
    return lambda: row_of(client.get_drill(identifier))
