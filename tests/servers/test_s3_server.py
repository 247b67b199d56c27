from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import urllib3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.servers import ceph
from tests.servers.fault_proxy import Fault, FaultProxy, fault_proxy, gets, lists
from tests.servers.s3 import S3Server, require_programs

DATA = bytes(range(256)) * 1024


def test_what_is_stored_comes_back_and_is_listed(any_s3_server: S3Server) -> None:
    etag = any_s3_server.put("runs/a/x.bin", DATA)
    assert any_s3_server.get("runs/a/x.bin") == DATA
    assert any_s3_server.keys("runs/") == ["runs/a/x.bin"]
    ranged = any_s3_server.client.get_object(
        Bucket=any_s3_server.bucket, Key="runs/a/x.bin", Range="bytes=256-511", IfMatch=etag
    )
    assert ranged["Body"].read() == bytes(range(256))


def test_each_test_has_a_bucket_of_its_own(s3_server: S3Server, s3_tls_server: S3Server) -> None:
    assert s3_server.bucket != s3_tls_server.bucket
    assert s3_tls_server.url.startswith("https://")


def test_a_wrong_key_is_refused(s3_server: S3Server) -> None:
    wrong = boto3.client("s3", endpoint_url=s3_server.url, aws_access_key_id="no", aws_secret_access_key="no")
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        wrong.list_objects_v2(Bucket=s3_server.bucket)


def test_a_client_that_does_not_know_the_certificate_is_told(
    s3_tls_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE")
    with pytest.raises(BotoCoreError, match="certificate"):
        boto3.client("s3").list_objects_v2(Bucket=s3_tls_server.bucket)


@pytest.mark.parametrize(("in_ci", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_without_the_programs_tests_are_skipped_by_name_and_fail_in_ci(
    in_ci: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceph, "PROGRAMS", ("no-such-gateway",))
    monkeypatch.setenv("MUSTER_CI", in_ci)
    with pytest.raises(outcome, match="the program no-such-gateway is missing: install .*radosgw"):
        require_programs()


def test_the_server_ends_with_its_last_user_however_that_ended(s3_endpoints: ceph.Endpoints, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    code = "import sys, time, pathlib; from tests.servers import ceph\n"
    code += "with ceph.joined(pathlib.Path(sys.argv[1])):\n print('in', flush=True); time.sleep(600)"
    root = Path(__file__).resolve().parents[2]
    users = [
        subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=root, stdout=subprocess.PIPE) for _ in range(2)
    ]
    for user in users:
        assert user.stdout is not None
        assert user.stdout.readline() == b"in\n"
    state = ceph._wait_for_state(folder)
    assert len({state.url, s3_endpoints.url}) == 2
    os.kill(users[0].pid, signal.SIGKILL)
    users[0].wait()
    time.sleep(1)
    assert urllib3.request("GET", state.url).status == 200
    users[1].terminate()
    users[1].wait()
    ends_at = time.monotonic() + 30
    while folder.exists() and time.monotonic() < ends_at:
        time.sleep(0.1)
    assert not folder.exists()
    with pytest.raises(urllib3.exceptions.HTTPError):
        urllib3.request("GET", state.url, retries=False)


# -- the proxy that breaks things --------------------------------------------------------------------------------------
@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    s3_server.put("runs/x.bin", DATA)
    with fault_proxy(s3_server.url) as running:
        yield running


def once(proxy: FaultProxy) -> object:
    config = Config(retries={"total_max_attempts": 1}, read_timeout=2, request_checksum_calculation="when_required")
    return boto3.client("s3", endpoint_url=proxy.url, config=config)


def read(proxy: FaultProxy, server: S3Server) -> bytes:
    got = once(proxy).get_object(Bucket=server.bucket, Key="runs/x.bin")  # type: ignore[attr-defined]
    return bytes(got["Body"].read())


def test_without_a_fault_everything_passes(proxy: FaultProxy, s3_server: S3Server) -> None:
    assert read(proxy, s3_server) == DATA
    once(proxy).put_object(Bucket=s3_server.bucket, Key="runs/y.bin", Body=DATA)  # type: ignore[attr-defined]
    assert s3_server.get("runs/y.bin") == DATA
    assert [one.kind for one in proxy.asked] == ["get", "put"]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"cut_after_bytes": 1000},
        {"reset_after_bytes": 100_000},
        {"length_off_by_bytes": 5},
        {"wait_seconds": 3},
    ],
    ids=lambda fault: next(iter(fault)),
)
def test_a_fault_happens_as_often_as_it_should(proxy: FaultProxy, s3_server: S3Server, fault: dict[str, int]) -> None:
    added = proxy.add(Fault(gets("x.bin"), times=1, skip=1, **fault))  # type: ignore[arg-type]
    assert read(proxy, s3_server) == DATA
    with pytest.raises((ClientError, BotoCoreError)):
        read(proxy, s3_server)
    assert read(proxy, s3_server) == DATA
    assert added.met == 1


def test_a_byte_arrives_wrong(proxy: FaultProxy, s3_server: S3Server) -> None:
    proxy.add(Fault(gets(), flip_byte=70_000))
    got = read(proxy, s3_server)
    assert [at for at in range(len(DATA)) if got[at] != DATA[at]] == [70_000]
    proxy.mend()
    assert read(proxy, s3_server) == DATA


def test_listings_and_reads_are_told_apart(proxy: FaultProxy, s3_server: S3Server) -> None:
    proxy.add(Fault(lists, status=503))
    with pytest.raises(ClientError, match="SlowDown"):
        once(proxy).list_objects_v2(Bucket=s3_server.bucket)  # type: ignore[attr-defined]
    assert read(proxy, s3_server) == DATA
