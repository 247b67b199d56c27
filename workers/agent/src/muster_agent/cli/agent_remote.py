"""`muster agent list|approve|drain|resume|revoke`: the agents of a control plane, for whoever looks after the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster_agent.cli.kinds import find_kind
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, say
from muster_agent.cli.remote import with_server
from muster_agent.cli.shapes import output_option, row_of, text_of

if TYPE_CHECKING:
    from muster_agent.rest import Client


def find_agent(client: Client, word: str) -> dict[str, Any]:
    """By id, or by the node's name. Raises CommandFailed where none or several match."""
    if word.startswith("agt_"):
        return row_of(client.get_agent(word))
    found = [row_of(row) for row in client.list_agents() if row["node_name"] == word and row["state"] != "revoked"]
    if not found:
        raise CommandFailed(f"no node {word!r} has an agent", hint="see `muster agent list`", code=ExitCode.NOT_FOUND)
    if len(found) > 1:
        ids = ", ".join(str(row["id"]) for row in found)
        raise CommandFailed(f"several nodes are called {word!r}", hint=f"use the id: {ids}", code=ExitCode.CONFLICT)
    return found[0]


@click.command("list")
@output_option()
@with_server
def list_agents(client: Client, output: str) -> None:
    """List the agents of the control plane."""
    kind = find_kind("agents")
    assert kind is not None
    rows = [row_of(row) for row in client.list_agents()]
    if rows or output in ("json", "yaml", "csv"):
        click.echo(text_of(rows, kind.columns, output))
    else:
        say("no agent has joined: `muster agent join` on a node")


def _tell(row: Any) -> None:
    waiting = ", draining" if row.get("drain_requested_at") else ""
    click.echo(one_line(f"{row['node_name']} ({row['id']}): {row['state']}{waiting}"))


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@with_server
def approve(client: Client, nodes: tuple[str, ...]) -> None:
    """Let pending agents take work (admin)."""
    for node in nodes:
        _tell(client.approve_agent(find_agent(client, node)["id"]))


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@with_server
def drain(client: Client, nodes: tuple[str, ...]) -> None:
    """Give agents no new work; what runs goes on (admin)."""
    for node in nodes:
        _tell(client.drain_agent(find_agent(client, node)["id"]))


@click.command()
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@with_server
def resume(client: Client, nodes: tuple[str, ...]) -> None:
    """Give drained agents work again (admin)."""
    for node in nodes:
        _tell(client.resume_agent(find_agent(client, node)["id"]))


@click.command()
@click.argument("node", metavar="NODE")
@click.option("--reason", required=True, help="For the log.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_server
def revoke(client: Client, node: str, reason: str, yes: bool) -> None:
    """Refuse an agent's credential from now on (admin). It cannot be undone: the node has to join again."""
    agent = find_agent(client, node)
    if not yes:
        click.confirm(f"Revoke {agent['node_name']} ({agent['id']})?", abort=True, err=True)
    _tell(client.revoke_agent(agent["id"], {"reason": reason}))


REMOTE = (list_agents, approve, drain, resume, revoke)
