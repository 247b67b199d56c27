"""What goes wrong between a real store and the commands, scripted by a proxy between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster_agent.storage import s3_client, s3_source

from tests.agent.cli.test_bucket_seal import MANIFEST, a_step, muster
from tests.servers.fault_proxy import Asked, Fault, FaultProxy, fault_proxy, gets, lists
from tests.servers.s3 import S3Server

SHARD = "rank-00001-of-00004.safetensors"


@pytest.fixture
def proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """In front of the store, where the environment says that the store is."""
    monkeypatch.setattr(s3_client, "ATTEMPTS", 3)
    monkeypatch.setattr(s3_source, "ATTEMPTS", 3)
    monkeypatch.setattr(s3_client, "FIRST_WAIT_SECONDS", 0.01)
    with fault_proxy(s3_server.url) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


@pytest.fixture
def place(s3_server: S3Server, tmp_path: Path) -> str:
    return a_step(s3_server, tmp_path)


def writes(asked: Asked) -> bool:
    return asked.kind == "put"


@pytest.mark.parametrize("command", ["inventory", "resume-point", "explain", "seal", "verify"])
def test_a_store_that_only_throttles_is_an_error_and_never_empty(proxy: FaultProxy, place: str, command: str) -> None:
    proxy.add(Fault(lists, status=503))
    done = muster(command, place)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "SlowDown" in done.stderr
    assert "what to do" in done.stderr


@pytest.mark.parametrize(
    "fault",
    [{"status": 503}, {"cut_after_bytes": 1000}, {"reset_after_bytes": 1000}, {"length_off_by_bytes": 9}],
    ids=str,
)
def test_trouble_that_passes_is_not_seen(proxy: FaultProxy, place: str, fault: dict[str, int]) -> None:
    met = proxy.add(Fault(gets(".safetensors"), times=2, **fault))  # type: ignore[arg-type]
    listed = proxy.add(Fault(lists, times=1, status=503))
    assert muster("seal", place).exit_code == 0
    assert (met.met, listed.met) == (2, 1)
    assert muster("verify", place).exit_code == 0


@pytest.mark.parametrize("fault", [{"status": 503}, {"cut_after_bytes": 0}, {"reset_after_bytes": 0}], ids=str)
def test_one_object_that_cannot_be_read_is_named_and_proves_nothing(
    proxy: FaultProxy, place: str, fault: dict[str, int]
) -> None:
    assert muster("seal", place).exit_code == 0
    proxy.add(Fault(gets(SHARD), **fault))  # type: ignore[arg-type]
    done = muster("verify", place, "--json")
    assert (done.exit_code, json.loads(done.stdout)["verified"]) == (1, None)
    assert [(one["code"], one["path"]) for one in json.loads(done.stdout)["findings"]] == [("listing_failed", SHARD)]


def test_what_cannot_be_read_is_not_sealed(proxy: FaultProxy, place: str, s3_server: S3Server) -> None:
    proxy.add(Fault(gets(SHARD), skip=1, cut_after_bytes=10))
    done = muster("seal", place)
    assert done.exit_code in (1, 7)
    assert SHARD in done.stderr
    assert not s3_server.keys(f"run/step-00000010/{MANIFEST}")


def test_an_object_written_again_during_the_seal_is_told(proxy: FaultProxy, place: str, s3_server: S3Server) -> None:
    key = f"run/step-00000010/{SHARD}"
    data = s3_server.get(key)[:-1] + b"!"
    # Its header is read twice before its data is asked for.
    proxy.add(Fault(gets(SHARD), skip=2, times=1, before=lambda: s3_server.put(key, data)))
    done = muster("seal", place)
    assert done.exit_code == 7
    assert f"{SHARD} was written again while it was read, so a save is still running" in done.stderr
    assert not s3_server.keys(f"run/step-00000010/{MANIFEST}")


def test_an_object_written_again_during_a_verification_is_told_and_is_no_damage(
    proxy: FaultProxy, place: str, s3_server: S3Server
) -> None:
    assert muster("seal", place).exit_code == 0
    key = f"run/step-00000010/{SHARD}"
    data = s3_server.get(key)[::-1]
    proxy.add(Fault(gets(SHARD), times=1, before=lambda: s3_server.put(key, data)))
    done = muster("verify", place)
    assert done.exit_code == 1
    assert "written again" in done.stderr
    assert not s3_server.keys("run/step-00000010/.muster-verify")


def test_an_archived_object_is_archived_and_not_damaged(proxy: FaultProxy, place: str, s3_server: S3Server) -> None:
    assert muster("seal", place).exit_code == 0
    key = f"run/step-00000010/{SHARD}"
    s3_server.client.copy_object(
        Bucket=s3_server.bucket,
        Key=key,
        CopySource={"Bucket": s3_server.bucket, "Key": key},
        StorageClass="GLACIER",
        MetadataDirective="REPLACE",
    )
    done = muster("verify", place, "--json")
    assert (done.exit_code, json.loads(done.stdout)["verified"]) == (1, None)
    assert [one["code"] for one in json.loads(done.stdout)["findings"]] == ["archived"]


def test_a_manifest_that_may_not_be_written_is_said(proxy: FaultProxy, place: str) -> None:
    proxy.add(Fault(writes, status=403, code="AccessDenied"))
    done = muster("seal", place)
    assert done.exit_code == 1
    assert "s3:PutObject" in done.stderr
    assert muster("seal", place, "--no-write").exit_code == 0


def test_a_lost_answer_to_a_write_is_not_taken_for_another_writer(proxy: FaultProxy, place: str) -> None:
    lost = proxy.add(Fault(writes, times=1, loses_answer=True))
    assert muster("seal", place).exit_code == 0
    assert lost.met == 1
    assert muster("verify", place).exit_code == 0


def test_a_store_without_conditional_writes_is_written_to_all_the_same(proxy: FaultProxy, place: str) -> None:
    refused = proxy.add(
        Fault(lambda one: writes(one) and "if-none-match" in one.headers, status=501, code="NotImplemented")
    )
    assert muster("seal", place).exit_code == 0
    assert refused.met == 1


def test_another_seal_meanwhile_is_told(proxy: FaultProxy, place: str, s3_server: S3Server) -> None:
    proxy.add(Fault(writes, times=1, before=lambda: s3_server.put(f"run/step-00000010/{MANIFEST}", b"{}")))
    done = muster("seal", place)
    assert done.exit_code == 1
    assert "meanwhile" in done.stderr
    assert s3_server.get(f"run/step-00000010/{MANIFEST}") == b"{}"
