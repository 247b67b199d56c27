"""CRC-32C and CRC-64/NVME at several GB/s, by the compiled package `anycrc`, which comes with `muster-agent[s3]`: those
are the check sums that object stores keep of objects.

Where the package is not installed nothing here can be computed, and `fast_crc` says so; `formats.crc32c` is plain
Python for the few kilobytes of Orbax's tree nodes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import cache
from typing import Any

_BLOCK_BYTES = 1024 * 1024
"""The package keeps other Python threads waiting while it computes: a tenth of a millisecond for so many."""
_MODELS = {"crc64nvme": ("CRC64-NVME", 8), "crc32c": ("CRC32C", 4)}


class FastCrc:
    """One of the two kinds. Values are integers as the stores define them."""

    def __init__(self, algorithm: str, model: Any, width_bytes: int) -> None:
        self.algorithm, self._model, self.width_bytes = algorithm, model, width_bytes

    def of(self, data: memoryview, before: int = 0) -> int:
        """The sum of `data`; of what came before it and `data`, where `before` is the sum of that."""
        for at in range(0, len(data), _BLOCK_BYTES):
            before = self._model.calc(data[at : at + _BLOCK_BYTES], before)
        return before

    def of_parts(self, parts: Iterable[tuple[int, int]]) -> int:
        """The sum of the whole, from (sum, size in bytes) of its parts in order: nothing is read again."""
        total = 0
        for value, size_bytes in parts:
            total = self._model.combine(total, value, size_bytes)
        return total

    def composite(self, values: Iterable[int]) -> str:
        """What stores call a composite sum: that of the parts' sums, in base64, and how many those are."""
        sums = [value.to_bytes(self.width_bytes, "big") for value in values]
        return f"{self.coded(self.of(memoryview(b''.join(sums))))}-{len(sums)}"

    def coded(self, value: int) -> str:
        """As the header of a request has it: big-endian, in base64."""
        return base64.b64encode(value.to_bytes(self.width_bytes, "big")).decode()

    def hexed(self, value: int) -> str:
        """In lower-case hexadecimal digits, zeros in front."""
        return f"{value:0{2 * self.width_bytes}x}"


@cache
def fast_crc(algorithm: str) -> FastCrc | None:
    """`crc64nvme` or `crc32c`; None for another kind, or where the package is not installed."""
    if algorithm not in _MODELS:
        return None
    try:
        import anycrc
    except ImportError:
        return None
    name, width_bytes = _MODELS[algorithm]
    return FastCrc(algorithm, anycrc.Model(name), width_bytes)
