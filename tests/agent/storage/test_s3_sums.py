"""The check sums that a bucket keeps are held against the bytes before those are sealed; ETags only speak for them."""

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

DATA = Path(__file__).parents[2] / "data"
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
    assert (done.findings, done.checked_bytes) == ((), done.total_bytes)
    stored.data = b"\0" * 8 + stored.data[8:]
    assert "digest_mismatch" in [one.code for one in check_own_sums(PLACE, store=connect(server.url)).findings]


MIB = 1 << 20


def cut_as_uploaded(stored: Stored, sizes: list[int]) -> None:
    stored.part_sums = [(size, {}) for size in sizes]


def test_the_etag_of_an_upload_in_parts_is_made_of_their_md5s_and_then_proves_the_bytes(
    server: S3Server, tmp_path: Path
) -> None:
    """As boto3 sends 9 MiB: 8 MiB and the rest. The MD5 of the whole object is another one."""
    server.store.put_folder(write_checkpoint(tmp_path / "large", 20, world_size=1, rank_bytes=9 * MIB), "large/step-20")
    stored = server.store.objects[f"large/step-20/{SHARD}"]
    cut_as_uploaded(stored, [8 * MIB, len(stored.data) - 8 * MIB])
    parts = stored.data[: 8 * MIB], stored.data[8 * MIB :]
    digests = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
    assert stored.etag == f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-2"'
    done = check_own_sums("s3://bucket/large/step-20", store=connect(server.url))
    assert (done.findings, done.checked_bytes) == ((), done.total_bytes)


def test_an_object_sent_whole_agrees_with_its_plain_md5(server: S3Server) -> None:
    done = check_own_sums(PLACE, store=connect(server.url))
    assert (done.findings, done.checked_bytes) == ((), done.total_bytes)


@pytest.mark.parametrize("sizes", [[], [400_000, 400_000]])
def test_an_etag_that_differs_is_no_damage_and_proves_nothing(server: S3Server, sizes: list[int]) -> None:
    """It may be of a store that makes others. That the bytes changed only a seal or a real check sum can say."""
    stored = shard_of(server)
    if sizes:
        cut_as_uploaded(stored, [*sizes, len(stored.data) - sum(sizes)])
    stored.sent = stored.data
    stored.data = stored.data[:-1] + bytes([stored.data[-1] ^ 1])
    done = check_own_sums(PLACE, store=connect(server.url))
    assert done.findings == ()
    assert done.checked_bytes == done.total_bytes - len(stored.data)


@pytest.mark.parametrize(
    "more",
    [
        {"x-amz-server-side-encryption": "aws:kms"},
        {"x-amz-server-side-encryption-customer-algorithm": "AES256"},
        {"x-amz-mp-parts-count": "3"},
    ],
)
def test_an_etag_that_cannot_be_made_again_is_not_compared(server: S3Server, more: dict[str, str]) -> None:
    """An encrypted object's is no MD5; and a store that does not say how the upload was cut leaves it open."""
    stored = shard_of(server)
    cut_as_uploaded(stored, [500_000, len(stored.data) - 500_000])
    stored.more = more
    done = check_own_sums(PLACE, store=connect(server.url))
    assert (done.findings, done.checked_bytes) == ((), done.total_bytes - len(stored.data))


def test_an_etag_never_stands_in_for_the_sums_of_the_format(server: S3Server, tmp_path: Path) -> None:
    """A zip's own CRC-32 can say that bytes are wrong, which an ETag cannot."""
    data = bytearray((DATA / "torch" / "zip.pt").read_bytes())
    data[len(data) // 2] ^= 1
    server.store.put("lone/step-5.pt", bytes(data), server.store.objects[f"{PREFIX}/{SHARD}"].unix_seconds)
    done = check_own_sums("s3://bucket/lone/step-5.pt", store=connect(server.url))
    assert [one.code for one in done.findings] == ["digest_mismatch"]


@pytest.mark.parametrize(
    "head",
    [
        {"ContentLength": 9},
        {"ContentLength": 9, "ChecksumCRC32": "not base64"},
        {"ContentLength": 9, "ChecksumSHA256": coded(b"short")},
        {"ContentLength": 9, "ChecksumType": "COMPOSITE", "PartsCount": 0},
        {"ContentLength": 9, "ChecksumType": "COMPOSITE", "PartsCount": MAX_PARTS + 1},
        {"ContentLength": 10, "ChecksumType": "COMPOSITE", "PartsCount": 3, "ChecksumCRC32": coded(b"1234")},
    ],
)
def test_what_is_not_known_or_does_not_add_up_is_not_compared(head: Head) -> None:
    assert sums_of(head, lambda _number: {**head, "ContentLength": 3}) == []


@pytest.mark.parametrize(
    "head",
    [
        {"ContentLength": 9, "ChecksumCRC64NVME": coded(b"12345678")},
        {"ContentLength": 17 << 20, "ChecksumCRC32C": coded(b"1234")},
    ],
)
def test_a_crc_is_only_compared_where_it_is_computed_fast_enough(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(sums_of(head, lambda _number: head)) == 1
    monkeypatch.setattr("muster_agent.storage.s3_sums.fast_crc", lambda _algorithm: None)
    assert sums_of(head, lambda _number: head) == []
