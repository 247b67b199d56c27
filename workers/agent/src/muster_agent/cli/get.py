"""`muster get` and `muster describe`: what the control plane knows, as rows or in full."""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING, Any

import click

from muster_agent.cli.kinds import KINDS, NAMES, Kind, find_kind
from muster_agent.cli.output import CommandFailed, ExitCode, print_json, say
from muster_agent.cli.remote import with_server
from muster_agent.cli.shapes import lines_of, output_option, row_of, text_of, yaml_of

if TYPE_CHECKING:
    from muster_agent.rest import Client

MAX_PAGE = 200


class KindName(click.ParamType[Kind]):
    """A kind of thing, in the plural or not."""

    name = "kind"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Kind:
        kind = value if isinstance(value, Kind) else find_kind(str(value))
        if kind is None:
            self.fail(f"{value!r} is no kind; known are: {', '.join(NAMES)}", param, ctx)
        return kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(kind.name) for kind in KINDS if kind.name.startswith(incomplete)]


@click.command()
@click.argument("kind", type=KindName())
@click.argument("ids", nargs=-1)
@output_option()
@click.option("--run", help="Only of this training run.")
@click.option("--cluster", help="Only of this cluster (id or name).")
@click.option("--state", help="Only in this state.")
@click.option("--filter", "filters", multiple=True, metavar="NAME=VALUE", help="Any filter that the API's list has.")
@click.option("--sort", help="As the API: created_at, -created_at.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@click.option("--all", "everything", is_flag=True, help="All there are.")
@click.option("--no-headers", is_flag=True, help="Without the line of titles.")
@with_server
def get(
    client: Client,
    kind: Kind,
    ids: tuple[str, ...],
    output: str,
    limit: int,
    everything: bool,
    no_headers: bool,
    filters: tuple[str, ...],
    **shortcuts: str | None,
) -> None:
    """List things of KIND, newest first: runs, checkpoints, placements, drills, plans, nodes, agents, tiers, clusters,
    audits, transfers, repairs, scans, findings, alerts, incidents, policies, audit-policies, tokens, users,
    join-tokens, tasks, activity. With IDS only those.

    \b
    muster get drills --run llama-70b --state finished -o wide
    muster get checkpoints --run llama-70b --all -o csv > checkpoints.csv
    muster get placements --filter damaged=true -o name
    """
    if ids:
        rows = [one_of(client, kind, identifier) for identifier in ids]
        more = False
    else:
        query = _query(kind, filters, shortcuts)
        rows, more = _rows(client, kind, query, None if everything else limit)
    text = text_of(rows, kind.columns, output, headers=not no_headers)
    if rows or output in ("json", "yaml", "csv"):
        click.echo(text)
    else:
        say(f"no {kind.name} found")
    if more:
        say(f"there are more than {limit}; --all lists every one, --limit N more of them")


def _rows(client: Client, kind: Kind, query: dict[str, Any], limit: int | None) -> tuple[list[dict[str, Any]], bool]:
    page = MAX_PAGE if limit is None else min(MAX_PAGE, limit + 1)
    found = getattr(client, kind.listing)(**query, limit=page)
    if limit is None:
        return list(found), False
    rows = list(itertools.islice(found, limit + 1))
    return rows[:limit], len(rows) > limit


def _query(kind: Kind, filters: tuple[str, ...], shortcuts: dict[str, str | None]) -> dict[str, Any]:
    from muster_agent.rest import types

    query: dict[str, Any] = {name: value for name, value in shortcuts.items() if value}
    for one in filters:
        name, separator, value = one.partition("=")
        if not separator:
            raise click.UsageError(f"write a filter as NAME=VALUE, not {one!r}")
        query[name] = value
    words = "".join(word.capitalize() for word in kind.listing.split("_"))
    known = getattr(types, f"{words}Query").__annotations__
    if unknown := sorted(query.keys() - known.keys()):
        usable = ", ".join(sorted(known.keys() - {"cursor", "limit"}))
        raise click.UsageError(f"{kind.name} cannot be filtered by {', '.join(unknown)}; they can by: {usable}")
    return query


def one_of(client: Client, kind: Kind, identifier: str) -> dict[str, Any]:
    """One thing by its id; of a kind that has no address of its own, from the list."""
    if kind.single:
        found: dict[str, Any] = getattr(client, kind.single)(identifier)
        return found
    for row in getattr(client, kind.listing)():
        if str(row.get("id")) == identifier:
            return row_of(row)
    raise CommandFailed(f"there is no {kind.name} {identifier!r}", code=ExitCode.NOT_FOUND)


@click.command()
@click.argument("kind", type=KindName())
@click.argument("identifier", metavar="ID")
@output_option("text", "json", "yaml")
@with_server
def describe(client: Client, kind: Kind, identifier: str, output: str) -> None:
    """Show one thing in full: every field, with sizes and times for people. A run may be named instead of its id."""
    show(one_of(client, kind, identifier), output)


def show(value: dict[str, Any], output: str) -> None:
    """One object as text for people, JSON or YAML."""
    if output == "json":
        print_json(value)
    elif output == "yaml":
        click.echo(yaml_of(value))
    else:
        click.echo("\n".join(lines_of(value)))
    sys.stdout.flush()
