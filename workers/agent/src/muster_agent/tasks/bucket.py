"""This node's way into buckets: credentials and region from its environment or files, as `aws` finds them, and so the
endpoint, where the tier names none."""

from __future__ import annotations

from muster_agent.formats.places import is_bucket
from muster_agent.protocol.stores import StoreAt
from muster_agent.storage.s3_client import S3Store, S3Unavailable, connect_at
from muster_agent.tasks.context import TaskFailed


def stores_for(path: str, at: StoreAt) -> tuple[S3Store, ...]:
    """The client for a path in a bucket; none for any other. Raises TaskFailed."""
    if not is_bucket(path):
        return ()
    try:
        return (connect_at(at),)
    except S3Unavailable as error:
        raise TaskFailed("storage_unreadable", f"{error}; {error.hint}") from error
