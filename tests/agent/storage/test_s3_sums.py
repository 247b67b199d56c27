"""The check sums that a bucket keeps are held against the bytes before those are sealed; ETags never are."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from muster_agent.jobs.own_sums import check_own_sums
from muster_agent.jobs.seal import seal
from muster_agent.storage.s3_client import connect
from muster_agent.storage.s3_sums import MAX_PARTS, Head, sums_of

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.s3_server import S3Server, Stored

PREFIX = "run/step-00000010"
SHARD = "rank-00000-of-00001.safetensors"
PLACE = f"s3://bucket/{PREFIX}"


def coded(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


CODED: dict[str, Callable[[bytes], str]] = {
    "crc32": lambda data: coded(zlib.crc32(data).to_bytes(4, "big")),
    "sha1": lambda data: coded(hashlib.sha1(data, usedforsecurity=False).digest()),
    "sha256": lambda data: coded(hashlib.sha256(data).digest()),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    folder = write_checkpoint(tmp_path, 10, world_size=1, rank_bytes=900_000)
    with S3Server() as running:
        running.store.put_folder(folder, PREFIX)
        for stored in running.store.objects.values():
            stored.unix_seconds -= 86_400
        yield running


def shard_of(server: S3Server) -> Stored:
    return server.store.objects[f"{PREFIX}/{SHARD}"]


def in_parts(stored: Stored, algorithm: str, sizes: list[int]) -> None:
    begin = 0
    for size in sizes:
        part = stored.data[begin : begin + size]
        stored.part_sums.append((size, {f"x-amz-checksum-{algorithm}": CODED[algorithm](part)}))
        begin += size
    stored.sums = {f"x-amz-checksum-{algorithm}": f"AAAAAA==-{len(sizes)}", "x-amz-checksum-type": "COMPOSITE"}
    stored.parts = len(sizes)


def sealed_findings(server: S3Server) -> list[tuple[str, str, int | None, int | None]]:
    body = seal(PLACE, write_beside=False, store=connect(server.url))
    assert (body.manifest is None) == any(one.code == "digest_mismatch" for one in body.findings)
    return [(one.code, one.path, one.begin_byte, one.end_byte) for one in body.findings]


@pytest.mark.parametrize("algorithm", sorted(CODED))
def test_bytes_that_turned_since_they_were_uploaded_are_not_sealed(server: S3Server, algorithm: str) -> None:
    stored = shard_of(server)
    stored.sums = {f"x-amz-checksum-{algorithm}": CODED[algorithm](stored.data), "x-amz-checksum-type": "FULL_OBJECT"}
    assert sealed_findings(server) == []
    turned = bytearray(stored.data)
    turned[len(turned) // 2] ^= 1
    stored.data = bytes(turned)
    assert sealed_findings(server) == [("digest_mismatch", SHARD, 0, len(turned))]


def test_damage_is_named_by_the_part_of_the_upload(server: S3Server) -> None:
    stored = shard_of(server)
    in_parts(stored, "crc32", [500_000, len(stored.data) - 500_000])
    assert sealed_findings(server) == []
    stored.data = stored.data[:-1] + bytes([stored.data[-1] ^ 1])
    assert sealed_findings(server) == [("digest_mismatch", SHARD, 500_000, len(stored.data))]


@pytest.mark.parametrize("parts", [2, 14])
def test_the_etag_of_an_upload_in_parts_is_never_taken_for_a_sum_of_the_bytes(server: S3Server, parts: int) -> None:
    """Its hexadecimal digits are the MD5 of the parts' MD5s at one store, and nobody knows what at another."""
    shard_of(server).parts = parts
    assert sealed_findings(server) == []


def test_a_checkpoint_without_a_seal_is_held_against_what_its_bucket_keeps(server: S3Server) -> None:
    stored = shard_of(server)
    stored.sums = {"x-amz-checksum-sha256": CODED["sha256"](stored.data)}
    done = check_own_sums(PLACE, store=connect(server.url))
    assert (done.findings, done.checked_bytes) == ((), len(stored.data))
    stored.data = b"\0" * 8 + stored.data[8:]
    assert "digest_mismatch" in [one.code for one in check_own_sums(PLACE, store=connect(server.url)).findings]


@pytest.mark.parametrize(
    "head",
    [
        {"ContentLength": 9},
        {"ContentLength": 9, "ChecksumCRC64NVME": "AAAAAAAAAAA="},
        {"ContentLength": 9, "ChecksumCRC32": "not base64"},
        {"ContentLength": 9, "ChecksumSHA256": coded(b"short")},
        {"ContentLength": 17 << 20, "ChecksumCRC32C": coded(b"1234")},
        {"ContentLength": 9, "ChecksumType": "COMPOSITE", "PartsCount": 0},
        {"ContentLength": 9, "ChecksumType": "COMPOSITE", "PartsCount": MAX_PARTS + 1},
        {"ContentLength": 10, "ChecksumType": "COMPOSITE", "PartsCount": 3, "ChecksumCRC32": coded(b"1234")},
    ],
)
def test_what_is_not_known_or_does_not_add_up_is_not_compared(head: Head) -> None:
    assert sums_of(head, lambda _number: {**head, "ContentLength": 3}) == []
