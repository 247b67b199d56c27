"""Paths in buckets at the command's edge: which commands take them, and the client behind them."""

from __future__ import annotations

import click

from muster_agent.cli.output import CommandFailed, ExitCode
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import PlaceInvalid, is_bucket, place_of
from muster_agent.storage.small_files import POSIX_FILES, BucketFiles, SmallFiles

endpoint_option = click.option(
    "--endpoint-url",
    metavar="URL",
    help="Where the bucket of an s3:// path is served; else AWS_ENDPOINT_URL, the profile's, or Amazon's.",
)


def checked_place(path: str) -> str:
    """The absolute path, on a file system or in a bucket."""
    try:
        return place_of(path)
    except PlaceInvalid as invalid:
        hint = "name a folder, or a bucket as s3://bucket/prefix"
        raise CommandFailed(str(invalid), hint=hint, code=ExitCode.USAGE) from None


def bucket_store(place: str, endpoint_url: str | None) -> ObjectStore | None:
    """The client for a path in a bucket; None for any other."""
    if not is_bucket(place):
        return None
    from muster_agent.storage.s3_client import S3Unavailable, connect

    try:
        return connect(endpoint_url)
    except S3Unavailable as error:
        raise CommandFailed(str(error), hint=error.hint) from None


def small_files(store: ObjectStore | None) -> SmallFiles:
    """Where Muster's own files beside checkpoints are read and written."""
    return POSIX_FILES if store is None else BucketFiles(store)
