"""What `muster reload` does with `--compare`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from muster_agent.cli.compare import Comparison, compare, interpreter, parse_loaders
from muster_agent.cli.compare_text import UNPICKLES, render
from muster_agent.cli.output import CommandFailed, ExitCode, print_json, say
from muster_agent.formats.detect import read_checkpoint
from muster_agent.storage.posix import PathUnsafe, locate


def run_comparison(path: str, loaders: str, python: str | None, *, as_json: bool) -> None:
    """Print the comparison. Raises CommandFailed where a loader that was named did not run."""
    names = parse_loaders(loaders)
    if path.startswith("s3://"):
        raise click.UsageError("--compare reads files: name a folder on a mounted file system")
    if {"torch", "torch_mmap", "dcp"} & set(names):
        say(UNPICKLES)
    comparison = compare(path, _files_of(path), names, interpreter(python))
    if as_json:
        print_json(_as_json(comparison))
    else:
        click.echo(render(comparison))
    idle = [row.loader for row in comparison.rows if row.outcome != "ran"]
    if idle:
        raise CommandFailed(f"did not run: {', '.join(idle)}", hint="the table says why, and what to install")


def _files_of(path: str) -> list[str]:
    """Where the checkpoint's files lie, by its own metadata."""
    found = []
    for shard in read_checkpoint(path).shards:
        try:
            found.append(locate(path, shard.path))
        except PathUnsafe:
            continue
    if not found:
        raise CommandFailed(f"nothing at {path} can be read as a checkpoint", code=ExitCode.NOT_FOUND)
    return found


def _as_json(comparison: Comparison) -> dict[str, Any]:
    rows = []
    for row in comparison.rows:
        rates = {
            "bytes_per_second": row.bytes_per_second,
            "cpu_seconds_per_gigabyte": row.cpu_seconds_per_gigabyte,
        }
        rows.append({**msgspec.to_builtins(row), **rates})
    return {"path": comparison.path, "python": comparison.python, "rows": rows}
