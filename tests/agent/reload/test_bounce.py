"""Through pinned host memory into a GPU's, on the stand-in for the driver: bytes, digests, and what is given back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import xxhash
from muster_agent.formats.base import TensorRange
from muster_agent.jobs.control import JobControl
from muster_agent.reload.bounce import BounceSession
from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.gpu.device import DeviceUnavailable
from muster_agent.reload.gpu.memory import DeviceArena, NoDeviceRoom
from muster_agent.reload.memory import NoRoom
from muster_agent.reload.plan import Extent, plan_reads, whole_shards
from muster_agent.reload.reader import Check, InPlace, ReadRun
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.base import ShardSource
from muster_agent.storage.posix import PosixShard
from muster_agent.storage.throttle import Throttle

from tests.agent.reload.gpu_stand_in import Count, StandIn
from tests.agent.reload.held import sized

MIB = 1 << 20
BLOCK = 64 * 1024
SIZES = (5 * MIB + 77, MIB, 3, 2 * MIB + 4096)


class Digests:
    """Keeps the digest of every chunk by (shard, offset)."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], int] = {}

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        pytest.fail("a block came back to host memory")

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        for number, digest in enumerate(digests):
            self.found[extent.shard, extent.offset_bytes + number * BLOCK] = digest

    def lost(self, extent: Extent) -> None: ...


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"shard-{number}" for number in range(len(SIZES))]
    for path, size in zip(paths, SIZES, strict=True):
        path.write_bytes(os.urandom(size))
    return paths


def _read(
    session: BounceSession, shards: Sequence[Path], readers: int = 4, **more: object
) -> tuple[ReadTotals, Digests]:
    digests = Digests()
    ring = BufferRing(readers, 4096)

    def open_shard(number: int) -> ShardSource:
        return session.wrap(PosixShard(str(shards[number]), direct=True), number)

    run = ReadRun(
        plan=plan_reads(whole_shards([path.stat().st_size for path in shards]), BLOCK),
        open_shard=open_shard,
        consumer=digests,
        ring=ring,
        control=JobControl(),
        throttle=Throttle(None),
        readers=readers,
        in_place=InPlace(BLOCK),
    )
    for name, value in more.items():
        setattr(run, name, value)
    try:
        return run.run(), digests
    finally:
        ring.close()


def _digests_of(path: Path, shard: int) -> dict[tuple[int, int], int]:
    data = path.read_bytes()
    return {
        (shard, begin): xxhash.xxh3_64_intdigest(data[begin : begin + BLOCK]) for begin in range(0, len(data), BLOCK)
    }


def test_every_byte_arrives_on_the_device_and_is_hashed_on_the_way(gpu: StandIn, shards: list[Path]) -> None:
    gpu.set_late(2000)
    arena = DeviceArena(0, sized(*SIZES))
    session = BounceSession(0, 4, BLOCK, arena)
    totals, digests = _read(session, shards)
    copied = session.finish()
    session.close()
    assert not totals.errors and totals.read_bytes == sum(SIZES) == copied.copied_bytes
    for number, path in enumerate(shards):
        assert gpu.bytes_at(arena.place(number, 0), SIZES[number]) == path.read_bytes()
        expected = _digests_of(path, number)
        assert {key: digests.found[key] for key in expected} == expected
    assert gpu.count(Count.UNPINNED_COPIES) == 0
    assert copied.copy_seconds >= 0.002 * gpu.count(Count.COPIES) * 0.9
    arena.close()


def test_without_an_arena_each_block_is_copied_over_an_earlier_one(gpu: StandIn, shards: list[Path]) -> None:
    gpu.set_memory(256 * MIB + 4 * MIB)
    session = BounceSession(0, 4, BLOCK)
    totals, _ = _read(session, shards)
    assert totals.read_bytes == session.finish().copied_bytes == sum(SIZES)
    session.close()
    session.close()


def test_a_buffer_waits_for_its_own_copy_and_the_other_is_read_meanwhile(gpu: StandIn, shards: list[Path]) -> None:
    gpu.set_late(20_000)
    session = BounceSession(0, 1, BLOCK)
    source = session.wrap(PosixShard(str(shards[0]), direct=True), 0)
    for number in range(3):
        assert source.read_in_place(number * BLOCK, BLOCK) == BLOCK
    assert session.finish().wait_seconds > 0.01
    source.close()
    session.close()


def test_too_little_room_on_the_device_is_told_before_anything_is_read(gpu: StandIn) -> None:
    gpu.set_memory(300 * MIB)
    with pytest.raises(NoDeviceRoom, match=r"need 0\.1 GiB of GPU memory, and 0\.0 GiB are free on this GPU"):
        DeviceArena(0, sized(100 * MIB))
    with pytest.raises(NoRoom):
        BounceSession(0, 8, 16 * MIB)


def test_memory_that_somebody_else_takes_meanwhile_gives_everything_back(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster_agent.reload.bounce.require_room", lambda *_: gpu.set_memory(MIB))
    with pytest.raises(DeviceUnavailable, match=r"cuMemAlloc_v2 gave CUDA error 2 \(CUDA_ERROR_OUT_OF_MEMORY\)"):
        BounceSession(0, 4, MIB)


def test_where_pages_cannot_be_pinned_bytes_arrive_all_the_same_and_it_is_said(
    gpu: StandIn, shards: list[Path]
) -> None:
    gpu.refuse_pinning(True)
    arena = DeviceArena(0, sized(*SIZES))
    session = BounceSession(0, 2, BLOCK, arena)
    _read(session, shards, 2)
    session.finish()
    assert "CUDA_ERROR_NOT_SUPPORTED" in session.refused_pinning
    assert gpu.bytes_at(arena.place(0, 0), SIZES[0]) == shards[0].read_bytes()
    assert gpu.count(Count.UNPINNED_COPIES) == gpu.count(Count.COPIES)
    session.close()
    arena.close()


def test_a_read_that_hangs_takes_nothing_of_the_device_with_it(gpu: StandIn, shards: list[Path]) -> None:
    answers = threading.Event()
    session = BounceSession(0, 2, BLOCK)
    plain = session.wrap

    class Dead(PosixShard):
        def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
            answers.wait(20)
            return super().read_into(buffer, offset_bytes, length_bytes)

    def open_shard(number: int) -> ShardSource:
        kind = Dead if number == 1 else PosixShard
        return plain(kind(str(shards[number]), direct=True), number)

    totals, digests = _read(session, shards, 2, block_seconds=0.2, open_shard=open_shard)
    assert list(totals.errors) == [1]
    assert set(_digests_of(shards[0], 0)) <= set(digests.found)
    session.close()
    assert gpu.held() == {}
    answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("muster-read"):
            thread.join(5)


def test_a_device_that_stops_taking_bytes_is_the_error_of_each_shard(
    gpu: StandIn, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = BounceSession(0, 2, BLOCK)

    def refuse(*_arguments: object) -> None:
        raise DeviceUnavailable("cuMemcpyHtoDAsync_v2 gave CUDA error 719")

    monkeypatch.setattr(session.device, "copy_to_device_async", refuse)
    totals, _ = _read(session, shards, 2)
    assert set(totals.errors) == {0, 1, 2, 3}
    assert "did not take the bytes: cuMemcpyHtoDAsync_v2 gave CUDA error 719" in str(totals.errors[0])
    session.close()


def test_tensors_on_the_device_are_views_of_their_bytes(gpu: StandIn) -> None:
    arena = DeviceArena(0, sized(100, 5000))
    ranges = [
        TensorRange(name="w", shard="b", offset_bytes=8, length_bytes=64, dtype="BF16", shape=(32,)),
        TensorRange(name="lost", shard="c", offset_bytes=0, length_bytes=4, dtype="F32", shape=(1,)),
    ]
    tensors = arena.tensors({"a": 0, "b": 1}, ranges)
    (weights,) = tensors["w"]
    assert weights.address == arena.place(1, 8) == arena.place(0, 0) + 4096 + 8
    assert weights.__cuda_array_interface__["shape"] == (64,)
    assert "lost" not in tensors
    arena.close()
    arena.close()


def _refuse_second(call: Callable[..., int]) -> Callable[..., int]:
    calls: list[int] = []

    def wrapper(*arguments: int) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise DeviceUnavailable("refused")
        return call(*arguments)

    return wrapper


@pytest.mark.parametrize("call", ["create_stream", "create_event", "allocate"])
def test_whatever_fails_while_the_session_opens_nothing_stays_taken(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    from muster_agent.reload.gpu.device import CudaDevice

    original = getattr(CudaDevice, call)
    monkeypatch.setattr(CudaDevice, call, _refuse_second(original))
    with pytest.raises(DeviceUnavailable, match="refused"):
        BounceSession(0, 2, BLOCK)
