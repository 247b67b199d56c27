"""The `muster` command. Sub-commands are imported only when called, so that start-up stays short."""

from __future__ import annotations

import errno
import importlib
from typing import Any

import click

COMMANDS: dict[str, tuple[str, str, str]] = {
    "inventory": (
        "muster_agent.cli.inventory",
        "inventory",
        "List the checkpoints under a path: what is whole, what is broken and why.",
    ),
    "explain": (
        "muster_agent.cli.explain",
        "explain",
        "Tell for one checkpoint which rule said what, in plain words.",
    ),
    "seal": ("muster_agent.cli.seal", "seal", "Record digests of every byte of a checkpoint in a manifest."),
    "verify": ("muster_agent.cli.verify", "verify", "Re-read a sealed checkpoint and name any damage."),
    "reload": (
        "muster_agent.cli.reload",
        "reload",
        "Read a checkpoint as a restart would, verify it, and time each phase.",
    ),
    "ceiling": ("muster_agent.cli.ceiling", "ceiling", "Measure how fast this node can read a place at all."),
    "resume-point": ("muster_agent.cli.resume_point", "resume_point", "Say which checkpoint a restart should load."),
    "gate": ("muster_agent.cli.gate", "gate", "Exit 0 if a run has passed its five validation steps lately, else 8."),
    "hook": ("muster_agent.cli.hook", "hook", "Tell the node's agent what a launch script knows: a failure, a launch."),
    "agent": ("muster_agent.cli.agent", "agent", "Join this node to a control plane and run its agent; list, drain."),
    "login": ("muster_agent.cli.login", "login", "Keep a control plane and a token to work with."),
    "logout": ("muster_agent.cli.login", "logout", "Forget a control plane and its token."),
    "context": ("muster_agent.cli.login", "context", "List and choose among the control planes that login knows."),
    "get": ("muster_agent.cli.get", "get", "List what a control plane knows: runs, checkpoints, drills, nodes ..."),
    "describe": ("muster_agent.cli.get", "describe", "Show one of these in full."),
    "drill": ("muster_agent.cli.drill", "drill", "Start, watch, cancel, report and compare drills."),
    "checkpoint": (
        "muster_agent.cli.checkpoint",
        "checkpoint",
        "The latest checkpoint of a run, its copies and findings; seal, verify, move, pin.",
    ),
    "token": ("muster_agent.cli.token", "token", "Create, list, rotate and revoke API tokens."),
    "completion": ("muster_agent.cli.completion", "completion", "Print the completion script of bash, zsh or fish."),
    "doctor": ("muster_agent.cli.doctor", "doctor", "Check server, token, clock, agent, storage and GPU libraries."),
}


_UNWRITTEN = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


def _failed(message: str, hint: str) -> click.ClickException:
    from muster_agent.cli.output import CommandFailed

    return CommandFailed(message, hint=hint)


class LazyGroup(click.Group):
    """A group that knows its commands' names and one-line help without importing them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _help = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The names from the table: a Tab must not import every command."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=entry[2]) for name, entry in COMMANDS.items() if name.startswith(incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """A command that finds no memory, or nowhere to write its answer, says so in a sentence."""
        try:
            return super().invoke(ctx)
        except MemoryError as error:
            hint = "free some, or raise the limit that `ulimit -v` shows"
            raise _failed("there is not enough memory", hint) from error
        except OSError as error:
            if error.errno not in _UNWRITTEN or error.filename is not None:
                raise
            told = f"the output could not be written: {error.strerror}"
            raise _failed(told, "write it to a place with room") from error

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muster-agent")
def main() -> None:
    """Muster: which checkpoint would this run resume from, is every byte proven good, and how long would it take?

    \b
    Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 auth, 5 conflict, 6 timeout, 7 damage or drill failed,
    8 objective breached, 9 server unreachable.
    """
