"""CRC-32C (Castagnoli), which OCDBT puts at the end of every tree node and manifest.

Nodes are compressed names and offsets, far smaller than the tensors, so two bytes a step in plain Python (5 to 10 MB/s)
is enough, and no compiled package is needed for it.
"""

from __future__ import annotations

import sys
from array import array
from functools import cache

_POLYNOMIAL = 0x82F63B78
_ALL_ONES = 0xFFFFFFFF


@cache
def _single() -> list[int]:
    """What each byte does to the sum."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


@cache
def _paired() -> list[int]:
    """What each pair of bytes does to the sum."""
    single = _single()
    return [single[single[pair & 255] & 255 ^ pair >> 8] ^ single[pair & 255] >> 8 for pair in range(65536)]


def crc32c(data: bytes, before: int = 0) -> int:
    """The CRC-32C of `data`; of what came before it and `data`, where `before` is the sum of that."""
    table, total = _paired(), before ^ _ALL_ONES
    even = len(data) & ~1
    pairs = array("H", data[:even])
    if sys.byteorder == "big":
        pairs.byteswap()
    for pair in pairs:
        total = table[total & 0xFFFF ^ pair] ^ total >> 16
    for byte in data[even:]:
        total = _single()[total & 255 ^ byte] ^ total >> 8
    return total ^ _ALL_ONES
