"""Copies into and out of buckets of a real store: parts in parallel, checked by the store, resumable, nothing left."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent.checkpoint_factory import write_checkpoint
from muster_agent.formats.base import Status
from muster_agent.jobs import copy as copying
from muster_agent.jobs import copy_s3
from muster_agent.jobs.checkpoint_place import place_at
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.copy import CopyJob, run_copy
from muster_agent.jobs.copy_posix import PosixTarget
from muster_agent.jobs.copy_s3 import S3Target
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.seal import seal
from muster_agent.jobs.verify import verify
from muster_agent.manifest.beside import read_beside
from muster_agent.manifest.model import CHUNK_BYTES, manifest_id
from muster_agent.protocol.copies import CopyCursor, CopyOrder
from muster_agent.storage import s3_client
from muster_agent.storage.s3_client import connect
from muster_agent.storage.s3_writer import S3Writer, Upload

from tests.agent.jobs.test_copy_job import StopAfter, files_of
from tests.servers.fault_proxy import Asked, Fault, FaultProxy, fault_proxy
from tests.servers.s3 import S3Server


class Bucket:
    """A folder tier with a checkpoint, and a bucket tier."""

    def __init__(self, tmp_path: Path, server: S3Server) -> None:
        self.server = server
        self.hot = tmp_path / "hot"
        self.source = write_checkpoint(self.hot / "llama", 100, world_size=2, rank_bytes=9_000_000)
        self.target = f"{server.place}/cold/llama/{self.source.name}"
        self.store = S3Writer.over(connect())

    def order(self, **changes: Any) -> CopyOrder:
        fields: dict[str, Any] = {
            "source": str(self.source),
            "source_root": str(self.hot),
            "target": self.target,
            "target_root": f"{self.server.place}/cold",
            "tag": "trf_1",
            "manifest": read_beside(str(self.source)),
            **changes,
        }
        return CopyOrder(**fields)

    def job(self, **changes: Any) -> CopyJob:
        order = self.order(**changes)
        return CopyJob(order, CopyCursor(), S3Target(order, self.store), store=self.store)

    def copy(self, **changes: Any) -> CopyCursor:
        order = self.order(**changes)
        return run_copy(order, S3Target(order, self.store), JobControl(), store=self.store)[0]

    def objects(self) -> dict[str, bytes]:
        prefix = f"cold/llama/{self.source.name}/"
        keys = [key for key in self.server.keys(prefix) if ".muster" not in key]
        return {key.removeprefix(prefix): self.server.get(key) for key in keys}

    def local(self) -> dict[str, bytes]:
        return {name: data for name, (data, _mtime, _mode) in files_of(self.source).items()}

    def require_clean(self) -> None:
        assert self.store.unfinished(self.server.bucket, "") == []


@pytest.fixture
def bucket(tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr(copy_s3, "PART_BYTES", 2 * CHUNK_BYTES)
    return Bucket(tmp_path, s3_server)


@pytest.mark.parametrize("proof", ["read_back", "checksum"])
def test_a_checkpoint_arrives_in_a_bucket_and_verifies_there(bucket: Bucket, proof: str) -> None:
    sealed = seal(str(bucket.source)).manifest
    cursor = bucket.copy(proof=proof)
    assert bucket.objects() == bucket.local()
    assert cursor.proved_by == ("read_back" if proof == "read_back" else "MD5 of every part")
    place = place_at(bucket.target, bucket.store)
    there = read_beside(bucket.target, place.files)
    assert there is not None and sealed is not None and there.root_xxh3_128 == sealed.root_xxh3_128
    assert place.read().status is Status.COMPLETE
    assert verify(bucket.target, there, store=bucket.store).verified is True
    bucket.require_clean()


def test_over_tls_and_what_was_not_sealed(tmp_path: Path, s3_tls_server: S3Server) -> None:
    bucket = Bucket(tmp_path, s3_tls_server)
    bucket.copy()
    there = read_beside(bucket.target, place_at(bucket.target, bucket.store).files)
    assert there is not None and verify(bucket.target, there, store=bucket.store).verified is True
    bucket.require_clean()


def test_and_comes_back_with_the_manifest_of_the_bucket(bucket: Bucket, tmp_path: Path) -> None:
    (bucket.source / "notes").mkdir()
    (bucket.source / "notes" / "why").write_text("x")
    (bucket.source / "empty").write_bytes(b"")
    seal(str(bucket.source))
    bucket.copy()
    there = read_beside(bucket.target, place_at(bucket.target, bucket.store).files)
    back = tmp_path / "back"
    back.mkdir()
    order = CopyOrder(
        source=bucket.target,
        source_root=f"{bucket.server.place}/cold",
        target=str(back / "llama" / bucket.source.name),
        target_root=str(back),
        tag="trf_2",
        manifest=there,
    )
    run_copy(order, PosixTarget(order), JobControl(), store=bucket.store)
    staged = Path(order.target)
    assert {name: data for name, (data, _t, _m) in files_of(staged).items()} == bucket.local()
    here = read_beside(str(staged))
    assert here is not None and there is not None and manifest_id(here) == manifest_id(there)
    assert verify(str(staged), here).verified is True


def test_nothing_is_to_be_seen_before_the_uploads_are_completed(bucket: Bucket) -> None:
    seal(str(bucket.source))
    job = bucket.job()
    job.look()
    job.survey()
    with pytest.raises(Cancelled):
        job.copy(StopAfter(6))
    assert bucket.objects() == {} and bucket.store.unfinished(bucket.server.bucket, "") != []
    job.discard()
    bucket.require_clean()


@pytest.mark.parametrize("sealed", [True, False])
def test_a_copy_in_many_slices_is_the_same_copy(bucket: Bucket, sealed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if sealed:
        seal(str(bucket.source))
    monkeypatch.setattr(copying, "UNIT_BYTES", 2 * CHUNK_BYTES)
    body, slices, source = msgspec.json.encode(CopyCursor()), 0, random.Random(5)
    order = bucket.order(threads=2)
    while True:
        cursor = msgspec.json.decode(body, type=CopyCursor)
        job = CopyJob(order, cursor, S3Target(order, bucket.store), store=bucket.store)
        slices += 1
        assert slices < 200
        try:
            job.look()
            job.survey()
            job.copy(StopAfter(source.randrange(5, 14)))
            job.prove(StopAfter(source.randrange(4, 9)))
            job.switch()
            break
        except Cancelled:
            body = msgspec.json.encode(job.cursor)
    assert slices > 2 and bucket.objects() == bucket.local()
    there = read_beside(bucket.target, place_at(bucket.target, bucket.store).files)
    assert there is not None and verify(bucket.target, there, store=bucket.store).verified is True
    bucket.require_clean()


def test_an_upload_that_a_crash_left_without_a_trace_is_aborted(bucket: Bucket) -> None:
    seal(str(bucket.source))
    key = f"cold/llama/{bucket.source.name}/rank-00000-of-00002.safetensors"
    bucket.store.begin(bucket.server.bucket, key)
    bucket.copy()
    bucket.require_clean()


def test_an_upload_to_a_sibling_whose_name_begins_alike_is_left_alone(bucket: Bucket) -> None:
    """step-10 is copied while another transfer is amid step-100."""
    seal(str(bucket.source))
    key = f"cold/llama/{bucket.source.name}0/rank-00000-of-00002.safetensors"
    theirs = bucket.store.begin(bucket.server.bucket, key)
    bucket.copy()
    assert bucket.store.unfinished(bucket.server.bucket, "") == [Upload(key, theirs)]


@pytest.fixture
def busy(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """Between the bucket's client and its store."""
    monkeypatch.setattr(s3_client, "ATTEMPTS", 2)
    with fault_proxy(bucket.server.url) as proxy:
        bucket.store = S3Writer.over(connect(proxy.url))
        bucket.store.first_wait_seconds = 0.01
        yield proxy


def completes(name: str) -> Callable[[Asked], bool]:
    return lambda asked: asked.kind == "complete" and asked.key.endswith(name)


def test_an_upload_that_the_store_never_completes_is_given_up_and_made_again(bucket: Bucket, busy: FaultProxy) -> None:
    seal(str(bucket.source))
    met = busy.add(Fault(completes("rank-00001-of-00002.safetensors"), status=500, code="InternalError"))
    order, cursor, codes = bucket.order(), CopyCursor(), []
    for _ in range(3):
        job = CopyJob(order, cursor, S3Target(order, bucket.store), store=bucket.store)
        job.look()
        job.survey()
        with pytest.raises(CopyTrouble) as caught:
            job.copy(JobControl())
        codes.append(caught.value.code)
    assert codes == ["store_busy", "store_busy", "file_lost"] and met.met == 6
    assert "rank-00001-of-00002.safetensors, asked 3 times" in str(caught.value)
    kept = next(one.etag for one in cursor.files if one.path.startswith("rank-00000"))
    busy.mend()
    again = CopyJob(order, cursor, S3Target(order, bucket.store), store=bucket.store)
    again.copy(JobControl())
    again.prove(JobControl())
    again.switch()
    assert kept and kept == next(one.etag for one in cursor.files if one.path.startswith("rank-00000"))
    assert bucket.objects() == bucket.local()
    bucket.require_clean()


def test_what_the_store_cannot_drop_yet_is_dropped_before_the_proof(bucket: Bucket, busy: FaultProxy) -> None:
    seal(str(bucket.source))
    key = f"cold/llama/{bucket.source.name}/rank-00000-of-00002.safetensors"
    bucket.store.begin(bucket.server.bucket, key)
    busy.add(Fault(lambda asked: asked.method == "DELETE", status=500, code="InternalError"))
    job = bucket.job()
    job.look()
    job.survey()
    with pytest.raises(CopyTrouble) as caught:
        job.copy(JobControl())
    assert caught.value.code == "store_busy" and job.cursor.copied_bytes == job.cursor.total_bytes
    assert not job.cursor.is_closed
    busy.mend()
    job.copy(JobControl())
    assert job.cursor.is_closed
    bucket.require_clean()


def test_two_stores_over_one_client_list_alike(bucket: Bucket) -> None:
    bucket.server.put("a/z", b"x")
    for store in (connect(), bucket.store, S3Writer.over(bucket.store), S3Writer.over(S3Writer.over(bucket.store))):
        assert [one.key for one in store.objects(bucket.server.bucket, "a/", one_level=False, check=int).objects] == [
            "a/z"
        ]


def test_a_crash_right_after_the_uploads_were_completed_is_recognised(bucket: Bucket) -> None:
    """The cursor that was saved last knows parts and no object."""
    seal(str(bucket.source))
    job = bucket.job()
    job.look()
    job.survey()
    before: list[bytes] = []
    real = S3Target.close

    def close(self: S3Target, cursor: CopyCursor, check: Any) -> None:
        before.append(msgspec.json.encode(cursor))
        real(self, cursor, check)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(S3Target, "close", close)
        job.copy(JobControl())
    order = bucket.order()
    again = CopyJob(order, msgspec.json.decode(before[0], type=CopyCursor), S3Target(order, bucket.store))
    again.copy(JobControl())
    again.prove(JobControl())
    again.switch()
    assert bucket.objects() == bucket.local()


def test_an_object_that_is_not_what_was_sent_is_found_by_reading_back(bucket: Bucket) -> None:
    seal(str(bucket.source))
    job = bucket.job()
    job.look()
    job.survey()
    job.copy(JobControl())
    key = f"cold/llama/{bucket.source.name}/rank-00001-of-00002.safetensors"
    bucket.server.put(key, b"\0" * len(bucket.server.get(key)))
    with pytest.raises(CopyTrouble):
        job.prove(JobControl())
    assert not job.is_proven
    job.copy(JobControl())
    job.prove(JobControl())
    job.switch()
    assert bucket.objects() == bucket.local()


def test_what_lies_there_already_is_never_replaced(bucket: Bucket) -> None:
    bucket.server.put(f"cold/llama/{bucket.source.name}/checkpoint.json", b"precious")
    with pytest.raises(CopyTrouble) as met:
        bucket.copy()
    assert met.value.code == "target_exists"
    assert bucket.objects() == {"checkpoint.json": b"precious"}


def test_a_bucket_that_is_not_there_or_refuses(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CopyTrouble) as met:
        bucket.copy(target="s3://no-such-bucket-anywhere/x")
    assert met.value.code == "target_unreachable"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    bucket.store = S3Writer.over(connect())
    with pytest.raises(CopyTrouble) as met:
        bucket.copy()
    assert (met.value.code, met.value.may_pass) == ("denied", False)
