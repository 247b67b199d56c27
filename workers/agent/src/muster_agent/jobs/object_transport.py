"""Objects of a bucket into host memory: the transport of a reload whose checkpoint lies in an object store."""

from __future__ import annotations

import os
from collections.abc import Sequence

from muster_agent.formats.places import bucket_and_key
from muster_agent.jobs.checkpoint_place import StatedShard
from muster_agent.jobs.transports import PathTaken
from muster_agent.protocol.results import Backend
from muster_agent.reload.backends import Choice
from muster_agent.reload.pace import READERS
from muster_agent.reload.reader import InPlace
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.base import ShardSource
from muster_agent.storage.s3_answers import ObjectPin, bare
from muster_agent.storage.s3_source import S3Reads
from muster_agent.storage.s3_urls import NodeSigned, ObjectUrls, Signer

_MOST_READERS = 32
"""With blocks of 4 MiB, 128 MiB of buffers. Each reader has one connection, and a store gives each only so much."""


class ObjectTransport:
    """See `transports.Transport`. One GET for each block, over the connection of its reader."""

    in_place: InPlace | None = None
    in_host_memory = True
    piece_bytes: int | None = None

    def __init__(self, urls: ObjectUrls, requested: str, choice: Choice) -> None:
        self._urls, self._choice = urls, choice
        is_as_asked = requested in ("auto", "host") or (requested == "host_bounce" and choice.bounce)
        self._missed = "" if is_as_asked else requested
        self._reads = S3Reads(urls)
        self.readers = min(_MOST_READERS, max(READERS, 2 * (os.cpu_count() or 1)))

    def open(self, shard: StatedShard) -> ShardSource:
        """See `Transport`. No request is made before the first read."""
        if shard.error is not None:
            raise shard.error
        return self._reads.open(
            bucket_and_key(shard.location)[1], ObjectPin(shard.size_bytes, bare(shard.etag)), shard.mtime_ns
        )

    def path_taken(self, totals: ReadTotals) -> PathTaken:
        """See `Transport`."""
        signer = "this node" if self._urls.signed_by == "node" else "the control plane"
        reason = f"the checkpoint lies in a bucket, so its objects were read by ranges, signed by {signer}"
        if self._missed:
            reason = f"{self._missed} was asked for, but {reason}"
        if self._choice.unreached:
            reason = f"{reason}; {self._choice.unreached}"
        return PathTaken(Backend.S3.value, reason, {"s3": self._reads.evidence()})

    def close(self) -> None:
        """See `Transport`."""
        self._reads.close()


def node_urls(place: str, stores: Sequence[Signer]) -> ObjectUrls:
    """Signed with this node's credentials, for each endpoint by its own client."""
    return NodeSigned(stores, bucket_and_key(place)[0])
