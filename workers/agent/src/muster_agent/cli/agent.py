"""`muster agent`: join a control plane, run, look, stop."""

from __future__ import annotations

import logging
import os
import platform
import secrets
import signal
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from muster_agent import __version__
from muster_agent.cli.agent_remote import REMOTE
from muster_agent.cli.bucket import checked_place
from muster_agent.cli.output import CommandFailed, ExitCode, human_bytes, print_json, say
from muster_agent.formats.places import is_bucket
from muster_agent.protocol.wire import SUPPORTED_PROTOCOLS, EnrolReply, EnrolRequest
from muster_agent.runtime.config import (
    STATE_VARIABLE,
    AgentConfig,
    ConfigError,
    StateDirectory,
    load_config,
    state_directory,
    write_private,
)
from muster_agent.runtime.status import AlreadyRunning, Lock, is_locked, read_status
from muster_agent.tasks.limits import Limits

TOKEN_VARIABLE = "MUSTER_JOIN_TOKEN"
_state_option = click.option(
    "--state-dir", envvar=STATE_VARIABLE, help="Where the agent keeps its files (default: the user's state folder)."
)


@click.group()
def agent() -> None:
    """Join this node to a control plane and run its agent; look after the agents of a whole fleet. It needs no root."""


@agent.command()
@click.option("--server", required=True, help="The control plane's address; https, or http to loopback.")
@click.option("--token-file", help=f"File with the join token (default: the variable {TOKEN_VARIABLE}).")
@click.option(
    "--root", "roots", multiple=True, required=True, help="What tasks may read: a folder, or s3://bucket/prefix."
)
@click.option(
    "--copy-root",
    "copy_roots",
    multiple=True,
    help="Where transfers may also write copies and remove them: a folder, or s3://bucket/prefix (default: nowhere).",
)
@click.option("--name", help="The node's name (default: this host's).")
@click.option("--hook-dir", help="Where training hooks write (default: as the hooks' own).")
@click.option("--ca-file", help="Certificates to trust instead of the system's.")
@click.option("--slots", type=click.IntRange(1, 64), default=1, show_default=True, help="Tasks at a time.")
@click.option("--no-disrupt", is_flag=True, help="Never signal a training process, whatever a drill asks.")
@click.option("--max-bytes-per-second", type=click.IntRange(min=1), help="No task of this node reads faster.")
@click.option("--max-minutes", type=click.FloatRange(min=0, min_open=True), help="No task of this node runs longer.")
@click.option("--max-bytes", type=click.IntRange(min=1), help="No task of this node reads more.")
@click.option("--again", is_flag=True, help="Join although there is an agent here already.")
@_state_option
def join(  # noqa: PLR0913  (one parameter per option)
    server: str,
    token_file: str | None,
    roots: tuple[str, ...],
    copy_roots: tuple[str, ...],
    name: str | None,
    hook_dir: str | None,
    ca_file: str | None,
    slots: int,
    no_disrupt: bool,
    max_bytes_per_second: int | None,
    max_minutes: float | None,
    max_bytes: int | None,
    again: bool,
    state_dir: str | None,
) -> None:
    """Buy this node its credential with a join token."""
    state = state_directory(state_dir)
    if state.credential.exists() and not again:
        raise CommandFailed(
            f"there is an agent in {state.path} already",
            hint="use --state-dir for another one, or --again to join anew",
            code=ExitCode.CONFLICT,
        )
    config = AgentConfig(
        server=_checked_server(server),
        agent_id="",
        node_name=name or platform.node(),
        roots=tuple(_checked_root(root) for root in dict.fromkeys((*roots, *copy_roots))),
        copy_roots=tuple(_checked_root(root) for root in copy_roots),
        hook_directory=os.path.abspath(hook_dir) if hook_dir else None,
        ca_file=os.path.abspath(ca_file) if ca_file else None,
        slots=slots,
        allow_disrupt=not no_disrupt,
        limits=Limits(max_bytes_per_second=max_bytes_per_second, max_minutes=max_minutes, max_bytes=max_bytes),
    )
    token = _join_token(token_file)
    try:
        reply = _enrol(config, token, _nonce(state, again))
        write_private(state.config, msgspec.json.format(msgspec.json.encode(_with_id(config, reply))))
        write_private(state.credential, reply.credential.encode())
    except OSError as error:
        raise CommandFailed(f"{state.path} cannot be written: {error.strerror}") from error
    say(f"joined {config.server} as node {config.node_name} ({reply.agent_id}), {reply.state}")
    if reply.state == "pending":
        say("an admin has to approve this agent before it gets work")
    print_json(
        {"agent_id": reply.agent_id, "node": config.node_name, "state": reply.state, "state_dir": str(state.path)}
    )


def _with_id(config: AgentConfig, reply: EnrolReply) -> AgentConfig:
    return msgspec.structs.replace(config, agent_id=reply.agent_id)


def _checked_server(server: str) -> str:
    from muster_agent.runtime.client import ServerUrlRefused, check_server_url

    try:
        return check_server_url(server)
    except ServerUrlRefused as error:
        raise CommandFailed(str(error), code=ExitCode.USAGE) from error


def _checked_root(root: str) -> str:
    if is_bucket(root):
        return checked_place(root)
    path = os.path.abspath(root)
    if not os.path.isdir(path):
        raise CommandFailed(
            f"the root {path} is not a folder", hint="mount or create it first", code=ExitCode.NOT_FOUND
        )
    return path


def _join_token(token_file: str | None) -> str:
    if token_file is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        source = f"the variable {TOKEN_VARIABLE}"
    else:
        source = token_file
        try:
            token = Path(token_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(f"{token_file} cannot be read: {error}", code=ExitCode.NOT_FOUND) from error
    if not token.strip():
        raise CommandFailed(
            f"there is no join token in {source}",
            hint="create one under Nodes and give it with --token-file",
            code=ExitCode.USAGE,
        )
    return token.strip()


def _nonce(state: StateDirectory, again: bool) -> str:
    """Kept on disk before it is sent: if the reply is lost, running `join` again gives the same agent."""
    if state.nonce.exists() and not again:
        return state.nonce.read_text(encoding="ascii").strip()
    nonce = secrets.token_hex(16)
    write_private(state.nonce, nonce.encode())
    return nonce


def _enrol(config: AgentConfig, token: str, nonce: str) -> EnrolReply:
    from muster_agent.runtime.client import Client
    from muster_agent.runtime.clock import ServerClock
    from muster_agent.runtime.facts import read_facts, read_machine_id
    from muster_agent.runtime.retry import CredentialRefused, ServerError, TaskGone, TryAgain

    client = Client(
        config.server,
        credential=lambda: "",
        clock=ServerClock(),
        agent_version=__version__,
        ca_file=config.ca_file,
    )
    request = EnrolRequest(
        join_token=token,
        node_name=config.node_name,
        machine_id=read_machine_id(),
        nonce=nonce,
        agent_version=__version__,
        protocols=SUPPORTED_PROTOCOLS,
        facts=read_facts(config),
    )
    try:
        return client.enrol(request)
    except TryAgain as error:
        raise CommandFailed(
            str(error),
            hint="check the address and that the control plane runs, then run the same command again",
            code=ExitCode.SERVER_UNREACHABLE,
        ) from error
    except ServerError as error:
        refused = isinstance(error, CredentialRefused | TaskGone) or error.code.startswith("join_token")
        code = ExitCode.AUTH if refused else ExitCode.CONFLICT if error.status == 409 else ExitCode.ERROR
        raise CommandFailed(f"the control plane refuses this node: {error}", code=code) from error


@agent.command()
@click.option("--verbose", is_flag=True, help="Log every task.")
@_state_option
def run(verbose: bool, state_dir: str | None) -> None:
    """Run until SIGTERM: then finish or hand back what runs, and exit 0."""
    state = state_directory(state_dir)
    config = _config(state)
    level = logging.INFO if verbose else logging.WARNING
    from muster_agent.protocol.printable import LineFormatter

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=level)
    from muster_agent.formats.fence import keep_to
    from muster_agent.runtime.loop import Agent

    try:
        lock = Lock(state.lock)
        running = Agent(config, state)
    except AlreadyRunning as error:
        raise CommandFailed(str(error), hint="one agent per --state-dir", code=ExitCode.CONFLICT) from error
    except (ConfigError, OSError) as error:
        raise CommandFailed(str(error)) from error
    except sqlite3.Error as error:
        hint = "free some space on its disk, or move the file away: what it held is then not delivered"
        raise CommandFailed(f"the spool {state.spool} cannot be opened: {error}", hint=hint) from error
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: running.shut_down())
    keep_to((*config.roots, *config.copy_roots))
    try:
        running.run()
    finally:
        lock.release()
    if running.refusal is not None:
        code = ExitCode.AUTH if running.refusal.status == 401 else ExitCode.CONFLICT
        raise CommandFailed(f"the control plane refuses this agent: {running.refusal}", code=code)


@agent.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_state_option
def status(as_json: bool, state_dir: str | None) -> None:
    """Say whether the agent runs and when it last reached the server."""
    state = state_directory(state_dir)
    config = _config(state)
    known = read_status(state.status)
    runs = is_locked(state.lock)
    if as_json:
        print_json(
            {"running": runs, "stopped_on_node": state.stop.exists(), "agent_id": config.agent_id, "status": known}
        )
    else:
        click.echo(f"{config.node_name} ({config.agent_id}): {'running' if runs else 'not running'}, {config.server}")
        if state.stop.exists():
            click.echo(f"all work is stopped by {state.stop}")
        if known is not None:
            at = datetime.fromtimestamp(known.last_poll_at, UTC).isoformat() if known.last_poll_at else "never"
            click.echo(f"last poll: {at}; running: {', '.join(known.running) or 'nothing'}")
            click.echo(f"spool: {human_bytes(known.spool_bytes)}, {known.undelivered_results} results not delivered")
    if not runs:
        raise SystemExit(ExitCode.NOT_FOUND)


@agent.command("stop-all")
@click.option("--clear", is_flag=True, help="Let work go on again.")
@_state_option
def stop_all(clear: bool, state_dir: str | None) -> None:
    """Stop all work on this node at once; works without the control plane."""
    state = state_directory(state_dir)
    _config(state)
    try:
        if clear:
            state.stop.unlink(missing_ok=True)
        else:
            state.stop.touch(mode=0o600)
    except OSError as error:
        raise CommandFailed(f"{state.stop} cannot be written: {error.strerror}") from error
    say("work goes on" if clear else "all work on this node stops; `muster agent stop-all --clear` lets it go on")


def _config(state: StateDirectory) -> AgentConfig:
    try:
        return load_config(state)
    except ConfigError as error:
        raise CommandFailed(str(error), code=ExitCode.NOT_FOUND) from error


for _command in REMOTE:
    agent.add_command(_command)
