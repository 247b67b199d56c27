"""`muster ceiling`: how fast this node can read a place at all."""

from __future__ import annotations

import click

from muster_agent.cli.bucket import bucket_store, checked_place, endpoint_option
from muster_agent.cli.ceiling_memory import remember
from muster_agent.cli.output import CommandFailed, ExitCode, human_bytes, human_rate, print_json, printable, say
from muster_agent.formats.object_store import BucketRefused
from muster_agent.jobs.ceiling import SECONDS_PER_TRY, measure_ceiling, method_of
from muster_agent.jobs.ceiling_sources import NothingToRead
from muster_agent.protocol.results import CeilingReport, CeilingTry

_BAR_CHARACTERS = 30


@click.command()
@click.argument("path")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.5, max=600),
    default=SECONDS_PER_TRY,
    show_default=True,
    help="The longest that each way of reading may take.",
)
@click.option("--no-fio", is_flag=True, help="Use the built-in reader alone, also where fio is installed.")
@endpoint_option
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def ceiling(path: str, seconds: float, no_fio: bool, endpoint_url: str | None, as_json: bool) -> None:
    """Read the largest files under PATH (a folder, a file, or s3://bucket/prefix) in several ways, from cold, and
    report the best rate: what a reload there can reach at most. The files are dropped from the page cache, and nothing
    is written there. The result is kept for this user, and `muster reload` holds its rate against it.

    Exit 0: measured; 1: no way of reading gave a rate that can be relied on; 3: not found, or nothing large enough.
    """
    store = bucket_store(checked_place(path), endpoint_url)
    try:
        report = measure_ceiling(path, seconds_per_try=seconds, with_fio=not no_fio, store=store)
    except BucketRefused as error:
        raise CommandFailed(f"{path} could not be looked at: {error.strerror}", hint=error.hint) from error
    except FileNotFoundError as error:
        raise CommandFailed(f"there is nothing at {path}", code=ExitCode.NOT_FOUND) from error
    except NothingToRead as error:
        raise CommandFailed(str(error), code=ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise CommandFailed(f"{path} could not be looked at: {error.strerror}") from error
    remember(report)
    if as_json:
        print_json(report)
    else:
        click.echo(printable(render(report)))
    for note in report.notes:
        say(f"note: {note}")
    if report.bytes_per_second is None:
        raise CommandFailed("no way of reading gave a rate to rely on", hint="see each try's reason")


def render(report: CeilingReport) -> str:
    """The tries as a table with bars, and the best below."""
    best = max((one.bytes_per_second or 0.0 for one in report.tries), default=0.0)
    lines = [f"{report.path}, {report.measured_at}", *(_line(one, best) for one in report.tries)]
    if report.bytes_per_second is None:
        return "\n".join([*lines, "  ceiling  not measured"])
    return "\n".join([*lines, f"  ceiling  {human_rate(report.bytes_per_second)} ({report.method})"])


def _line(one: CeilingTry, best: float) -> str:
    if one.bytes_per_second is None:
        return f"  {one.reader} {one.block_bytes >> 20} MiB x {one.depth}: {one.reason}"
    bar = "#" * round(_BAR_CHARACTERS * one.bytes_per_second / best) if best else ""
    read = f"{human_bytes(one.read_bytes)} in {one.seconds:.1f} s"
    cached = one.cached_ratio_before
    warm = f"  ({cached:.0%} cached before)" if cached is not None and cached > 0.01 else ""
    rate = human_rate(one.bytes_per_second)
    return f"  {method_of(one):<32} {rate:>11}  {bar:<{_BAR_CHARACTERS}}  {read}{warm}"
