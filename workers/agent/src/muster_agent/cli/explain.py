"""`muster explain`: which rule said what about one checkpoint."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby

import click

from muster_agent.cli.bucket import bucket_store, checked_place, endpoint_option, small_files
from muster_agent.cli.explain_beside import compared, rules_beside
from muster_agent.cli.inventory import checkpoint_json, listed
from muster_agent.cli.output import CommandFailed, ExitCode, one_line, print_json
from muster_agent.cli.proven import proven
from muster_agent.cli.tensor_list import tensor_json, tensor_lines, tensors_of
from muster_agent.formats.base import ShardMap
from muster_agent.formats.checkpoint import read_checkpoint
from muster_agent.formats.explain import Line
from muster_agent.formats.explain import explain as explain_checkpoint
from muster_agent.formats.names import family_folder
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import is_bucket


@click.command()
@click.argument("path")
@endpoint_option
@click.option("--tensors", "with_tensors", is_flag=True, help="List every tensor too, and which bytes it lies in.")
@click.option("--match", "text", default="", metavar="TEXT", help="With --tensors: only names that contain TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Print the checkpoint and its explanation as JSON.")
def explain(path: str, endpoint_url: str | None, with_tensors: bool, text: str, as_json: bool) -> None:
    """Tell for the one checkpoint at PATH which rule said what: format, step, ranks, shards, commit marker, findings,
    status, whether training can be resumed from it, and, in a folder of few steps, what those beside it say of it.

    Exit 0 whatever the verdict is. Exit 3: there is no such path or no checkpoint; 1: it cannot be read; 2: PATH holds
    several checkpoints.
    """
    store = bucket_store(checked_place(path), endpoint_url)
    own, beside = compared(_only_one(path, store))
    (shard_map,) = proven([own], [own.path], small_files(store)).checkpoints
    lines = [*explain_checkpoint(shard_map), Line("Other steps", beside)]
    tensors = tensors_of(shard_map, text) if with_tensors else []
    if as_json:
        explanation = [{"heading": line.heading, "sentence": line.sentence} for line in lines]
        more = {"tensors": [tensor_json(tensor) for tensor in tensors]} if with_tensors else {}
        print_json({**checkpoint_json(shard_map), "explanation": explanation, **more})
        return
    click.echo(one_line(shard_map.path))
    shown = [*explanation_lines(lines), *(tensor_lines(tensors, text) if with_tensors else ())]
    for line_text in shown:
        click.echo(one_line(line_text))


def explanation_lines(lines: Sequence[Line]) -> list[str]:
    """The lines as a person reads them: each heading once, its sentences below."""
    shown = []
    for heading, group in groupby(lines, key=lambda line: line.heading):
        shown.extend(["", heading, *(f"  {line.sentence}" for line in group)])
    return shown


def _only_one(path: str, store: ObjectStore | None) -> ShardMap:
    place = checked_place(path)
    together = family_folder(place)
    if together is not None and not is_bucket(place) and not os.path.lexists(place):
        return read_checkpoint(place)
    listed_path = together if together and is_bucket(place) else path
    rules = () if is_bucket(place) else rules_beside(place)
    checkpoints = listed(listed_path, rules=rules, store=store).checkpoints
    own = [one for one in checkpoints if one.path == place] or list(checkpoints)
    if not own:
        raise CommandFailed(
            f"there is no checkpoint at {path}",
            hint="`muster inventory` shows what lies there",
            code=ExitCode.NOT_FOUND,
        )
    if len(own) > 1:
        hint = f"name one of them, such as {own[0].path}"
        raise CommandFailed(f"{path} holds {len(own)} checkpoints", hint=hint, code=ExitCode.USAGE)
    return own[0]
