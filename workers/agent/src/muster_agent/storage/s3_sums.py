"""The check sums that an object store keeps of an object since it was written (`x-amz-checksum-*`). Pure.

They come whole (`FULL_OBJECT`) or by the parts of the upload (`COMPOSITE`). An ETag is no such sum: of an upload in
parts it is made of the parts' MD5s, and of an encrypted object, or at other stores, it is anything. Where the sizes of
the parts are told, one that agrees proves the bytes all the same.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any

from muster_agent.formats.fast_crc import fast_crc
from muster_agent.formats.recorded import RecordedSum

MAX_PARTS = 1000
"""One request each; what has more is not compared."""
_SLOW_BYTES = 16 * 1024 * 1024
"""Of CRC-32C in plain Python, where the compiled one is not installed: more takes too long."""
_KNOWN = {
    "ChecksumCRC64NVME": ("crc64nvme", 8),
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


def etag_of(head: Head, part: Callable[[int], Head]) -> list[RecordedSum]:
    """The ETag as a sum that proves the bytes where it agrees, and nothing where it does not. Nothing where the store
    does not say how large the parts were, or says that the object is encrypted with a key of somebody's own."""
    match = _ETAG.fullmatch(str(head.get("ETag", "")))
    is_plain = head.get("ServerSideEncryption", "AES256") == "AES256" and "SSECustomerAlgorithm" not in head
    sizes = _part_sizes(head, int(match[2] or 0), part) if match and is_plain else []
    if match is None or not sizes or 0 in sizes or sum(sizes) != head.get("ContentLength"):
        return []
    return [RecordedSum(0, sum(sizes), "etag", match[0].strip('"'), "the whole object", tuple(sizes))]


_ETAG = re.compile(r'"?([0-9a-f]{32})(?:-(\d{1,5}))?"?', re.ASCII)


def _part_sizes(head: Head, count: int, part: Callable[[int], Head]) -> list[int]:
    if not count:
        return [head.get("ContentLength", 0)]
    if count > MAX_PARTS:
        return []
    first = part(1)
    if first.get("PartsCount") != count:
        return []
    return [first.get("ContentLength", 0), *(part(one).get("ContentLength", 0) for one in range(2, count + 1))]


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
        if len(digest) == length and end > begin and _can_compute(algorithm, end - begin):
            return [RecordedSum(begin, end, algorithm, digest.hex(), what)]
    return []


def _can_compute(algorithm: str, size_bytes: int) -> bool:
    if algorithm not in ("crc64nvme", "crc32c") or fast_crc(algorithm) is not None:
        return True
    return algorithm == "crc32c" and size_bytes <= _SLOW_BYTES
