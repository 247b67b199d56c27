"""`muster hook`: the training hook for launch scripts, which have no Python of their own."""

from __future__ import annotations

import os
from typing import Any

import click

from muster_agent.cli.output import CommandFailed
from muster_agent.hooks import RunReporter
from muster_agent.protocol.phases import PHASES

KINDS = ("launch-started", "failure-detected", "phase-began", "phase-ended")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("details", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--run", required=True, help="The training run's name.")
@click.option("--attempt", help="This launch of it (default: SLURM_JOB_ID.SLURM_RESTART_COUNT).")
@click.option("--phase", type=click.Choice([phase.value for phase in PHASES]), help="For phase-began and phase-ended.")
@click.option("--at", "at_unix_seconds", type=float, help="When it was, as $EPOCHREALTIME gives it (default: now).")
def hook(
    kind: str, details: tuple[str, ...], run: str, attempt: str | None, phase: str | None, at_unix_seconds: float | None
) -> None:
    """Tell the agent on this node what a launch script knows: that an attempt died, that the next one begins.

    A restart never waits for it: what cannot be written is left out with a warning, and the exit code is 0.
    """
    if (phase is None) == kind.startswith("phase-"):
        raise click.UsageError("--phase goes with phase-began and phase-ended, and with them only.")
    with RunReporter(run=run, attempt=attempt or attempt_name(), at_unix_seconds=at_unix_seconds) as reporter:
        if phase is not None:
            (reporter.phase_began if kind == "phase-began" else reporter.phase_ended)(phase)
        elif kind == "launch-started":
            reporter.launch_started(**_details(details))
        else:
            reporter.failure_detected(**_details(details))


def attempt_name() -> str:
    """One name for all processes of one launch of a Slurm job, another after each requeue."""
    job_id = os.environ.get("SLURM_JOB_ID")
    if not job_id:
        raise CommandFailed("this is no Slurm job, so the attempt needs a name", hint="give it with --attempt")
    return f"{job_id}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def _details(words: tuple[str, ...]) -> dict[str, Any]:
    pairs = [word.partition("=") for word in words]
    if any(not (name.isidentifier() and equals) for name, equals, _value in pairs):
        raise click.UsageError("Details are written NAME=VALUE.")
    return {name: int(value) if value.lstrip("-").isdecimal() else value for name, _equals, value in pairs}
