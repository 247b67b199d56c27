"""Clients of buckets for the workers. Credentials and endpoint come from the worker's environment or profile, as boto3
finds them; the database holds neither."""

from __future__ import annotations

from functools import cache

from muster_agent.formats.places import is_bucket
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.storage.s3_client import S3Unavailable, connect
from muster_agent.storage.s3_writer import S3Writer


def store_for(path: str) -> S3Writer | None:
    """A client where the path lies in a bucket. Raises CopyTrouble where there are no usable credentials."""
    return _store() if is_bucket(path) else None


@cache
def _store() -> S3Writer:
    """One for each worker process: making a client takes a tenth of a second."""
    try:
        return S3Writer.over(connect())
    except S3Unavailable as error:
        raise CopyTrouble("denied", f"{error}; {error.hint}") from error
