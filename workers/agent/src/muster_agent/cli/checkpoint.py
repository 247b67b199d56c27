"""`muster checkpoint`: what a control plane knows of checkpoints, and what it shall do with their copies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from muster_agent.cli.age import Age
from muster_agent.cli.get import show
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, say
from muster_agent.cli.remote import with_server
from muster_agent.cli.shapes import Column, age, output_option, plain, row_of, size, text_of
from muster_agent.cli.watching import end_with, watch

if TYPE_CHECKING:
    from muster_agent.rest import Client

COPIES = (
    Column("ID", "id", plain),
    Column("TIER", "tier_name", plain),
    Column("STATUS", "status", plain),
    Column("TRUST", "trust", plain),
    Column("RESUMABLE", "resumable", plain),
    Column("SIZE", "total_bytes", size),
    Column("SEEN", "last_seen_at", age),
    Column("PATH", "path", plain),
)
FINDINGS = (
    Column("SEVERITY", "severity", plain),
    Column("CODE", "code", plain),
    Column("FILE", "path", plain),
    Column("DETAIL", "detail", plain),
    Column("WHAT TO DO", "cure", plain),
)


@click.group()
def checkpoint() -> None:
    """Checkpoints on a control plane: the latest, their copies and findings; seal, verify, move and pin them.

    A copy is a placement: `muster checkpoint copies CHECKPOINT` gives the ids.
    """


@checkpoint.command()
@click.argument("run")
@click.option("--world-size", type=click.IntRange(1), help="Of the launch that would resume.")
@click.option("--require", type=click.Choice(("complete", "sealed", "verified", "reloaded")), help="Least trust.")
@output_option("text", "json", "yaml", "name")
@with_server
def latest(client: Client, run: str, world_size: int | None, require: str | None, output: str) -> None:
    """The checkpoint that RUN would resume from, as the control plane knows it. Exit 3 where there is none.

    On a node `muster resume-point PATH` looks at the storage itself, which a restart should ask.
    """
    query: Any = {"world_size": world_size, "require": require}
    point = row_of(client.get_resume_point(run, **query))
    if output == "name":
        click.echo(one_line(str(point["path"] or "")))
    elif output == "text":
        found = f"step {point['step']}: {point['path']}" if point["outcome"] == "found" else point["outcome"]
        click.echo(one_line(found))
        if point["outcome"] == "found":
            click.echo(one_line(f"  {point['status']}, {point['trust']}, on {point['tier']}"))
    else:
        show(point, output)
    if point["outcome"] != "found":
        raise SystemExit(ExitCode.ERROR if point["outcome"] == "unknown" else ExitCode.NOT_FOUND)


@checkpoint.command()
@click.argument("identifier", metavar="CHECKPOINT")
@output_option("table", "json", "yaml", "name", "csv")
@with_server
def copies(client: Client, identifier: str, output: str) -> None:
    """Where a checkpoint lies, and what is proven of each copy."""
    rows = [row_of(row) for row in client.list_checkpoint_placements(identifier)]
    click.echo(text_of(rows, COPIES, output))


@checkpoint.command()
@click.argument("identifier", metavar="CHECKPOINT")
@output_option("table", "json", "yaml", "csv")
@with_server
def findings(client: Client, identifier: str, output: str) -> None:
    """What is wrong with a checkpoint, and what to do. Exit 7 where there is open damage."""
    rows = [row_of(row) for row in client.list_checkpoint_findings(identifier, open=True)]
    if rows or output != "table":
        click.echo(text_of(rows, FINDINGS, output))
    else:
        say("nothing is open")
    if any(row["severity"] == "damage" for row in rows):
        raise SystemExit(ExitCode.DAMAGE)


def _audit(client: Client, placement: str, mode: Any, wait: bool, timeout: float | None) -> None:
    row = row_of(client.create_audit({"placement": placement, "mode": mode}))
    if wait:
        identifier = row["id"]
        row = watch(
            lambda: row_of(client.get_audit(identifier)),
            what=f"audit {identifier}",
            cancel=f"muster checkpoint cancel {identifier}",
            timeout_seconds=timeout,
        )
    click.echo(one_line(f"audit {row['id']}: {row['outcome'] or row['state']}{_why(row)}"))
    if wait and row["outcome"] != "passed":
        end_with(ExitCode.DAMAGE if row["outcome"] == "damaged" else ExitCode.ERROR)


def _why(row: dict[str, Any]) -> str:
    return f": {row['reason']}" if row.get("reason") else ""


_wait = click.option("--wait", is_flag=True, help="Until it has ended; the exit code tells how.")
_timeout = click.option("--timeout", type=Age(), help="With --wait: at most so long.")


@checkpoint.command("ask-store")
@click.argument("placement", metavar="COPY")
@_wait
@_timeout
@with_server
def ask_store(client: Client, placement: str, wait: bool, timeout: float | None) -> None:
    """Have a bucket's store tell the check sums that it keeps of a copy, and compare them with those that were sent.

    Nothing is read, so nothing is verified: it is the store's word.
    """
    _audit(client, placement, "store", wait, timeout)


@checkpoint.command()
@click.argument("placement", metavar="COPY")
@_wait
@_timeout
@with_server
def seal(client: Client, placement: str, wait: bool, timeout: float | None) -> None:
    """Have an agent record digests of every byte of a copy."""
    _audit(client, placement, "seal", wait, timeout)


@checkpoint.command()
@click.argument("placement", metavar="COPY")
@_wait
@_timeout
@with_server
def verify(client: Client, placement: str, wait: bool, timeout: float | None) -> None:
    """Have an agent re-read a sealed copy. With --wait exit 7 on damage."""
    _audit(client, placement, "verify", wait, timeout)


@checkpoint.command()
@click.argument("placement", metavar="COPY")
@click.option("--to", "tier", required=True, help="The tier (its id).")
@click.option("--keep", is_flag=True, help="Keep the source: a copy and not a move.")
@_wait
@_timeout
@with_server
def move(client: Client, placement: str, tier: str, keep: bool, wait: bool, timeout: float | None) -> None:
    """Copy a copy to another tier, prove it there to the last byte, and retire the source (unless --keep)."""
    row = row_of(client.create_transfer({"placement": placement, "kind": "copy" if keep else "move", "tier": tier}))
    if wait:
        identifier = row["id"]
        row = watch(
            lambda: row_of(client.get_transfer(identifier)),
            what=f"transfer {identifier}",
            cancel=f"muster checkpoint cancel {identifier}",
            timeout_seconds=timeout,
        )
    click.echo(one_line(f"transfer {row['id']}: {row['state']}{': ' + row['problem'] if row['problem'] else ''}"))
    if wait and row["state"] != "done":
        end_with(ExitCode.ERROR)


@checkpoint.command()
@click.argument("identifier", metavar="AUDIT|TRANSFER|REPAIR|SCAN")
@with_server
def cancel(client: Client, identifier: str) -> None:
    """Stop an audit, a transfer, a repair or a scan."""
    stops = {"aud": "cancel_audit", "trf": "cancel_transfer", "rep": "cancel_repair", "scn": "cancel_scan"}
    operation = stops.get(identifier.partition("_")[0])
    if operation is None:
        raise CommandFailed(
            f"{identifier!r} is none of them", hint=f"ids begin with {', '.join(stops)}", code=ExitCode.USAGE
        )
    row = getattr(client, operation)(identifier)
    click.echo(one_line(f"{row['id']}: {row['state']}"))


@checkpoint.command()
@click.argument("identifier", metavar="CHECKPOINT")
@click.option("--reason", required=True, help="Why it must stay, for whoever wonders later.")
@with_server
def pin(client: Client, identifier: str, reason: str) -> None:
    """Let no retention policy remove or move a checkpoint."""
    client.pin_checkpoint(identifier, {"reason": reason})
    say(f"pinned {identifier}")


@checkpoint.command()
@click.argument("identifier", metavar="CHECKPOINT")
@with_server
def unpin(client: Client, identifier: str) -> None:
    """Leave a checkpoint to the retention policies again."""
    client.unpin_checkpoint(identifier)
    say(f"unpinned {identifier}")


@checkpoint.command()
@click.argument("placement", metavar="COPY")
@output_option("text", "json", "yaml")
@with_server
def explain(client: Client, placement: str, output: str) -> None:
    """Which rule said what about a copy, in words."""
    found = row_of(client.explain_placement(placement))
    if output != "text":
        show(found, output)
        return
    for line in found["explanation"]:
        click.echo(one_line(": ".join(str(value) for value in line.values() if value)))
    sys.stdout.flush()
