"""The hash kernel: the same source on the CPU against libxxhash, and compiled for GPUs by the real compiler."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path
from typing import Any

import pytest
import xxhash
from muster_agent.reload.gpu import hasher, kernel
from muster_agent.reload.gpu.hasher import ChunkHasher, HasherUnavailable
from muster_agent.reload.gpu.kernel import KernelUnavailable, compile_kernel

from tests.agent.reload.gpu_stand_in import StandInDevice

MIB = 1 << 20


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> StandInDevice:
    device = StandInDevice(0)
    device.folder = str(tmp_path_factory.mktemp("kernel"))
    return device


def _address(data: bytes) -> tuple[int, Any]:
    held = ctypes.create_string_buffer(data, len(data))
    return ctypes.addressof(held), held


def test_every_short_length_and_seed_gives_the_digest_of_xxhash(device: StandInDevice) -> None:
    data = random.Random(1).randbytes(4096)
    address, _held = _address(data)
    ranges = [(length % 64, length) for length in range(1025)]
    for seed in (0, 1, 0x9E3779B185EBCA87, 2**64 - 1):
        found = ChunkHasher(device).digests(address, ranges, seed)  # type: ignore[arg-type]
        assert found == [xxhash.xxh3_64_intdigest(data[begin : begin + size], seed) for begin, size in ranges]


def test_chunks_of_any_length_give_the_digest_of_xxhash(device: StandInDevice) -> None:
    chance = random.Random(2)
    data = chance.randbytes(5 * MIB)
    address, _held = _address(data)
    lengths = [
        4 * MIB,
        4 * MIB - 1,
        4 * MIB + 1,
        1024 * 64,
        1024 * 65 + 1,
        *(chance.randrange(1025, MIB) for _ in range(30)),
    ]
    ranges = [(chance.randrange(0, 1000), length) for length in lengths]
    found = ChunkHasher(device).digests(address, ranges)  # type: ignore[arg-type]
    assert found == [xxhash.xxh3_64_intdigest(data[begin : begin + size]) for begin, size in ranges]


def test_more_chunks_than_one_launch_takes_are_hashed_by_several(
    device: StandInDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hasher, "MAX_CHUNKS", 4)
    address, _held = _address(b"abcdefghij")
    device.launches.clear()
    found = ChunkHasher(device).digests(address, [(index, 1) for index in range(10)])  # type: ignore[arg-type]
    assert device.launches == [4, 4, 2]
    assert found == [xxhash.xxh3_64_intdigest(bytes([letter])) for letter in b"abcdefghij"]


@pytest.mark.parametrize("architecture", [(7, 5), (8, 0), (9, 0), (10, 0)])
def test_the_compiler_takes_the_kernel_for_every_current_gpu(architecture: tuple[int, int]) -> None:
    assert compile_kernel(*architecture)[:4] == b"\x7fELF"


def test_what_the_compiler_says_reaches_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "kernel_source", lambda: "broken(")
    with pytest.raises(KernelUnavailable, match="nvrtcCompileProgram gave NVRTC error 6: .*error"):
        compile_kernel(9, 0)


def test_a_device_whose_kernel_cannot_be_compiled_says_so(
    device: StandInDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandInDevice, "compute_capability", lambda _self: (1, 0))
    with pytest.raises(HasherUnavailable, match="gpu-architecture"):
        ChunkHasher(device)  # type: ignore[arg-type]


def test_the_kernel_is_part_of_the_installed_package() -> None:
    assert Path(kernel.__file__).with_name("xxh3_chunks.cu").is_file()
    assert "hash_chunks" in kernel.kernel_source()
