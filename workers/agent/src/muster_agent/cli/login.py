"""`muster login`, `logout` and `context`: which control planes this user works with."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import click

from muster_agent.cli.contexts import Context, config_folder, load, read_secret, save
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, print_json, say
from muster_agent.cli.remote import refusals_told


@click.command()
@click.argument("server", metavar="URL")
@click.option("--token-file", metavar="FILE", help="Holds the token; - is stdin. Asked for at a terminal.")
@click.option("--name", help="Of the context (default: the server's host).")
@click.option("--ca-file", metavar="FILE", help="Certificates to trust instead of the system's.")
def login(server: str, token_file: str | None, name: str | None, ca_file: str | None) -> None:
    """Check a token with the control plane at URL, keep it in a file that only you can read, and use it from now on.

    \b
    muster login https://muster.example
    muster login https://muster.example --token-file - < token
    """
    import os

    token = _token(token_file)
    ca_file = os.path.abspath(ca_file) if ca_file else None
    with refusals_told():
        from muster_agent.rest import Client

        client = Client(server, token=token, ca_file=ca_file, timeout_seconds=10.0, retry_seconds=5.0)
        who = client.who_am_i()
    address = client.transport.server
    chosen = name or urlsplit(address).netloc
    save_context(chosen, address, token, ca_file)
    click.echo(one_line(f"signed in to {address} as {who['username']} ({who['role'] or 'no role'}), context {chosen}"))


def _token(token_file: str | None) -> str:
    if token_file is not None:
        token = read_secret(token_file)
    elif sys.stdin.isatty():
        token = str(click.prompt("Token (create one under Access)", hide_input=True, err=True)).strip()
    else:
        raise click.UsageError("there is no terminal to ask at; give the token with --token-file FILE, or - for stdin")
    if not token:
        raise CommandFailed("the token is empty", hint="create one under Access", code=ExitCode.AUTH)
    return token


def save_context(name: str, server: str, token: str, ca_file: str | None) -> None:
    """Raises CommandFailed where the files cannot be written."""
    from muster_agent.runtime.config import write_private

    path = config_folder() / "tokens" / "".join(c if c.isalnum() or c in "-._" else "_" for c in name)
    try:
        write_private(path, token.encode())
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}") from error
    file = load()
    file.contexts[name] = Context(server=server, token_file=str(path), ca_file=ca_file)
    file.current = name
    save(file)


@click.command()
@click.argument("name", required=False)
def logout(name: str | None) -> None:
    """Forget a context and its token (the current one's by default). The token itself lives on until it is revoked."""
    from pathlib import Path

    file = load()
    chosen = name or file.current
    context = file.contexts.pop(chosen, None)
    if context is None:
        raise CommandFailed(f"there is no context {chosen!r}", code=ExitCode.NOT_FOUND)
    if context.token_file and Path(context.token_file).parent == config_folder() / "tokens":
        Path(context.token_file).unlink(missing_ok=True)
    if file.current == chosen:
        file.current = next(iter(sorted(file.contexts)), "")
    save(file)
    say(f"forgot {chosen}; revoke the token under Access if nobody else uses it")


@click.group()
def context() -> None:
    """The control planes that `muster login` knows."""


@context.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_contexts(as_json: bool) -> None:
    """List them; * marks the one in use."""
    file = load()
    if as_json:
        print_json(
            [
                {"name": name, "server": one.server, "current": name == file.current}
                for name, one in sorted(file.contexts.items())
            ]
        )
        return
    if not file.contexts:
        say("there is none yet: muster login https://muster.example")
    for name, one in sorted(file.contexts.items()):
        click.echo(one_line(f"{'*' if name == file.current else ' '} {name}  {one.server}"))


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Talk to this one from now on."""
    file = load()
    if name not in file.contexts:
        known = ", ".join(sorted(file.contexts)) or "none"
        raise CommandFailed(f"there is no context {name!r}", hint=f"known are: {known}", code=ExitCode.NOT_FOUND)
    file.current = name
    save(file)
    say(f"using {name} ({file.contexts[name].server})")


@context.command()
def current() -> None:
    """Print the name of the one in use."""
    file = load()
    if not file.current:
        raise CommandFailed("no context is in use", hint="muster login URL", code=ExitCode.NOT_FOUND)
    click.echo(one_line(file.current))
