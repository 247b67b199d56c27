"""`muster token`: API tokens for people and service accounts, and their rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster_agent.cli.kinds import find_kind
from muster_agent.cli.output import CommandFailed, ExitCode, say
from muster_agent.cli.remote import with_server
from muster_agent.cli.shapes import output_option, row_of, text_of

if TYPE_CHECKING:
    from muster_agent.rest import Client


@click.group()
def token() -> None:
    """API tokens: create, list, rotate and revoke them."""


@token.command("list")
@output_option()
@with_server
def list_tokens(client: Client, output: str) -> None:
    """One's own tokens, or everybody's for an admin: when each ends and when it was last used."""
    kind = find_kind("tokens")
    assert kind is not None
    click.echo(text_of([row_of(row) for row in client.list_tokens()], kind.columns, output))


@token.command()
@click.argument("name")
@click.option("--role", type=click.Choice(("viewer", "operator", "admin")), default="viewer", show_default=True)
@click.option("--days", type=click.IntRange(1, 365), default=90, show_default=True, help="Until it ends.")
@click.option("--user", help="Another account's, such as a service account (admin).")
@with_server
def create(client: Client, name: str, role: Any, days: int, user: str | None) -> None:
    """Create a token called NAME. Its secret is printed once, to stdout: `muster token create ci > token.txt`."""
    body: Any = {"name": name, "role": role, "days": days, **({"username": user} if user else {})}
    made = client.create_token(body)
    say(f"token {made['id']} of {made['user']} lives until {made['expires_at']}; nobody can read it again")
    click.echo(made["secret"])


@token.command()
@click.argument("identifier", metavar="TOKEN")
@click.option("--days", type=click.IntRange(1, 365), default=90, show_default=True, help="Until the new one ends.")
@with_server
def rotate(client: Client, identifier: str, days: int) -> None:
    """Create the successor of a token: same owner, name and role. Both live until the old one ends or is revoked."""
    old = next((row for row in client.list_tokens() if row["id"] == identifier), None)
    if old is None:
        raise CommandFailed(
            f"there is no token {identifier!r}", hint="see `muster token list`", code=ExitCode.NOT_FOUND
        )
    body: Any = {"name": old["name"], "role": old.get("role"), "days": days, "username": old["user"]}
    made = client.create_token(body)
    say(f"token {made['id']} lives until {made['expires_at']}; hand it out, then: muster token revoke {identifier}")
    click.echo(made["secret"])


@token.command()
@click.argument("identifiers", metavar="TOKEN...", nargs=-1, required=True)
@with_server
def revoke(client: Client, identifiers: tuple[str, ...]) -> None:
    """Refuse tokens from now on."""
    for identifier in identifiers:
        client.delete_token(identifier)
        say(f"revoked {identifier}")
