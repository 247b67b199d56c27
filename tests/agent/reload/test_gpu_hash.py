"""The hash kernel: the same source on the CPU against libxxhash, and compiled for GPUs by the real compiler."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import xxhash
from muster_agent.reload.gpu import hasher, kernel
from muster_agent.reload.gpu.device import CudaDevice
from muster_agent.reload.gpu.hasher import ChunkHasher, HasherUnavailable
from muster_agent.reload.gpu.kernel import KernelUnavailable, compile_kernel

from tests.agent.reload.gpu_stand_in import Count, StandIn

MIB = 1 << 20


Hash = Callable[..., list[int]]


@pytest.fixture
def hash_on_device(gpu: StandIn) -> Iterator[Hash]:
    """Puts bytes on the device and gives the digests of ranges of them."""
    device = CudaDevice(0)
    chunk_hasher = ChunkHasher(device)

    def digests(data: bytes, ranges: Sequence[tuple[int, int]], seed: int = 0) -> list[int]:
        address = device.allocate(len(data))
        try:
            device.copy_to_device(address, data)
            return chunk_hasher.digests(address, ranges, seed)
        finally:
            device.free(address)

    yield digests
    chunk_hasher.close()
    device.release()


def test_every_short_length_and_seed_gives_the_digest_of_xxhash(hash_on_device: Hash) -> None:
    data = random.Random(1).randbytes(4096)
    ranges = [(length % 64, length) for length in range(1025)]
    for seed in (0, 1, 0x9E3779B185EBCA87, 2**63, 2**64 - 1):
        found = hash_on_device(data, ranges, seed)
        assert found == [xxhash.xxh3_64_intdigest(data[begin : begin + size], seed) for begin, size in ranges]


@pytest.mark.parametrize("seed", [0, 2**64 - 59])
def test_every_tail_after_whole_chunks_gives_the_digest_of_xxhash(hash_on_device: Hash, seed: int) -> None:
    """The end of a file: a chunk of some blocks and 0 to 1,024 bytes more, at an address of any alignment."""
    data = random.Random(3).randbytes(64 * 1024 + 2048)
    ranges = [(tail % 17, 64 * 1024 + tail) for tail in range(1025)]
    found = hash_on_device(data, ranges, seed)
    assert found == [xxhash.xxh3_64_intdigest(data[begin : begin + size], seed) for begin, size in ranges]


def test_chunks_of_any_length_give_the_digest_of_xxhash(hash_on_device: Hash) -> None:
    chance = random.Random(2)
    data = chance.randbytes(5 * MIB)
    lengths = [4 * MIB, 4 * MIB - 1, 4 * MIB + 1, 1024 * 64, 1024 * 65 + 1]
    lengths += [chance.randrange(1025, MIB) for _ in range(30)]
    ranges = [(chance.randrange(0, 1000), length) for length in lengths]
    for seed in (0, chance.getrandbits(64)):
        found = hash_on_device(data, ranges, seed)
        assert found == [xxhash.xxh3_64_intdigest(data[begin : begin + size], seed) for begin, size in ranges]


def test_more_chunks_than_one_launch_takes_are_hashed_by_several(
    gpu: StandIn, hash_on_device: Hash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hasher, "MAX_CHUNKS", 4)
    found = hash_on_device(b"abcdefghij", [(index, 1) for index in range(10)])
    assert gpu.count(Count.LAUNCHES) == 3
    assert found == [xxhash.xxh3_64_intdigest(bytes([letter])) for letter in b"abcdefghij"]


@pytest.mark.parametrize("architecture", [(7, 5), (8, 0), (9, 0), (10, 0)])
def test_the_compiler_takes_the_kernel_for_every_current_gpu(architecture: tuple[int, int]) -> None:
    assert compile_kernel(*architecture)[:4] == b"\x7fELF"


def test_what_the_compiler_says_reaches_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "kernel_source", lambda: "broken(")
    with pytest.raises(KernelUnavailable, match="nvrtcCompileProgram gave NVRTC error 6: .*error"):
        compile_kernel(9, 0)


def test_a_device_whose_kernel_cannot_be_compiled_says_so(gpu: StandIn) -> None:
    gpu.set_capability(1, 0)
    device = CudaDevice(0)
    with pytest.raises(HasherUnavailable, match="gpu-architecture"):
        ChunkHasher(device)
    device.release()


def test_the_kernel_is_part_of_the_installed_package() -> None:
    assert Path(kernel.__file__).with_name("xxh3_chunks.cu").is_file()
    assert "hash_chunks" in kernel.kernel_source()
