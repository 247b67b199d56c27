"""Digests made from bytes in order, and the manifest that holds them."""

from __future__ import annotations

import random
import shutil
import subprocess

import msgspec
import pytest
import xxhash
from muster_agent.formats.base import Role, ShardMap, Status, TensorRange
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.export import checksum_list
from muster_agent.manifest.model import Manifest, ShardDigest, canonical_bytes, manifest_id
from muster_agent.manifest.seal import ShardSealer, assemble, chunk_digests, root_digest, trainable_tensors


def tensor(name: str, offset: int, length: int, role: Role = Role.MODEL, shard: str = "a") -> TensorRange:
    return TensorRange(
        name=name, shard=shard, offset_bytes=offset, length_bytes=length, dtype="U8", shape=(length,), role=role
    )


def shard(path: str, data: bytes, chunk_bytes: int = 4096) -> ShardDigest:
    return ShardDigest(
        path=path,
        size_bytes=len(data),
        mtime_ns=1,
        xxh3_128=xxhash.xxh3_128_hexdigest(data),
        chunks_xxh3_64="".join(chunk_digests(memoryview(data), chunk_bytes)),
    )


def manifest_of(*shards: ShardDigest, chunk_bytes: int = 4096) -> Manifest:
    shard_map = ShardMap(
        path="/x", run="r", format="safetensors", step=1, status=Status.COMPLETE, resumable=True, world_size=1
    )
    return assemble(shard_map, shards, [], sealed_at="2026-01-01T00:00:00Z", chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("pieces", [[10_000], [1, 9_999], [4096, 4096, 1808], [3] * 3333 + [1]])
def test_digests_do_not_depend_on_how_the_bytes_arrive(pieces: list[int]) -> None:
    data = random.Random(1).randbytes(10_000)
    ranges = [tensor("head", 0, 10), tensor("across", 4000, 200), tensor("tail", 9_990, 10), tensor("empty", 50, 0)]
    sealer = ShardSealer(ranges)
    begin = 0
    for length in pieces:
        sealer.update(memoryview(data)[begin : begin + length])
        begin += length
    assert sealer.size_bytes == 10_000
    assert sealer.xxh3_128() == xxhash.xxh3_128_hexdigest(data)
    expected = {
        r.name: xxhash.xxh3_64_hexdigest(data[r.offset_bytes : r.offset_bytes + r.length_bytes]) for r in ranges
    }
    assert {t.name: t.xxh3_64 for t in sealer.tensors} == expected


def test_overlapping_ranges_each_get_their_own_digest() -> None:
    data = bytes(range(256)) * 4
    sealer = ShardSealer([tensor("a", 0, 600), tensor("b", 100, 50)])
    sealer.update(memoryview(data)[:300])
    sealer.update(memoryview(data)[300:])
    assert {t.name: t.xxh3_64 for t in sealer.tensors} == {
        "a": xxhash.xxh3_64_hexdigest(data[:600]),
        "b": xxhash.xxh3_64_hexdigest(data[100:150]),
    }


def test_only_trained_state_gets_tensor_digests() -> None:
    tensors = (tensor("m", 0, 1), tensor("o", 1, 1, Role.OPTIMIZER), tensor("r", 2, 1, Role.RNG))
    shard_map = ShardMap(
        path="/x", run="r", format="f", step=1, status=Status.COMPLETE, resumable=True, tensors=tensors
    )
    assert [t.name for t in trainable_tensors(shard_map)["a"]] == ["m", "o"]


def test_the_manifest_does_not_depend_on_the_order_of_its_parts() -> None:
    a, b = shard("a", b"1" * 5000), shard("b", b"2" * 5000)
    assert manifest_id(manifest_of(a, b)) == manifest_id(manifest_of(b, a))
    assert root_digest([a, b]) == root_digest([b, a])
    assert root_digest([a, b]) != root_digest([a, shard("b", b"3" * 5000)])


def test_a_manifest_survives_its_own_bytes() -> None:
    manifest = manifest_of(shard("a", b"1" * 5000))
    assert msgspec.json.decode(canonical_bytes(manifest), type=Manifest) == manifest


def test_a_sound_manifest_has_no_fault() -> None:
    assert why_invalid(manifest_of(shard("a", b"1" * 5000), shard("dir/b", b""))) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 9}, "version"),
        ({"chunk_bytes": 1000}, "chunk size"),
        ({"chunk_bytes": 0}, "chunk size"),
        ({"root_xxh3_128": "0" * 32}, "root digest"),
    ],
)
def test_a_damaged_manifest_is_told_apart(change: dict[str, object], says: str) -> None:
    broken = msgspec.structs.replace(manifest_of(shard("a", b"1" * 5000)), **change)
    assert says in str(why_invalid(broken))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"path": "../../etc/passwd"}, "leads out"),
        ({"path": "/etc/passwd"}, "leads out"),
        ({"path": ""}, "leads out"),
        ({"size_bytes": -1}, "negative"),
        ({"size_bytes": 9000}, "per chunk"),
        ({"chunks_xxh3_64": "Z" * 32}, "hexadecimal"),
    ],
)
def test_a_hostile_shard_entry_is_told_apart(change: dict[str, object], says: str) -> None:
    broken = msgspec.structs.replace(shard("a", b"1" * 5000), **change)
    assert says in str(why_invalid(manifest_of(broken)))


def test_a_shard_listed_twice_is_told_apart() -> None:
    one = shard("a", b"1" * 5000)
    assert "twice" in str(why_invalid(manifest_of(one, one)))


def test_the_checksum_list_escapes_names_as_xxh128sum_does() -> None:
    lines = checksum_list(manifest_of(shard("plain", b"x"), shard("new\nline", b"y"), shard("back\\slash", b"z")))
    digest = xxhash.xxh3_128_hexdigest
    assert f"{digest(b'x')}  plain\n" in lines
    assert f"\\{digest(b'y')}  new\\nline\n" in lines
    assert f"\\{digest(b'z')}  back\\\\slash\n" in lines


@pytest.mark.skipif(shutil.which("xxh128sum") is None, reason="the program xxh128sum is not installed")
def test_the_checksum_list_is_accepted_by_xxh128sum(tmp_path: object) -> None:
    root = str(tmp_path)
    with open(f"{root}/a", "wb") as file:
        file.write(b"data")
    lines = checksum_list(manifest_of(shard("a", b"data")))
    done = subprocess.run(["xxh128sum", "-c", "-"], input=lines, text=True, cwd=root, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
