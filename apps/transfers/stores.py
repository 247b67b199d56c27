"""Clients of buckets for the workers. Credentials come from the worker's environment or files, as boto3 finds them; the
database holds none."""

from __future__ import annotations

from functools import lru_cache

from muster_agent.formats.places import is_bucket
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.protocol.stores import StoreAt
from muster_agent.storage.s3_client import S3Unavailable, connect_at
from muster_agent.storage.s3_writer import S3Writer


def store_for(path: str, at: StoreAt) -> S3Writer | None:
    """A client where the path lies in a bucket. Raises CopyTrouble where there are no usable credentials."""
    return _store(at) if is_bucket(path) else None


@lru_cache(maxsize=32)
def _store(at: StoreAt) -> S3Writer:
    """One for each worker process and store: making a client takes a tenth of a second."""
    try:
        return S3Writer.over(connect_at(at))
    except S3Unavailable as error:
        raise CopyTrouble("denied", f"{error}; {error.hint}") from error
