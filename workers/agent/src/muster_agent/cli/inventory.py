"""`muster inventory`: what lies under a path, what is whole, what is not, and what to do about it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from muster_agent.cli.bucket import bucket_store, checked_place, endpoint_option, small_files
from muster_agent.cli.colour import paint_for
from muster_agent.cli.inventory_choice import Only, chosen, is_broken, with_folder_findings
from muster_agent.cli.inventory_text import inventory_lines, summary_lines
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, print_json, say
from muster_agent.cli.path_rules import read_rules, rules_option
from muster_agent.cli.proven import proven
from muster_agent.cli.scan_line import ScanLine
from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.checkpoint import GRACE_SECONDS, state_shards
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.rules import Rule
from muster_agent.formats.times import iso_time
from muster_agent.formats.walk import Enough, Inventory, RootUnreadable
from muster_agent.formats.walk import inventory as take_inventory
from muster_agent.jobs.inventory import sealed_ones
from muster_agent.jobs.scan_cache import ScanCache

SETTLE_SECONDS = 1.0


@click.command()
@click.argument("path")
@click.option(
    "--grace",
    "grace_seconds",
    type=click.FloatRange(min=0),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="A save whose newest change is younger than this may still be running.",
)
@click.option(
    "--settle",
    "settle_seconds",
    type=click.FloatRange(min=0),
    default=SETTLE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Look twice, so far apart, at what looks unfinished and may be being written; 0: once.",
)
@click.option(
    "--cache",
    "cache_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Remember in FILE what was found, so that next time unchanged checkpoints need not be opened.",
)
@rules_option
@endpoint_option
@click.option("--only", type=click.Choice([one.value for one in Only]), help="List only these.")
@click.option("--summary", is_flag=True, help="One line per run, and none per checkpoint.")
@click.option("--fail-on", type=click.Choice(["damage"]), help="Exit 7 where a checkpoint is broken.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list, newest step first.")
def inventory(  # noqa: PLR0913 - one for each option
    path: str,
    grace_seconds: float,
    settle_seconds: float,
    cache_file: str | None,
    rules_file: str | None,
    endpoint_url: str | None,
    only: str | None,
    summary: bool,
    fail_on: str | None,
    as_json: bool,
) -> None:
    """List the checkpoints under PATH: one checkpoint, one run's folder, or a folder of runs; s3://bucket/prefix too.

    Nothing is unpickled and no data is read, only headers and metadata; what `muster verify` or `muster reload` found
    in the data counts. Exit 0 also where checkpoints are broken, unless --fail-on says otherwise: see the status of
    each. Exit 3: there is no such path; 1: it cannot be read.

    \b
    muster inventory DIR --only broken          which are broken, and why
    muster inventory DIR --summary              one line per run
    muster inventory DIR --fail-on damage       exit 7 where any is
    """
    if summary and as_json:
        raise CommandFailed("--json and --summary exclude each other", hint="choose one", code=ExitCode.USAGE)
    store = bucket_store(checked_place(path), endpoint_url)
    found = listed(
        path,
        grace_seconds=grace_seconds,
        settle_seconds=settle_seconds,
        cache_file=cache_file,
        rules=read_rules(rules_file),
        store=store,
    )
    known = proven(found.checkpoints, [one.path for one in sealed_ones(found)], small_files(store))
    shown = chosen(known.checkpoints, Only(only) if only else None)
    if as_json:
        print_json([checkpoint_json(shard_map) for shard_map in with_folder_findings(shown, found.findings)])
        _say_place(found)
    elif summary:
        for line in summary_lines(shown, paint_for(sys.stdout)):
            click.echo(line)
    else:
        found = msgspec.structs.replace(found, checkpoints=shown)
        wanted = f"{only} " if only else ""
        for line in inventory_lines(found, path, time.time(), paint_for(sys.stdout), known.trust, wanted):
            click.echo(line)
    if fail_on and any(map(is_broken, known.checkpoints)):
        raise SystemExit(int(ExitCode.DAMAGE))


def listed(
    path: str,
    *,
    grace_seconds: float = GRACE_SECONDS,
    missing: ExitCode = ExitCode.NOT_FOUND,
    enough: Enough | None = None,
    settle_seconds: float = 0.0,
    cache_file: str | None = None,
    rules: Sequence[Rule] = (),
    store: ObjectStore | None = None,
) -> Inventory:
    """The inventory of PATH, through `store` where it lies in a bucket, or the failure that a user can act on."""
    place = checked_place(path)
    try:
        with contextlib.ExitStack() as stack:
            cache = stack.enter_context(ScanCache(cache_file, place)) if cache_file else None
            line = stack.enter_context(ScanLine())
            found = take_inventory(
                place,
                control=line.control(),
                grace_seconds=grace_seconds,
                enough=enough,
                settle_seconds=settle_seconds,
                memory=cache,
                rules=rules,
                store=store,
            )
            if cache is not None:
                cache.finish()
                if cache.trouble:
                    say(one_line(f"the cache was not used: {cache.trouble}"))
            return found
    except RootUnreadable as error:
        code = missing if error.is_missing else ExitCode.ERROR
        raise CommandFailed(str(error), hint=error.hint, code=code) from error


def checkpoint_json(shard_map: ShardMap) -> dict[str, Any]:
    """One element of the list that `--json` prints."""
    return {
        "path": shard_map.path,
        "run": shard_map.run,
        "step": shard_map.step,
        "format": shard_map.format,
        "status": shard_map.status.value,
        "resumable": shard_map.resumable,
        "world_size": shard_map.world_size,
        "shard_count": state_shards(shard_map),
        "total_bytes": shard_map.total_bytes,
        "newest_mtime_at": iso_time(shard_map.newest_mtime_ns),
        "findings": [finding_json(found) for found in shard_map.findings],
    }


def finding_json(found: Finding) -> dict[str, str]:
    return {
        "code": found.code,
        "severity": found.severity.value,
        "path": found.path,
        "detail": found.detail,
        "cure": found.cure,
    }


def _say_place(found: Inventory) -> None:
    """What is not about a single checkpoint is easily overlooked in a list of them; it is said on stderr too."""
    for one in found.findings:
        say(one_line(f"{one.severity.value} {one.code}: {one.path}: {one.detail}"))
        say(one_line(f"  what to do: {one.cure}"))
