"""`muster verify`: compare a checkpoint with its manifest."""

from __future__ import annotations

from typing import NoReturn

import click

from muster_agent.cli.bucket import bucket_store, checked_place, endpoint_option
from muster_agent.cli.finding_text import ProgressBar, say_findings
from muster_agent.cli.one_checkpoint import require_one_checkpoint
from muster_agent.cli.output import CommandFailed, ExitCode, human_bytes, human_rate, print_json, printable
from muster_agent.cli.verdict_note import leave_verdict, look_before
from muster_agent.formats.base import Severity
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound, CheckpointPlace, place_at
from muster_agent.jobs.own_sums import check_own_sums
from muster_agent.jobs.verify import verify as verify_checkpoint
from muster_agent.manifest.beside import ManifestUnreadable, beside_path, read_beside
from muster_agent.manifest.model import Manifest, manifest_id
from muster_agent.manifest.rewrites import CHANGED
from muster_agent.manifest.sampling import Sample, detection_probability
from muster_agent.protocol.wire import VerifyBody


@click.command()
@click.argument("path")
@click.option(
    "--sample",
    "sample_ratio",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the chunks to read; sizes are always compared.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses the sample.")
@click.option(
    "--turn",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="With one seed, each turn reads other chunks; 1/SAMPLE turns in a row read all.",
)
@click.option(
    "--through-cache",
    is_flag=True,
    help="Take what this node's memory holds from there: faster, but damage on the storage below it stays unseen.",
)
@click.option("--no-write", is_flag=True, help="Leave no verdict beside the data for `muster resume-point`.")
@endpoint_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def verify(
    path: str,
    sample_ratio: float,
    seed: int,
    turn: int,
    through_cache: bool,
    no_write: bool,
    endpoint_url: str | None,
    as_json: bool,
) -> None:
    """Read the sealed checkpoint at PATH again and name any damage by shard, byte range and tensor.

    The verdict is left beside the data, where `muster resume-point` finds it.

    Exit 0: every byte read is equal; 7: damage; 1: written again since it was sealed, or something could not be read;
    3: no checkpoint or no manifest. One that was never sealed is held against the check sums that its format carries
    itself (7 where they differ); that proves nothing for the bytes which have none.
    """
    store = bucket_store(checked_place(path), endpoint_url)
    require_one_checkpoint(path, store)
    place = _place(path, store)
    manifest = _manifest(place)
    if manifest is None:
        _check_unsealed(path, place, store, as_json=as_json)
    before = look_before(place, manifest)
    bar = ProgressBar()
    try:
        body = verify_checkpoint(
            path,
            manifest,
            sample=Sample(sample_ratio, seed, turn),
            control=bar.control(),
            through_cache=through_cache,
            store=store,
        )
    finally:
        bar.clear()
    if as_json:
        print_json(
            {"path": path, "manifest_id": manifest_id(manifest), "sealed_at": manifest.sealed_at, **_fields(body)}
        )
    else:
        click.echo(_sentence(body, path, manifest, is_sample=sample_ratio < 1))
    say_findings(body.findings)
    if not no_write:
        leave_verdict(before, verified=body.verified, sample_ratio=sample_ratio, findings=body.findings)
    if body.verified is False:
        raise SystemExit(int(ExitCode.DAMAGE))
    if _was_written_again(body):
        message = f"{path} was written again since it was sealed, so this seal says nothing about its bytes"
        hint = "`muster seal` seals it again if that save was meant; if nobody saved, treat it as damage"
        raise CommandFailed(message, hint=hint)
    if body.verified is None:
        raise CommandFailed(f"not every byte of {path} could be looked at", hint="see the findings above")


def _check_unsealed(path: str, place: CheckpointPlace, store: ObjectStore | None, *, as_json: bool) -> NoReturn:
    """What can be told without a seal."""
    bar = ProgressBar()
    try:
        own = check_own_sums(path, control=bar.control(), store=store)
    finally:
        bar.clear()
    if as_json:
        fields = {"verified": False if own.findings else None, "checked_bytes": own.checked_bytes}
        print_json({"path": path, "manifest_id": None, **fields, "seconds": own.seconds, "findings": own.findings})
    say_findings(own.findings)
    if any(found.severity is Severity.DAMAGE for found in own.findings):
        raise SystemExit(int(ExitCode.DAMAGE))
    message = f"{path} was never sealed: there is no {beside_path(place.path, place.files)}"
    if own.checked_bytes:
        part = f"{human_bytes(own.checked_bytes)} of {human_bytes(own.total_bytes)}"
        message += f"; {part} agree with the check sums that its format or its bucket carries"
    raise CommandFailed(message, hint="`muster seal` records its digests", code=ExitCode.NOT_FOUND)


def _place(path: str, store: ObjectStore | None) -> CheckpointPlace:
    try:
        place = place_at(path, store)
        place.require()
    except CheckpointNotFound as error:
        raise CommandFailed(str(error), hint="check the path and the mount", code=ExitCode.NOT_FOUND) from error
    except RootUnreadable as error:
        raise CommandFailed(str(error), hint=error.hint) from error
    return place


def _manifest(place: CheckpointPlace) -> Manifest | None:
    try:
        return read_beside(place.path, place.files)
    except ManifestUnreadable as error:
        raise CommandFailed(error.finding.detail, hint=error.finding.cure) from error


def _was_written_again(body: VerifyBody) -> bool:
    return body.verified is None and any(found.code == CHANGED for found in body.findings)


def _fields(body: VerifyBody) -> dict[str, object]:
    return {
        "verified": body.verified,
        "checked_bytes": body.checked_bytes,
        "checked_chunks": body.checked_chunks,
        "total_chunks": body.total_chunks,
        "seconds": body.seconds,
        "findings": body.findings,
    }


def _sentence(body: VerifyBody, path: str, manifest: Manifest, *, is_sample: bool) -> str:
    open_word = "written again" if _was_written_again(body) else "not decidable"
    words = {True: "unchanged", False: "DAMAGED", None: open_word}
    rate = body.checked_bytes / body.seconds if body.seconds else 0.0
    text = (
        f"{path}: {words[body.verified]} since sealing at {manifest.sealed_at}; read {human_bytes(body.checked_bytes)} "
        f"({body.checked_chunks} of {body.total_chunks} chunks) in {body.seconds:.2f} s, {human_rate(rate)}"
    )
    if is_sample and 0 < body.checked_chunks < body.total_chunks:
        chance = detection_probability(body.total_chunks, body.checked_chunks)
        text += f"\n  a sample this large finds one damaged chunk with a chance of {chance:.1%}"
    return printable(text)
