"""Signed URLs of objects: made on this node with its own credentials, or made by the control plane and given."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from muster_agent.storage.addresses import EVERYWHERE, Networks

LIFE_SECONDS = 900
"""How long a URL that is signed here may be used; a read begins within `_FRESH_SECONDS` of its signature."""
_FRESH_SECONDS = 300


class ObjectUrls(Protocol):
    """Where objects are read. Thread-safe."""

    signed_by: str
    """`node` or `control_plane`."""
    networks: Networks | None
    """Where these URLs may lead beside public addresses; None: anywhere."""

    def count(self, key: str) -> int:
        """At how many endpoints the object is served."""
        ...

    def url(self, key: str, endpoint: int, *, again: bool = False) -> str | None:
        """A URL of the object at that endpoint; with `again` a newly signed one, or None where there is no other.
        Raises OSError where none can be made."""
        ...


class Signer(Protocol):
    """What signs for one endpoint: an `s3_client.S3Store`."""

    networks: Networks | None

    def signed_url(self, bucket: str, key: str, life_seconds: int) -> str: ...


class NodeSigned:
    """Signed by botocore with this host's credentials, once per object and endpoint for minutes, not per range."""

    signed_by = "node"

    def __init__(self, signers: Sequence[Signer], bucket: str, *, life_seconds: int = LIFE_SECONDS) -> None:
        self._signers, self._bucket, self._life_seconds = signers, bucket, life_seconds
        self.networks = signers[0].networks if signers else None
        self._made: dict[tuple[str, int], tuple[float, str]] = {}
        self._lock = threading.Lock()

    def count(self, key: str) -> int:
        """See `ObjectUrls`."""
        return len(self._signers)

    def url(self, key: str, endpoint: int, *, again: bool = False) -> str | None:
        """See `ObjectUrls`."""
        with self._lock:
            made_at, url = self._made.get((key, endpoint), (0.0, ""))
            if again or not url or time.monotonic() - made_at > _FRESH_SECONDS:
                url = self._signers[endpoint].signed_url(self._bucket, key, self._life_seconds)
                self._made[key, endpoint] = time.monotonic(), url
            return url


class GivenUrls:
    """Made by the control plane: this node needs no credentials, and cannot make others. By key, one per endpoint. They
    lead to private stores too, but to no metadata service."""

    signed_by = "control_plane"
    networks: Networks | None = EVERYWHERE

    def __init__(self, urls: Mapping[str, Sequence[str]]) -> None:
        self._urls = urls

    def count(self, key: str) -> int:
        """See `ObjectUrls`."""
        return len(self._urls.get(key, ()))

    def url(self, key: str, endpoint: int, *, again: bool = False) -> str | None:
        """See `ObjectUrls`."""
        return None if again else self._urls[key][endpoint]
