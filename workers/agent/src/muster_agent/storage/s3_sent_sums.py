"""The CRCs of what is sent into a bucket: asked for when an upload begins, sent with every part, and compared with what
the store says that it keeps. Pure.

A store that does not know a kind ignores it, or refuses the upload: both are told from its first answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from muster_agent.formats.fast_crc import FastCrc, fast_crc

KINDS = ("crc64nvme", "crc32c")
"""In the order in which they are asked for: the first is of the whole object at every store that has it."""
NAMES = {"crc64nvme": "CRC-64/NVME", "crc32c": "CRC-32C"}


def computable() -> tuple[str, ...]:
    """Those of `KINDS` that this installation computes fast enough."""
    return tuple(kind for kind in KINDS if fast_crc(kind) is not None)


def begin_fields(algorithm: str) -> dict[str, str]:
    """What CreateMultipartUpload is asked beside its key. CRC-32C comes of the whole or of the parts, as the store has
    it; CRC-64/NVME only of the whole."""
    if not algorithm:
        return {}
    return {"ChecksumAlgorithm": algorithm.upper()} | (
        {"ChecksumType": "FULL_OBJECT"} if algorithm == "crc64nvme" else {}
    )


def is_taken(answer: Mapping[str, Any], algorithm: str) -> bool:
    """Whether the answer to `begin_fields` says that the store will compare it."""
    return str(answer.get("ChecksumAlgorithm", "")).lower() == algorithm


def field(algorithm: str) -> str:
    """The name of the sum in requests and answers."""
    return f"Checksum{algorithm.upper()}"


class SentSums(NamedTuple):
    """`parts`: the sum and the size in bytes of each part of one upload, in order."""

    algorithm: str
    parts: tuple[tuple[int, int], ...]

    def part_fields(self, index: int) -> dict[str, str]:
        """What CompleteMultipartUpload is told of one part, beside its number and ETag."""
        return {field(self.algorithm): self._crc.coded(self.parts[index][0])}

    def whole_fields(self) -> dict[str, str]:
        """What it is told of the whole object, for the store to compare."""
        if self.algorithm != "crc64nvme":
            return {}
        return {field(self.algorithm): self._whole(), "ChecksumType": "FULL_OBJECT"}

    def agree(self, told: str) -> bool:
        """Whether the store's sum of the object, whole or composite as it has it, is that of what was sent."""
        if "-" in told:
            return told == self._crc.composite(value for value, _size in self.parts)
        return told == self._whole()

    def whole_hex(self) -> str:
        """Of the whole object, as rows keep it."""
        return self._crc.hexed(self._crc.of_parts(self.parts))

    def _whole(self) -> str:
        return self._crc.coded(self._crc.of_parts(self.parts))

    @property
    def _crc(self) -> FastCrc:
        crc = fast_crc(self.algorithm)
        assert crc is not None, "a sum is only asked for where it can be computed"
        return crc
