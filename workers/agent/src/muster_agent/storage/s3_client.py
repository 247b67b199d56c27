"""The client of object stores that speak S3, by boto3. Nothing else imports boto3, and this only once an s3:// path is
given."""

from __future__ import annotations

import base64
import errno
import hashlib
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from muster_agent.formats.object_store import BucketMissing, BucketRefused, Listing, ObjectSeen, UploadSeen
from muster_agent.formats.recorded import RecordedSum
from muster_agent.formats.tree import ARCHIVED
from muster_agent.protocol.stores import StoreAt
from muster_agent.storage.addresses import VARIABLE, AddressRefused, Networks, allowed_networks
from muster_agent.storage.s3_guard import judge_connections
from muster_agent.storage.s3_listing import list_below, list_in_turn
from muster_agent.storage.s3_pages import Page, page_of, take_raw, unix_ns
from muster_agent.storage.s3_sums import Head, etag_of, sums_of

ATTEMPTS = 6
FIRST_WAIT_SECONDS = 0.2
"""Doubled after each attempt; all together about six seconds."""
CONNECT_SECONDS, READ_SECONDS = 10, 60
_PASSING_CODES = frozenset({"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests"})
_NOT_OFFERED_CODES = frozenset({"InvalidRequest", "InvalidArgument", "NotImplemented"})
"""What stores answer to a header that they do not know."""
_KEY_HINT = "check the credentials (AWS_ACCESS_KEY_ID and the like, or AWS_PROFILE), as the `aws` command uses them"
_RIGHT_HINT = "let them list the bucket and read its objects (s3:ListBucket, s3:GetObject)"

_ELSE = "somebody else wrote it meanwhile"

_T = TypeVar("_T")


class S3Unavailable(Exception):
    """No client can be made; `hint` says what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


class _Short(Exception):
    """An answer ended before its time."""


def connect(endpoint_url: str | None = None) -> S3Store:
    """A client with the environment's credentials, profile, region and endpoint, as boto3 finds them; `endpoint_url` is
    this host's own word for another one. Raises S3Unavailable."""
    return S3Store(_client(endpoint_url, None))


def connect_at(at: StoreAt) -> S3Store:
    """A client for a tier's bucket. An endpoint that the control plane names is only reached at addresses that may be
    (`storage.addresses`). Raises S3Unavailable."""
    if not at.endpoint_url:
        return S3Store(_client(None, at.profile or None))
    try:
        networks = allowed_networks()
    except ValueError as error:
        raise S3Unavailable(f"{VARIABLE} is not valid: {error}", "write networks such as 10.0.0.0/8") from error
    client = _client(at.endpoint_url, at.profile or None, proxies={})
    judge_connections(client, networks)
    return S3Store(client, networks=networks)


def _client(endpoint_url: str | None, profile: str | None, **more: Any) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError:
        hint = "install it with `pip install 'muster-agent[s3]'`"
        raise S3Unavailable("reading from a bucket needs boto3, which is not installed", hint) from None
    config = Config(
        signature_version="s3v4",  # else URLs for an endpoint that is not Amazon's are signed as of old
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=16,
        # Every body goes with its MD5, which is signed and which the store compares: a SHA-256 of it beside that would
        # cost as much as sending it.
        s3={"payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **more,
    )
    try:
        return boto3.session.Session(profile_name=profile).client(
            "s3", endpoint_url=endpoint_url or None, config=config
        )
    except (BotoCoreError, ValueError) as error:
        raise S3Unavailable(f"no client for the bucket could be made: {error}", _KEY_HINT) from error


class S3Store:
    """See `object_store.ObjectStore`. `client` is boto3's, which threads may share. `networks`: beside public addresses
    the only ones that may be connected to; None where this host's own configuration says where it goes."""

    def __init__(
        self, client: Any, *, first_wait_seconds: float = FIRST_WAIT_SECONDS, networks: Networks | None = None
    ) -> None:
        self._client, self.first_wait_seconds, self.networks = client, first_wait_seconds, networks
        take_raw(client)

    def objects(self, bucket: str, prefix: str, *, one_level: bool, check: Callable[[], None]) -> Listing:
        """See `ObjectStore.objects`."""
        asked = {"Bucket": bucket, "Prefix": prefix, "OptionalObjectAttributes": ["RestoreStatus"]}
        if one_level:
            return list_in_turn(self._page, {**asked, "Delimiter": "/"}, check)
        return list_below(self._page, asked, check)

    def _page(self, asked: dict[str, Any]) -> Page:
        return self._tried(lambda: page_of(self._client.list_objects_v2(**asked)))

    def first(self, bucket: str, prefix: str) -> ObjectSeen | None:
        """See `ObjectStore.first`."""
        asked = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": 1, "OptionalObjectAttributes": ["RestoreStatus"]}
        found = [one for one in self._page(asked).objects if one.key.startswith(prefix)]
        return found[0] if found else None

    def uploads(self, bucket: str, prefix: str) -> list[UploadSeen]:
        """See `ObjectStore.uploads`."""
        asked = {"Bucket": bucket, "Prefix": prefix}
        marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        return [
            UploadSeen(one["Key"], unix_ns(one["Initiated"]))
            for page in self._pages(self._client.list_multipart_uploads, asked, marks)
            for one in page.get("Uploads", ())
            if one["Key"].startswith(prefix) and "Initiated" in one
        ]

    def read(self, bucket: str, key: str, offset_bytes: int, length_bytes: int, etag: str) -> tuple[bytes, str]:
        """See `ObjectStore.read`."""
        last = offset_bytes + length_bytes - 1
        asked = {"Bucket": bucket, "Key": key, "Range": f"bytes={offset_bytes}-{last}"}
        if etag:
            asked["IfMatch"] = etag

        def get() -> tuple[bytes, str]:
            answer = self._client.get_object(**asked)
            with answer["Body"] as body:
                if offset_bytes and "ContentRange" not in answer:
                    raise OSError(errno.EOPNOTSUPP, "the store does not read ranges of objects")
                data = body.read(length_bytes)
            if len(data) != length_bytes:
                raise _Short(f"{len(data)} of {length_bytes} bytes came")
            if etag and answer.get("ETag", etag) != etag:
                raise OSError(errno.ESTALE, "the object was written again while it was read")
            return data, answer.get("ETag", "")

        return self._tried(get)

    def sums(self, bucket: str, key: str, etag: str, *, or_etag: bool = False) -> list[RecordedSum]:
        """See `ObjectStore.sums`."""
        asked = {"Bucket": bucket, "Key": key, "ChecksumMode": "ENABLED", **({"IfMatch": etag} if etag else {})}

        def head(**more: Any) -> Head:
            return self._tried(lambda: self._client.head_object(**asked, **more))

        def part(number: int) -> Head:
            return head(PartNumber=number)

        whole = head()
        return sums_of(whole, part) or (etag_of(whole, part) if or_etag else [])

    def write(self, bucket: str, key: str, data: bytes, *, only_new: bool, replaces: str = "") -> str:
        """See `ObjectStore.write`. The store compares the body with its MD5, which every store does, before it keeps
        it; newer check sums are refused by some, over TLS even by those that take them over HTTP."""
        md5 = hashlib.md5(data, usedforsecurity=False)
        asked: dict[str, Any] = {"Bucket": bucket, "Key": key, "Body": data}
        asked["ContentMD5"] = base64.b64encode(md5.digest()).decode()
        if not only_new and not replaces:
            return self._put(asked)
        if only_new and self._at(bucket, key) is not None:
            raise FileExistsError(errno.EEXIST, _ELSE, key)
        try:
            return self._put({**asked, **({"IfNoneMatch": "*"} if only_new else {"IfMatch": replaces})})
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return self._put(asked)
            seen = self._at(bucket, key) if error.errno in (errno.ESTALE, errno.ENOENT) else None
            if seen is None:
                raise
        if seen.etag.strip('"') == md5.hexdigest():
            return seen.etag  # its own, where an answer was lost; equal to it in any case
        if replaces and seen.etag == replaces:
            return self._put(asked)  # Ceph 16 refuses the condition whatever its value
        raise FileExistsError(errno.EEXIST, _ELSE, key)

    def _put(self, asked: dict[str, Any]) -> str:
        return self._tried(lambda: str(self._client.put_object(**asked)["ETag"]))

    def _at(self, bucket: str, key: str) -> ObjectSeen | None:
        seen = self.first(bucket, key)
        return seen if seen is not None and seen.key == key else None

    def signed_url(self, bucket: str, key: str, life_seconds: int) -> str:
        """See `ObjectStore.signed_url`."""
        try:
            asked = {"Bucket": bucket, "Key": key}
            return str(self._client.generate_presigned_url("get_object", asked, life_seconds))
        except Exception as error:
            raise _os_error(error) from error

    def _pages(self, ask: Callable[..., Any], asked: dict[str, Any], marks: dict[str, str]) -> Iterator[dict[str, Any]]:
        """All pages, of whatever size the store gives. A store that goes in a circle is an error, not a listing."""
        seen: set[tuple[str, ...]] = set()
        more: dict[str, Any] = {}
        while True:
            page = self._tried(partial(ask, **asked, **more))
            yield page
            if not page.get("IsTruncated"):
                return
            more = {name: page[mark] for name, mark in marks.items() if page.get(mark)}
            token = tuple(map(str, more.values()))
            if not token or token in seen:
                raise OSError(errno.EIO, "the store says that its listing goes on, but not where")
            seen.add(token)

    def _tried(self, ask: Callable[[], _T]) -> _T:
        """Asked again, ever later, while the trouble may pass. Raises OSError."""
        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except Exception as error:
                met = _os_error(error)
                if met.errno != errno.EAGAIN:
                    raise met from error
                if attempt + 1 == ATTEMPTS:
                    raise OSError(errno.EIO, f"{met.strerror}, {ATTEMPTS} times") from error
            time.sleep(self.first_wait_seconds * 2**attempt * random.uniform(0.75, 1.25))
        raise AssertionError


def _os_error(error: Exception) -> OSError:
    """The error in the operating system's terms; EAGAIN where the trouble may pass."""
    from botocore import exceptions as met
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError

    refused = _refused(error)
    if refused is not None:
        return refused
    if isinstance(error, met.ClientError):
        return _answered(error.response)
    if isinstance(error, (met.NoCredentialsError, met.PartialCredentialsError, met.CredentialRetrievalError)):
        return BucketRefused(errno.EACCES, f"there are no usable credentials ({error})", _KEY_HINT)
    if isinstance(error, met.SSLError) and "certificate" in str(error).lower():
        text = "the store's certificate is not trusted: name its CA's file in AWS_CA_BUNDLE"
        return OSError(errno.EPROTO, text)
    if isinstance(
        error, (met.ConnectionError, met.HTTPClientError, ResponseParserError, met.IncompleteReadError, HTTPError)
    ):
        return OSError(errno.EAGAIN, f"the store did not answer in full ({type(error).__name__})")
    if isinstance(error, _Short):
        return OSError(errno.EAGAIN, f"the answer was cut short: {error}")
    if isinstance(error, met.BotoCoreError):
        return OSError(errno.EINVAL, f"the request could not be made ({error})")
    if isinstance(error, OSError) and error.errno in (errno.ESTALE, errno.EOPNOTSUPP, errno.EAGAIN):
        return error
    if isinstance(error, OSError):
        return OSError(errno.EAGAIN, f"the connection failed ({type(error).__name__})")
    raise error


def _refused(error: BaseException | None) -> OSError | None:
    """The guard's word, however deep the libraries have wrapped it."""
    while error is not None:
        if isinstance(error, AddressRefused):
            hint = f"allow that network in {VARIABLE} where the worker or the agent runs, or correct the tier"
            return BucketRefused(errno.EACCES, str(error.strerror), hint)
        error = error.__cause__ or error.__context__
    return None


def _answered(response: Any) -> OSError:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(response.get("Error", {}).get("Code", status))[:80]
    if code in _PASSING_CODES or status in (429, 500, 502, 503, 504):
        return OSError(errno.EAGAIN, f"the store answered {status} {code}")
    if code == "InvalidObjectState":
        return OSError(ARCHIVED, "it lies in an archive class")
    if code == "NoSuchBucket":
        return BucketMissing(errno.ENOENT, "there is no such bucket")
    if status in (401, 403):
        hint = _RIGHT_HINT if code in ("AccessDenied", "403") else _KEY_HINT
        return BucketRefused(errno.EACCES, f"the store refused these credentials ({code})", hint)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, f"the store does not have it ({code})")
    if code == "BadDigest":
        return OSError(errno.EAGAIN, "what the store received is not what was sent")
    if status == 501 or (status == 400 and code in _NOT_OFFERED_CODES):
        return OSError(errno.EOPNOTSUPP, f"the store does not offer it ({code})")
    if status in (409, 412, 416):
        return OSError(errno.ESTALE, "the object was written again after it was listed")
    return OSError(errno.EIO, f"the store answered {status} {code}")
