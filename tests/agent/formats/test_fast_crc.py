from __future__ import annotations

import random

import pytest
from muster_agent.formats.crc32c import crc32c
from muster_agent.formats.fast_crc import FastCrc, fast_crc

_POLYNOMIAL = 0x9A6C9329AC4BC9B5


def bitwise(data: bytes) -> int:
    """CRC-64/NVME one bit at a time, as its specification has it."""
    total = (1 << 64) - 1
    for byte in data:
        total ^= byte
        for _ in range(8):
            total = total >> 1 ^ (_POLYNOMIAL if total & 1 else 0)
    return total ^ ((1 << 64) - 1)


def crc_of(algorithm: str) -> FastCrc:
    crc = fast_crc(algorithm)
    assert crc is not None, "install requirements-dev.lock: it has anycrc"
    return crc


def test_the_published_check_values() -> None:
    nine = memoryview(b"123456789")
    assert (crc_of("crc64nvme").of(nine), crc_of("crc32c").of(nine)) == (0xAE8B14860A799888, 0xE3069283)


@pytest.mark.parametrize("size", [0, 1, 15, 4097, 1024 * 1024 + 3])
def test_whole_in_pieces_and_combined_are_the_same_sum(size: int) -> None:
    data = random.Random(size).randbytes(size)
    cut = size // 3
    for algorithm, plain in (("crc64nvme", bitwise), ("crc32c", crc32c)):
        crc = crc_of(algorithm)
        whole = crc.of(memoryview(data))
        first, second = memoryview(data)[:cut], memoryview(data)[cut:]
        assert crc.of(second, crc.of(first)) == whole
        assert crc.of_parts([(crc.of(first), cut), (crc.of(second), size - cut)]) == whole
        assert size > 5000 or plain(data) == whole


def test_a_kind_that_is_not_known_is_not_computed() -> None:
    assert fast_crc("crc64xz") is None and fast_crc("") is None
