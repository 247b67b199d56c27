"""Signed URLs of objects: made on this node with its own credentials, or made by the control plane and given."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from muster_agent.formats.object_store import BucketRefused

LIFE_SECONDS = 900
"""How long a URL that is signed here may be used; a read begins within `_FRESH_SECONDS` of its signature."""
_FRESH_SECONDS = 300
_CREDENTIALS_HINT = "check AWS_ACCESS_KEY_ID and the like, or AWS_PROFILE, as the `aws` command uses them"


class ObjectUrls(Protocol):
    """Where objects are read. Thread-safe."""

    signed_by: str
    """`node` or `control_plane`."""

    def count(self, key: str) -> int:
        """At how many endpoints the object is served."""
        ...

    def url(self, key: str, endpoint: int, *, again: bool = False) -> str | None:
        """A URL of the object at that endpoint; with `again` a newly signed one, or None where there is no other.
        Raises OSError where none can be made."""
        ...


class NodeSigned:
    """Signed by botocore with this node's credentials, once per object and endpoint for minutes, not per range.
    `clients` are boto3's, one per endpoint."""

    signed_by = "node"

    def __init__(self, clients: Sequence[Any], bucket: str) -> None:
        self._clients, self._bucket = clients, bucket
        self._made: dict[tuple[str, int], tuple[float, str]] = {}
        self._lock = threading.Lock()

    def count(self, key: str) -> int:
        """See `ObjectUrls`."""
        return len(self._clients)

    def url(self, key: str, endpoint: int, *, again: bool = False) -> str | None:
        """See `ObjectUrls`."""
        with self._lock:
            made_at, url = self._made.get((key, endpoint), (0.0, ""))
            if again or not url or time.monotonic() - made_at > _FRESH_SECONDS:
                url = self._sign(key, endpoint)
                self._made[key, endpoint] = time.monotonic(), url
            return url

    def _sign(self, key: str, endpoint: int) -> str:
        from botocore.exceptions import BotoCoreError

        try:
            params = {"Bucket": self._bucket, "Key": key}
            return str(self._clients[endpoint].generate_presigned_url("get_object", params, LIFE_SECONDS))
        except BotoCoreError as error:
            text = f"no request to the store could be signed ({error})"
            raise BucketRefused(errno.EACCES, text, _CREDENTIALS_HINT) from error


class GivenUrls:
    """Made by the control plane: this node needs no credentials, and cannot make others. By key, one per endpoint."""

    signed_by = "control_plane"

    def __init__(self, urls: Mapping[str, Sequence[str]]) -> None:
        self._urls = urls

    def count(self, key: str) -> int:
        """See `ObjectUrls`."""
        return len(self._urls.get(key, ()))

    def url(self, key: str, endpoint: int, *, again: bool = False) -> str | None:
        """See `ObjectUrls`."""
        return None if again else self._urls[key][endpoint]


def signing_clients(endpoint_urls: Sequence[str | None]) -> list[Any]:
    """One boto3 client per endpoint; None is the environment's, the profile's, or Amazon's. Raises S3Unavailable."""
    from muster_agent.storage.s3_client import S3Unavailable

    try:
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        hint = "install it with `pip install 'muster-agent[s3]'`"
        raise S3Unavailable("reading from a bucket needs boto3, which is not installed", hint) from None
    config = Config(signature_version="s3v4", connect_timeout=10, read_timeout=30, retries={"total_max_attempts": 2})
    try:
        session = Session()  # its own: the one that boto3 shares is not to be used from several threads
        return [session.client("s3", endpoint_url=url or None, config=config) for url in endpoint_urls or (None,)]
    except (BotoCoreError, ValueError) as error:
        raise S3Unavailable(f"no client for the bucket could be made: {error}", _CREDENTIALS_HINT) from error


def learn_region(client: Any, bucket: str) -> None:
    """Let the client find out in which region the bucket lies, so that its signatures are for that one."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client.head_bucket(Bucket=bucket)
    except (BotoCoreError, ClientError):
        return  # the first read will tell what is wrong, and the right to look at a bucket is not needed for it
