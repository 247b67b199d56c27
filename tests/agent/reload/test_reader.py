"""The engine, with storage that behaves badly on purpose."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence

import pytest
import xxhash
from muster_agent.jobs.chunks import ChunkDigester
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.protocol.phases import Phase
from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.plan import Extent, plan_reads, whole_shards
from muster_agent.reload.reader import Check, InPlace, ReadRun
from muster_agent.storage.throttle import Throttle

from tests.agent.cancelling import PROMISED_SECONDS, seconds_to_stop

BLOCK = 4096


class MemoryShard:
    """A shard in memory; the contract of `ShardSource`."""

    def __init__(self, data: bytes, before: Callable[[int], None] = lambda _offset: None) -> None:
        self.size_bytes, self.mtime_ns = len(data), 1
        self._data, self._before = data, before
        self.closed = 0

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        self._before(offset_bytes)
        piece = self._data[offset_bytes : offset_bytes + length_bytes]
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        self.closed += 1


class Collect:
    def __init__(self) -> None:
        self.bytes: dict[tuple[int, int], bytes] = {}
        self.digests: dict[tuple[int, int], list[int]] = {}
        self.lost_extents: list[Extent] = []

    def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
        self.bytes[extent.shard, extent.offset_bytes] = bytes(data)

    def hashed(self, extent: Extent, digests: Sequence[int]) -> None:
        self.digests[extent.shard, extent.offset_bytes] = list(digests)

    def lost(self, extent: Extent) -> None:
        self.lost_extents.append(extent)

    def joined(self, shard: int) -> bytes:
        return b"".join(data for key, data in sorted(self.bytes.items()) if key[0] == shard)


def run_over(
    shards: list[MemoryShard | OSError],
    sizes: list[int],
    consumer: Collect | ChunkDigester,
    control: JobControl | None = None,
    rate: int | None = None,
) -> ReadRun:
    def open_shard(number: int) -> MemoryShard:
        shard = shards[number]
        if isinstance(shard, OSError):
            raise shard
        return shard

    return ReadRun(
        plan=plan_reads(whole_shards(sizes), BLOCK),
        open_shard=open_shard,
        consumer=consumer,
        ring=BufferRing(4, BLOCK),
        control=control or JobControl(),
        throttle=Throttle(rate),
        readers=4,
    )


def test_all_bytes_arrive_and_every_shard_is_closed_once() -> None:
    data = [bytes([number]) * (10_000 + number) for number in range(5)]
    shards = [MemoryShard(piece) for piece in data]
    consumer = Collect()
    totals = run_over(list(shards), [len(piece) for piece in data], consumer).run()
    assert [consumer.joined(number) for number in range(5)] == data
    assert totals.read_bytes == sum(map(len, data))
    assert [shard.closed for shard in shards] == [1] * 5
    assert totals.sources[3] == (10_003, 1)
    assert min(totals.wall_seconds[Phase.READ], totals.reading_seconds, totals.cpu_seconds) > 0
    assert totals.read_by_shard == {number: 10_000 + number for number in range(5)}


def test_a_shard_that_cannot_be_opened_does_not_stop_the_others() -> None:
    consumer = Collect()
    totals = run_over([FileNotFoundError(errno.ENOENT, "gone"), MemoryShard(b"x" * 9000)], [9000, 9000], consumer).run()
    assert isinstance(totals.errors[0], FileNotFoundError)
    assert consumer.joined(1) == b"x" * 9000
    assert len(consumer.lost_extents) == 3


def test_one_bad_block_loses_only_itself() -> None:
    def fail(offset: int) -> None:
        if offset == BLOCK:
            raise OSError(errno.EIO, "Input/output error")

    consumer = Collect()
    totals = run_over([MemoryShard(b"x" * (3 * BLOCK), fail)], [3 * BLOCK], consumer).run()
    assert totals.errors[0].errno == errno.EIO
    assert consumer.lost_extents == [Extent(0, BLOCK, BLOCK)]
    assert totals.read_bytes == 2 * BLOCK


def test_a_shard_that_shrank_says_where_it_ended() -> None:
    totals = run_over([MemoryShard(b"x" * 5000)], [3 * BLOCK], Collect()).run()
    assert totals.ended_at_bytes == {0: 5000}


def test_cancelling_stops_within_one_block_and_closes_the_shards() -> None:
    control = JobControl()
    reads = []

    def count(offset: int) -> None:
        reads.append(offset)
        if len(reads) == 3:
            control.cancel()
        time.sleep(0.001)

    shard = MemoryShard(b"x" * (200 * BLOCK), count)
    with pytest.raises(Cancelled):
        run_over([shard], [200 * BLOCK], Collect(), control).run()
    assert len(reads) <= 3 + 4
    assert shard.closed == 1


def test_an_error_in_the_consumer_is_raised_and_leaves_no_thread() -> None:
    class Broken(Collect):
        def landed(self, extent: Extent, data: memoryview, check: Check) -> None:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run_over([MemoryShard(b"x" * 50_000)], [50_000], Broken()).run()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("muster-read")]


def test_progress_ends_at_the_total() -> None:
    seen: list[tuple[str, int, int]] = []
    control = JobControl(progress=lambda *report: seen.append(report))
    run_over([MemoryShard(b"x" * 50_000)], [50_000], Collect(), control).run()
    assert max(seen, key=lambda report: report[1]) == ("read", 50_000, 50_000)


def test_a_rate_cap_holds_over_the_whole_read() -> None:
    began = time.monotonic()
    run_over([MemoryShard(b"x" * 100_000)], [100_000], Collect(), rate=400_000).run()
    assert 0.24 <= time.monotonic() - began < 5


def test_a_wait_for_the_rate_is_ended_by_cancelling() -> None:
    def work(control: JobControl) -> None:
        run_over([MemoryShard(b"x" * 100_000)], [100_000], Collect(), control, rate=1000).run()

    assert seconds_to_stop(work) <= PROMISED_SECONDS


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Throttle(0)


@pytest.mark.parametrize("piece_bytes", [1000, BLOCK, 3 * BLOCK])
def test_pieces_give_the_digests_of_whole_chunks(piece_bytes: int) -> None:
    data = [os.urandom(size) for size in (5 * BLOCK, 2 * BLOCK + 17, 9, 3 * BLOCK - 1)]
    chunk_bytes = BLOCK // 4
    whole, pieced = ChunkDigester(4, chunk_bytes), ChunkDigester(4, chunk_bytes)
    for digester, size_bytes in ((whole, None), (pieced, piece_bytes)):
        run = run_over([MemoryShard(one) for one in data], [len(one) for one in data], digester)
        run.piece_bytes = size_bytes
        assert run.run().read_bytes == sum(len(one) for one in data)
    assert pieced.digests == whole.digests and len(whole.digests[1]) == 9


def test_a_shard_that_ends_amid_its_pieces_says_where() -> None:
    digester = ChunkDigester(1, BLOCK)
    run = run_over([MemoryShard(b"x" * 5000)], [3 * BLOCK], digester)
    run.piece_bytes = 1000
    totals = run.run()
    assert (totals.ended_at_bytes, totals.read_bytes) == ({0: 5000}, 5000)
    assert digester.digests[0][0] == xxhash.xxh3_64_hexdigest(b"x" * BLOCK)


class InPlaceShard(MemoryShard):
    """A shard whose bytes stay where they are; see `InPlaceSource`."""

    def __init__(self, data: bytes, fault: OSError | None = None) -> None:
        super().__init__(data)
        self._fault, self._block = fault, threading.local()

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        raise AssertionError("its bytes are not to come to host memory")

    def read_in_place(self, offset_bytes: int, length_bytes: int) -> int:
        self._block.data = self._data[offset_bytes : offset_bytes + length_bytes]
        return len(self._block.data)

    def digests_in_place(self, length_bytes: int, chunk_bytes: int) -> list[int]:
        if self._fault:
            raise self._fault
        data = self._block.data[:length_bytes]
        return [sum(data[begin : begin + chunk_bytes]) for begin in range(0, len(data), chunk_bytes)]


def test_bytes_that_stay_in_place_are_hashed_there() -> None:
    consumer = Collect()
    run = run_over([InPlaceShard(bytes([1]) * BLOCK + bytes([2]) * 10)], [BLOCK + 10], consumer)
    run.in_place = InPlace(chunk_bytes=BLOCK // 2)
    totals = run.run()
    assert consumer.digests == {(0, 0): [BLOCK // 2, BLOCK // 2], (0, BLOCK): [20]}
    assert (consumer.bytes, totals.read_bytes) == ({}, BLOCK + 10)


def test_bytes_in_place_that_nothing_is_known_about_are_only_read() -> None:
    consumer = Collect()
    run = run_over([InPlaceShard(b"x" * BLOCK)], [BLOCK], consumer)
    run.in_place = InPlace(chunk_bytes=None)
    assert run.run().read_bytes == BLOCK
    assert (consumer.digests, consumer.lost_extents) == ({}, [])


def test_a_block_that_could_not_be_hashed_in_place_is_lost_with_its_error() -> None:
    consumer = Collect()
    run = run_over([InPlaceShard(b"x" * BLOCK, OSError(errno.EIO, "gone"))], [BLOCK], consumer)
    run.in_place = InPlace(chunk_bytes=BLOCK)
    assert run.run().errors[0].errno == errno.EIO
    assert consumer.lost_extents == [Extent(0, 0, BLOCK)]


class Hangs:
    """A call that does not return until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.calls = 0

    def __call__(self, _offset: int) -> None:
        self.calls += 1
        self.let_go.wait(30)


def _alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("muster-read")]


def test_a_read_that_never_returns_is_given_up_and_the_other_shards_finish() -> None:
    hang = Hangs()
    stuck, others = MemoryShard(b"x" * (6 * BLOCK), hang), [MemoryShard(b"y" * (3 * BLOCK)) for _ in range(3)]
    consumer = Collect()
    run = run_over([stuck, *others], [6 * BLOCK, *[3 * BLOCK] * 3], consumer)
    run.block_seconds = 0.2
    totals = run.run()
    assert [consumer.joined(number) for number in (1, 2, 3)] == [b"y" * (3 * BLOCK)] * 3
    assert (totals.errors[0].errno, list(totals.errors)) == (errno.ETIMEDOUT, [0])
    assert sorted(extent.offset_bytes for extent in consumer.lost_extents) == [BLOCK * n for n in range(6)]
    assert hang.calls <= 4
    hang.let_go.set()
    _wait_until(lambda: not _alive())
    assert consumer.joined(0) == b"", "what comes late counts for nothing"
    assert stuck.closed == 1


def test_a_shard_whose_opening_hangs_is_given_up_too() -> None:
    let_go = threading.Event()
    consumer = Collect()
    run = run_over([MemoryShard(b""), MemoryShard(b"y" * BLOCK)], [4 * BLOCK, BLOCK], consumer)
    whole = run.open_shard

    def open_shard(number: int) -> MemoryShard:
        if number == 0:
            let_go.wait(30)
        return whole(number)  # type: ignore[return-value]

    run.open_shard, run.block_seconds = open_shard, 0.2
    totals = run.run()
    assert totals.errors[0].errno == errno.ETIMEDOUT and len(consumer.lost_extents) == 4
    assert consumer.joined(1) == b"y" * BLOCK
    let_go.set()
    _wait_until(lambda: not _alive())


def test_where_all_storage_is_dead_the_run_ends_and_everything_is_lost() -> None:
    hang = Hangs()
    shards: list[MemoryShard | OSError] = [MemoryShard(b"x" * BLOCK, hang) for _ in range(60)]
    consumer = Collect()
    run = run_over(shards, [BLOCK] * 60, consumer)
    run.block_seconds = 0.05
    totals = run.run()
    assert len(consumer.lost_extents) == 60 and len(totals.errors) == 60
    assert {error.errno for error in totals.errors.values()} == {errno.ETIMEDOUT}
    hang.let_go.set()
    _wait_until(lambda: not _alive())


def test_cancelling_does_not_wait_for_a_read_that_hangs() -> None:
    hang = Hangs()

    def work(control: JobControl) -> None:
        run_over([MemoryShard(b"x" * BLOCK, hang)], [BLOCK], Collect(), control).run()

    assert seconds_to_stop(work) <= PROMISED_SECONDS
    hang.let_go.set()
    _wait_until(lambda: not _alive())


def _wait_until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)
