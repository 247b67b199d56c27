"""Objects read by ranges from a real gateway, over HTTP and TLS, with real signatures; and through a proxy that breaks
what passes."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from muster_agent.jobs.chunks import ChunkDigester
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.manifest.seal import chunk_digests
from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.plan import plan_reads, whole_shards
from muster_agent.reload.reader import ReadRun
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage import s3_wire
from muster_agent.storage.s3_answers import ObjectPin
from muster_agent.storage.s3_client import connect
from muster_agent.storage.s3_source import S3Reads
from muster_agent.storage.s3_urls import NodeSigned
from muster_agent.storage.throttle import Throttle

from tests.servers.fault_proxy import Fault, FaultProxy, fault_proxy, gets
from tests.servers.s3 import S3Server

CHUNK_BYTES = 256 * 1024
DATA = random.Random(3).randbytes(3 * 1024 * 1024 + 487)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(s3_server.url) as running:
        yield running


def reads_of(server: S3Server, *urls: str) -> S3Reads:
    signers = [connect(url) for url in urls or (server.url,)]
    return S3Reads(NodeSigned(signers, server.bucket), first_wait_seconds=0.01)


def read(reads: S3Reads, pin: ObjectPin, **run: object) -> tuple[ReadTotals, ChunkDigester]:
    ring, digester = BufferRing(4, CHUNK_BYTES), ChunkDigester(1, CHUNK_BYTES)
    try:
        totals = ReadRun(
            plan=plan_reads(whole_shards([pin.size_bytes or 0]), CHUNK_BYTES),
            open_shard=lambda _number: reads.open("run/a b+ü.bin", pin, 0),
            consumer=digester,
            ring=ring,
            control=run.pop("control", None) or JobControl(),  # type: ignore[arg-type]
            throttle=Throttle(None),
            readers=4,
            **run,  # type: ignore[arg-type]
        ).run()
    finally:
        ring.close()
        reads.close()
    return totals, digester


def expect_whole(totals: ReadTotals, digester: ChunkDigester) -> None:
    assert not totals.errors and totals.read_bytes == len(DATA)
    assert digester.digests[0] == dict(enumerate(chunk_digests(memoryview(DATA), CHUNK_BYTES)))


def test_every_chunk_is_right_and_the_costs_are_told(any_s3_server: S3Server) -> None:
    any_s3_server.put("run/a b+ü.bin", DATA)
    reads = reads_of(any_s3_server)
    pin = reads.look("run/a b+ü.bin")
    assert pin.size_bytes == len(DATA) and pin.etag
    expect_whole(*read(reads, pin))
    told = reads.evidence()
    assert told["endpoints"] == [any_s3_server.url] and told["signed_by"] == "node" and told["retries"] == {}
    assert told["requests"] == 14 and told["connections"] <= 5
    assert ("tls_seconds" in told) == any_s3_server.url.startswith("https")


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(
    s3_tls_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_tls_server.put("run/a b+ü.bin", DATA)
    monkeypatch.delenv("AWS_CA_BUNDLE")
    with pytest.raises(OSError, match=r"not trusted.*AWS_CA_BUNDLE"):
        reads_of(s3_tls_server).look("run/a b+ü.bin")


def test_a_certificate_of_another_host_is_refused(s3_tls_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(s3_wire.socket, "getaddrinfo", lambda _host, port, **how: real("127.0.0.1", port, **how))
    elsewhere = s3_tls_server.url.replace("127.0.0.1", "store.test")
    with pytest.raises(OSError, match="not trusted"):
        reads_of(s3_tls_server, elsewhere).look("run/a b+ü.bin")


def test_a_signature_that_ran_out_is_made_again(s3_server: S3Server) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    urls = NodeSigned([connect(s3_server.url)], s3_server.bucket, life_seconds=1)
    reads = S3Reads(urls, first_wait_seconds=0.01)
    pin = reads.look("run/a b+ü.bin")
    time.sleep(2.1)
    expect_whole(*read(reads, pin))


def test_wrong_keys_are_refused_in_words(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(PermissionError, match="SignatureDoesNotMatch"):
        reads_of(s3_server).look("run/a b+ü.bin")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(gets(), times=5, status=503),
        Fault(gets(), times=3, cut_after_bytes=70_000),
        Fault(gets(), times=3, reset_after_bytes=70_000),
        Fault(gets(), times=3, length_off_by_bytes=9),
        Fault(gets(), times=3, length_off_by_bytes=-9),
        Fault(gets(), times=2, wait_seconds=0.3),
    ],
    ids=["503", "cut", "reset", "longer", "shorter", "slow"],
)
def test_trouble_on_the_way_passes(s3_server: S3Server, proxy: FaultProxy, fault: Fault) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    proxy.add(fault)
    reads = reads_of(s3_server, proxy.url)
    expect_whole(*read(reads, ObjectPin(len(DATA))))
    assert bool(reads.evidence()["retries"]) is (not fault.wait_seconds)


def test_a_byte_that_turned_on_the_way_is_caught_by_its_chunk(s3_server: S3Server, proxy: FaultProxy) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    proxy.add(Fault(lambda asked: asked.range.startswith(f"{2 * CHUNK_BYTES}-"), flip_byte=100))
    _totals, digester = read(reads_of(s3_server, proxy.url), ObjectPin(len(DATA)))
    right = dict(enumerate(chunk_digests(memoryview(DATA), CHUNK_BYTES)))
    assert [index for index in right if digester.digests[0][index] != right[index]] == [2]


def test_an_object_that_is_overwritten_while_it_is_read_is_told(s3_server: S3Server, proxy: FaultProxy) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    again = Fault(gets(), times=1, skip=5, before=lambda: s3_server.put("run/a b+ü.bin", bytes(len(DATA))))
    proxy.add(again)
    totals, _digester = read(reads_of(s3_server, proxy.url), ObjectPin(len(DATA)))
    assert "written again" in str(totals.errors[0]) and again.met == 1


def test_an_object_that_is_removed_while_it_is_read_is_gone(s3_server: S3Server, proxy: FaultProxy) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    proxy.add(Fault(gets(), times=1, skip=5, before=lambda: s3_server.delete("run/a b+ü.bin")))
    totals, _digester = read(reads_of(s3_server, proxy.url), ObjectPin(len(DATA)))
    assert isinstance(totals.errors[0], FileNotFoundError)


def test_a_store_that_hangs_is_given_up_after_the_limit_of_a_block_and_named(
    s3_server: S3Server, proxy: FaultProxy
) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    proxy.add(Fault(gets(), skip=3, wait_seconds=20))
    totals, _digester = read(reads_of(s3_server, proxy.url), ObjectPin(len(DATA)), block_seconds=0.5)
    assert "did not answer" in str(totals.errors[0])


def test_cancelling_does_not_wait_for_a_store_that_hangs(s3_server: S3Server, proxy: FaultProxy) -> None:
    s3_server.put("run/a b+ü.bin", DATA)
    hanging = proxy.add(Fault(gets(), skip=3, wait_seconds=20))
    control, reads = JobControl(), reads_of(s3_server, proxy.url)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read, reads, ObjectPin(len(DATA)), control=control)
        while not hanging.met:
            time.sleep(0.01)
        control.cancel()
        with pytest.raises(Cancelled):
            reading.result(10)
    ends_at = time.monotonic() + 5
    while any(thread.name.startswith("muster-read") for thread in threading.enumerate()):
        assert time.monotonic() < ends_at, "a reader stayed in its request"
        time.sleep(0.02)
