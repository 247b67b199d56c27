"""This node's own way into buckets: credentials, region and endpoint from its environment, as `aws` finds them."""

from __future__ import annotations

from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import is_bucket
from muster_agent.storage.s3_client import S3Unavailable, connect
from muster_agent.tasks.context import TaskFailed


def stores_for(path: str) -> tuple[ObjectStore, ...]:
    """The client for a path in a bucket; none for any other. Raises TaskFailed."""
    if not is_bucket(path):
        return ()
    try:
        return (connect(),)
    except S3Unavailable as error:
        raise TaskFailed("storage_unreadable", f"{error}; {error.hint}") from error
