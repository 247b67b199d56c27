"""`muster seal`: record digests of every byte of a checkpoint."""

from __future__ import annotations

import click

from muster_agent.cli.bucket import bucket_store, checked_place, endpoint_option
from muster_agent.cli.finding_text import ProgressBar, say_findings
from muster_agent.cli.one_checkpoint import require_one_checkpoint
from muster_agent.cli.output import CommandFailed, ExitCode, human_bytes, print_json, printable
from muster_agent.formats.base import Severity
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound
from muster_agent.jobs.seal import seal as seal_checkpoint
from muster_agent.manifest.export import checksum_list
from muster_agent.manifest.model import manifest_id
from muster_agent.protocol.wire import SealBody


@click.command()
@click.argument("path")
@click.option("--no-write", is_flag=True, help="Compute the digests, but write no manifest beside the data.")
@click.option("--checksums", is_flag=True, help="Print the list that `xxh128sum -c` checks inside the checkpoint.")
@endpoint_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def seal(path: str, no_write: bool, checksums: bool, endpoint_url: str | None, as_json: bool) -> None:
    """Read every byte of the complete checkpoint at PATH, a folder, a file or s3://bucket/prefix, once and write its
    manifest beside it.

    A checkpoint that is not complete, that would run code when it is loaded, or that changes meanwhile, is refused:
    exit 7 where it is damaged or changed, 1 where its save has not ended.
    """
    store = bucket_store(checked_place(path), endpoint_url)
    require_one_checkpoint(path, store)
    bar = ProgressBar()
    try:
        body = seal_checkpoint(path, control=bar.control(), write_beside=not no_write, store=store)
    except CheckpointNotFound as error:
        raise CommandFailed(str(error), hint="check the path and the mount", code=ExitCode.NOT_FOUND) from error
    except RootUnreadable as error:
        raise CommandFailed(str(error), hint=error.hint) from error
    except FileExistsError as error:
        hint = "another seal was made meanwhile: run `muster verify` against it"
        raise CommandFailed(f"the manifest was not written: {error.strerror}", hint=hint) from error
    except OSError as error:
        where = "let the credentials write there (s3:PutObject)" if store else "check the space and the rights there"
        hint = f"{where}, or use --no-write"
        raise CommandFailed(f"the manifest cannot be written: {error}", hint=hint) from error
    finally:
        bar.clear()
    if as_json:
        print_json(_as_json(body, path))
    say_findings(body.findings)
    if body.manifest is None:
        damaged = any(found.severity == Severity.DAMAGE for found in body.findings)
        code = ExitCode.DAMAGE if damaged else ExitCode.ERROR
        raise CommandFailed(f"{path} was not sealed", hint="see the findings above", code=code)
    if checksums:
        click.echo(checksum_list(body.manifest), nl=False)
    elif not as_json:
        click.echo(_sentence(body, path))


def _as_json(body: SealBody, path: str) -> dict[str, object]:
    manifest = body.manifest
    return {
        "path": path,
        "manifest_id": manifest_id(manifest) if manifest else None,
        "manifest_path": body.manifest_path,
        "run": manifest.run if manifest else None,
        "step": manifest.step if manifest else None,
        "format": manifest.format if manifest else None,
        "shard_count": len(manifest.shards) if manifest else None,
        "total_bytes": manifest.total_bytes if manifest else None,
        "root_xxh3_128": manifest.root_xxh3_128 if manifest else None,
        "sealed_at": manifest.sealed_at if manifest else None,
        "seconds": body.seconds,
        "findings": body.findings,
    }


def _sentence(body: SealBody, path: str) -> str:
    assert body.manifest is not None
    size = human_bytes(body.manifest.total_bytes)
    where = f"manifest written to {body.manifest_path}" if body.manifest_path else "no manifest written"
    count = len(body.manifest.shards)
    shards = "1 shard" if count == 1 else f"{count} shards"
    return printable(
        f"sealed {path}: {shards}, {size} in {body.seconds:.2f} s\n  id {manifest_id(body.manifest)}\n  {where}"
    )
