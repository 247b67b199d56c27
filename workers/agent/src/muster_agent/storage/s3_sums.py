"""The check sums that an object store keeps of an object since it was written (`x-amz-checksum-*`). Pure.

They come whole (`FULL_OBJECT`) or by the parts of the upload (`COMPOSITE`). An ETag is no such sum: of an upload in
parts it is made of the parts' sums, and of an encrypted object, or at other stores, it is anything.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from muster_agent.formats.recorded import RecordedSum

MAX_PARTS = 1000
"""One request each; what has more is not compared."""
_SLOW_BYTES = 16 * 1024 * 1024
"""CRC-32C is computed in plain Python here, which for more takes too long."""
_KNOWN = {
    "ChecksumSHA256": ("sha256", 32),
    "ChecksumSHA1": ("sha1", 20),
    "ChecksumCRC32": ("crc32", 4),
    "ChecksumCRC32C": ("crc32c", 4),
}
Head = Mapping[str, Any]
"""The answer to HeadObject, as boto3 gives it."""


def sums_of(head: Head, part: Callable[[int], Head]) -> list[RecordedSum]:
    """The sums of the object that `head` is the answer for; `part` asks for the head of part number 1, 2, ... Nothing
    where the store keeps none of a kind that is known, or where what it says of parts does not add up."""
    size_bytes = head.get("ContentLength", 0)
    if head.get("ChecksumType") == "COMPOSITE" or any("-" in str(head.get(name, "")) for name in _KNOWN):
        return _by_parts(size_bytes, part)
    return _sums_in(head, 0, size_bytes, "the whole object")


def _by_parts(size_bytes: int, part: Callable[[int], Head]) -> list[RecordedSum]:
    first = part(1)
    count = first.get("PartsCount", 0)
    if not 0 < count <= MAX_PARTS:
        return []
    found, begin = [], 0
    for number in range(1, count + 1):
        head = first if number == 1 else part(number)
        end = begin + head.get("ContentLength", 0)
        found += _sums_in(head, begin, end, f"part {number} of the upload")
        begin = end
    return found if begin == size_bytes else []


def _sums_in(head: Head, begin: int, end: int, what: str) -> list[RecordedSum]:
    """The first known sum of that range, which is enough."""
    for name, (algorithm, length) in _KNOWN.items():
        try:
            digest = base64.b64decode(str(head.get(name, "")), validate=True)
        except (binascii.Error, ValueError):
            continue
        if len(digest) == length and end > begin and not (algorithm == "crc32c" and end - begin > _SLOW_BYTES):
            return [RecordedSum(begin, end, algorithm, digest.hex(), what)]
    return []
