"""Fixtures with a real S3 server: `s3_server` over HTTP, `s3_tls_server` over TLS, each with a bucket of its own."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.servers import ceph

FIXTURES = frozenset({"s3_server", "s3_tls_server", "any_s3_server"})


@dataclass(frozen=True)
class S3Server:
    """One bucket on a running server, and a client of it. The process's environment holds the keys, so the product
    finds them as it would anywhere."""

    url: str
    bucket: str
    client: Any

    @property
    def place(self) -> str:
        """The bucket as a path."""
        return f"s3://{self.bucket}"

    def put(self, key: str, data: bytes, **how: Any) -> str:
        """Store one object; its ETag."""
        return str(self.client.put_object(Bucket=self.bucket, Key=key, Body=data, **how)["ETag"])

    def put_folder(self, folder: Path, prefix: str, **how: Any) -> str:
        """Store every file below the folder; the place of the copy. Links are not things that a bucket has."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes(), **how)
        return f"{self.place}/{prefix}"

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=key)


@pytest.fixture(scope="session")
def s3_endpoints() -> Iterator[ceph.Endpoints]:
    """The one server of the test run, shared with the other processes of it."""
    require_programs()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    with ceph.joined(Path(tempfile.gettempdir()) / f"mc-{run}") as endpoints:
        yield endpoints


def require_programs() -> None:
    """Skip, or fail in CI, where the server cannot be started here."""
    missing = ceph.missing_programs()
    if not missing:
        return
    reason = f"the program {missing[0]} is missing: install Debian's packages {ceph.PACKAGES}"
    if os.environ.get("MUSTER_CI") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def s3_server(s3_endpoints: ceph.Endpoints, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with _bucket(s3_endpoints, s3_endpoints.url, monkeypatch) as server:
        yield server


@pytest.fixture
def s3_tls_server(s3_endpoints: ceph.Endpoints, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with _bucket(s3_endpoints, s3_endpoints.tls_url, monkeypatch) as server:
        yield server


@pytest.fixture(params=["http", "tls"])
def any_s3_server(
    request: pytest.FixtureRequest, s3_endpoints: ceph.Endpoints, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3Server]:
    """The test runs over HTTP and again over TLS."""
    url = s3_endpoints.url if request.param == "http" else s3_endpoints.tls_url
    with _bucket(s3_endpoints, url, monkeypatch) as server:
        yield server


@contextlib.contextmanager
def _bucket(endpoints: ceph.Endpoints, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", endpoints.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", endpoints.secret_key)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CA_BUNDLE", endpoints.ca_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # Over TLS this gateway refuses the check sums that boto3 would send behind the body of every upload.
    config = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    client = boto3.client("s3", endpoint_url=url, config=config)
    server = S3Server(url, f"t-{uuid.uuid4().hex[:12]}", client)
    client.create_bucket(Bucket=server.bucket)
    yield server
    _remove(server)


def _remove(server: S3Server) -> None:
    """Everything in memory counts: versions and unfinished uploads too."""
    client, bucket = server.client, {"Bucket": server.bucket}
    for page in client.get_paginator("list_multipart_uploads").paginate(**bucket):
        for one in page.get("Uploads", ()):
            client.abort_multipart_upload(**bucket, Key=one["Key"], UploadId=one["UploadId"])
    for page in client.get_paginator("list_object_versions").paginate(**bucket):
        for one in [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]:
            client.delete_object(**bucket, Key=one["Key"], VersionId=one["VersionId"])
    client.delete_bucket(**bucket)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the server is for `make test ALL=1`: it takes a quarter of a minute to start."""
    for item in items:
        if FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.ceph)
            item.add_marker(pytest.mark.slow)
