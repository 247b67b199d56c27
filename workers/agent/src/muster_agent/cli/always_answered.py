"""A command that says its outcome on every exit, for callers that read it instead of the exit code."""

from __future__ import annotations

import sys
from typing import Any

import click

from muster_agent.cli.launchers import Launcher, launcher_text
from muster_agent.cli.output import ExitCode, print_json
from muster_agent.cli.resume_text import decision_json
from muster_agent.decide.model import ResumeDecision

_OUTCOMES = {int(ExitCode.USAGE): "error"}
"""Whatever else went wrong, what lies there stays unknown."""


class AlwaysAnswered(click.Command):
    """`--format env` is answered even where the question is wrong or nothing could be looked at: a shell that evaluates
    nothing would go on with the variables of an earlier answer. `--json` says `unknown` where it is."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        given = list(args)
        try:
            return super().make_context(info_name, args, *more, **extra)
        except click.ClickException as error:
            _answer(error.exit_code, wants_variables=_asks_for_variables(given), wants_json=False)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        wants = {"wants_variables": ctx.params["launcher"] == Launcher.ENV, "wants_json": ctx.params["as_json"]}
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            _answer(error.exit_code, **wants)
            raise
        except Exception:
            _answer(int(ExitCode.ERROR), **wants)
            raise


def _answer(exit_code: int, *, wants_variables: bool, wants_json: bool) -> None:
    decision = ResumeDecision(outcome=_OUTCOMES.get(exit_code, "unknown"))
    if wants_variables:
        click.echo(launcher_text(Launcher.ENV, decision))
    elif wants_json and exit_code != ExitCode.USAGE:
        print_json(decision_json(decision))
    sys.stdout.flush()


def _asks_for_variables(arguments: list[str]) -> bool:
    """What a command line that could not be understood asks for."""
    return "--format=env" in arguments or ("--format", "env") in zip(arguments, arguments[1:], strict=False)
