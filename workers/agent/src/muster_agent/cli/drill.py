"""`muster drill`: start, watch, cancel, report and compare drills on a control plane."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from muster_agent.cli.age import Age
from muster_agent.cli.get import show
from muster_agent.cli.output import CommandFailed, ExitCode, human_bytes, one_line, print_json, say
from muster_agent.cli.remote import with_server
from muster_agent.cli.shapes import FORMATS, Column, output_option, plain, rate, row_of, seconds, size, text_of
from muster_agent.cli.watching import drill_exit, drill_look, end_with, summary_of, watch

if TYPE_CHECKING:
    from muster_agent.rest import Client

KINDS = ("reload", "herd", "bandwidth", "loader_compare", "failover", "standby")
DISRUPTIVE = ("failover", "standby")
MIN_COMPARED = 2


@click.group()
def drill() -> None:
    """Rehearse recovery: start, watch, cancel, report and compare drills.

    Exit codes: 0 passed, 7 failed, 8 passed over its objective, 6 not ended in time, 130 Ctrl-C (the drill goes on).
    """


@drill.command("run")
@click.argument("run_name", metavar="RUN", required=False)
@click.option("--plan", help="Run this plan's drill now (its id) instead of naming RUN and options.")
@click.option("--kind", type=click.Choice(KINDS), default="reload", show_default=True)
@click.option("--choice", type=click.Choice(("latest", "latest_verified", "random", "named")), help="Which checkpoint.")
@click.option("--step", type=int, help="The checkpoint of this step.")
@click.option("--tier", help="Read from this tier (its id).")
@click.option("--nodes", "node_count", type=click.IntRange(1), help="On so many nodes.")
@click.option("--backend", help="auto, gds, host_bounce, host_direct or host_buffered.")
@click.option("--device", help="cpu or cuda.")
@click.option("--objective", "objective_seconds", type=Age(), help="Judge it by this: 900, 15min.")
@click.option("--max-bytes-per-second", type=click.IntRange(1), help="For each client.")
@click.option("--set", "more", multiple=True, metavar="NAME=JSON", help="Any other field of the API's create_drill.")
@click.option("--preview", is_flag=True, help="Only say what it would touch, and start nothing.")
@click.option("--watch", "watched", is_flag=True, help="Wait for its end; the exit code tells the outcome.")
@click.option("--timeout", type=Age(), help="With --watch: wait at most so long.")
@click.option("--yes", is_flag=True, help="Do not ask before a drill that disrupts.")
@output_option("text", "json", "yaml", "name")
@with_server
def run(  # noqa: PLR0913  (one parameter per option)
    client: Client,
    run_name: str | None,
    plan: str | None,
    more: tuple[str, ...],
    preview: bool,
    watched: bool,
    timeout: float | None,
    yes: bool,
    output: str,
    **fields: Any,
) -> None:
    """Start a drill of RUN (name, id or cluster/name), or a plan's with --plan.

    \b
    muster drill run llama-70b --kind reload --watch
    muster drill run llama-70b --kind herd --set ladder=[1,2,4] --objective 10min --watch --timeout 1h
    muster drill run llama-70b --kind failover --preview
    """
    if (run_name is None) == (plan is None):
        raise click.UsageError("name either RUN or --plan")
    if plan is not None:
        started = row_of(client.start_plan(plan))
    else:
        body = _body(str(run_name), fields, more)
        if preview:
            _print_preview(row_of(client.preview_drill(body)), output)
            return
        _ask_first(client, body, yes)
        started = row_of(client.create_drill(body))
    if not watched:
        _print_started(started, output)
        return
    say(f"drill {started['id']} of {started['run_name']} started")
    _watch_to_end(client, started["id"], timeout, output)


def _body(run_name: str, fields: dict[str, Any], more: tuple[str, ...]) -> Any:
    body = {"run": run_name, **{name: value for name, value in fields.items() if value is not None}}
    if body.get("step") is not None:
        body.setdefault("choice", "named")
    for one in more:
        name, separator, value = one.partition("=")
        if not separator:
            raise click.UsageError(f"write --set as NAME=JSON, not {one!r}")
        body[name] = _json_or_text(value)
    return body


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _ask_first(client: Client, body: Any, yes: bool) -> None:
    """A drill that disrupts is named once more by whoever sits at the terminal; scripts say --yes."""
    if body["kind"] not in DISRUPTIVE or yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"a {body['kind']} drill disrupts a training; add --yes to start it from a script")
    _print_preview(row_of(client.preview_drill(body)), "text", to_stderr=True)
    typed = click.prompt(f"Type {body['run']} to disrupt it", default="", show_default=False, err=True)
    if typed != body["run"]:
        raise CommandFailed("nothing was started")


def _print_preview(found: dict[str, Any], output: str, *, to_stderr: bool = False) -> None:
    if output in ("json", "yaml"):
        show(found, output)
        return
    disrupts = "disrupts the training" if found["disrupts"] else "only reads"
    lines = [f"{found['kind']}: {disrupts}; {len(found['nodes'])} nodes: {', '.join(found['nodes']) or '-'}"]
    if found["total_bytes"] is not None:
        share = f", {found['tier_ratio']:.0%} of the tier's bandwidth" if found["tier_ratio"] is not None else ""
        lines.append(f"  reads {human_bytes(found['total_bytes'])} from {found['tier_name'] or '-'}{share}")
    if found["needs_approval"]:
        lines.append("  waits for a second person's approval")
    lines.extend(f"  would not start: {text}" for text in found["refusals"])
    for line in lines:
        click.echo(one_line(line), err=to_stderr)


def _print_started(started: dict[str, Any], output: str) -> None:
    if output == "name":
        click.echo(started["id"])
    elif output == "text":
        click.echo(one_line(f"drill {started['id']} of {started['run_name']}: {started['state']}"))
        say(f"watch it with: muster drill watch {started['id']}")
    else:
        show(started, output)


def _watch_to_end(client: Client, identifier: str, timeout: float | None, output: str) -> None:
    ended = watch(
        drill_look(client, identifier),
        what=f"drill {identifier}",
        cancel=f"muster drill cancel {identifier}",
        timeout_seconds=timeout,
    )
    if output == "name":
        click.echo(ended["id"])
    elif output == "text":
        click.echo("\n".join(one_line(line) for line in summary_of(ended)))
    else:
        show(ended, output)
    end_with(drill_exit(ended))


@drill.command("watch")
@click.argument("identifier", metavar="DRILL")
@click.option("--timeout", type=Age(), help="Wait at most so long.")
@output_option("text", "json", "yaml")
@with_server
def watch_command(client: Client, identifier: str, timeout: float | None, output: str) -> None:
    """Follow a drill to its end. Ctrl-C stops watching, not the drill."""
    _watch_to_end(client, identifier, timeout, output)


@drill.command()
@click.argument("identifiers", metavar="DRILL...", nargs=-1, required=True)
@with_server
def cancel(client: Client, identifiers: tuple[str, ...]) -> None:
    """Stop drills within seconds."""
    for identifier in identifiers:
        row = client.cancel_drill(identifier)
        click.echo(one_line(f"drill {row['id']}: {row['outcome'] or row['state']}"))


@drill.command()
@click.argument("identifier", metavar="DRILL")
@with_server
def approve(client: Client, identifier: str) -> None:
    """Let a waiting disruptive drill begin that somebody else asked for."""
    row = client.approve_drill(identifier)
    click.echo(one_line(f"drill {row['id']}: {row['state']}"))


RANK_COLUMNS = (
    Column("CLIENTS", "client_count", plain),
    Column("RANK", "rank", plain),
    Column("NODE", "node_name", plain),
    Column("OUTCOME", "outcome", plain),
    Column("BYTES", "bytes", size),
    Column("TIME", "seconds", seconds),
    Column("RATE", "bytes_per_second", rate),
    Column("BACKEND", "effective", plain),
    Column("CACHE", "cache_state", plain),
    Column("ERROR", "error", plain),
)


@drill.command()
@click.argument("identifier", metavar="DRILL")
@click.option("--ranks", is_flag=True, help="Every client's own figures too, the slowest last.")
@output_option("text", "json", "yaml", "csv")
@with_server
def report(client: Client, identifier: str, ranks: bool, output: str) -> None:
    """What a drill found: outcome, time, phases, lost work; with --ranks each client's figures. csv is the clients'."""
    found = row_of(client.get_drill(identifier))
    rows = [row_of(row) for row in client.list_drill_ranks(identifier)] if ranks or output == "csv" else []
    if output == "csv":
        click.echo(text_of(rows, RANK_COLUMNS, "csv"))
    elif output in ("json", "yaml"):
        show({**found, "ranks": rows} if ranks else found, output)
    else:
        click.echo("\n".join(one_line(line) for line in summary_of(found)))
        if rows:
            click.echo(text_of(sorted(rows, key=lambda row: row["seconds"] or 0.0), RANK_COLUMNS, "table"))
    if found["state"] == "finished":
        end_with(drill_exit(found))


COMPARED = (
    ("seconds", "time", seconds),
    ("bytes_per_second", "rate", rate),
    ("total_bytes", "bytes", size),
    ("lost_steps", "lost steps", plain),
    ("cached_ratio_before", "cached before", plain),
    ("tier_name", "tier", plain),
    ("backend", "backend", plain),
    ("checkpoint_step", "step", plain),
    ("outcome", "outcome", plain),
    ("objective_state", "objective", plain),
)


@drill.command()
@click.argument("identifiers", metavar="DRILL DRILL...", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Choice([name for name in FORMATS if name != "wide"]), default="table")
@with_server
def compare(client: Client, identifiers: tuple[str, ...], output: str) -> None:
    """Drills side by side, one line for each figure and phase; the first is what the others are measured against."""
    if len(identifiers) < MIN_COMPARED:
        raise click.UsageError("name at least two drills")
    drills = [row_of(client.get_drill(identifier)) for identifier in identifiers]
    if output == "json":
        print_json(drills)
        return
    rows = [_compared(drills, field, title, cell) for field, title, cell in COMPARED]
    phases = dict.fromkeys(phase for one in drills for phase, value in one["phases"].items() if value is not None)
    rows[1:1] = [_compared(drills, f"phases.{phase}", f"  {phase}", seconds) for phase in phases]
    columns = [Column("FIGURE", "figure", str), *(Column(one["id"], one["id"], str) for one in drills)]
    click.echo(text_of(rows, columns, output))


def _compared(drills: list[dict[str, Any]], field: str, title: str, cell: Any) -> dict[str, Any]:
    from muster_agent.cli.shapes import value_at

    values = [value_at(one, field) for one in drills]
    row = {"figure": title, drills[0]["id"]: cell(values[0])}
    for one, value in zip(drills[1:], values[1:], strict=True):
        row[one["id"]] = f"{cell(value)}{_ratio(value, values[0])}"
    return row


def _ratio(value: Any, first: Any) -> str:
    both = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (value, first))
    return f" ({value / first:.2f}x)" if both and first else ""


__all__ = ["ExitCode", "drill"]
