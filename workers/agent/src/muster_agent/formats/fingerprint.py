"""One short value for "these files, with these sizes and times": evidence about bytes holds only while it is equal."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash

_LAST_NS = 2**63 - 1


def bounded_mtime_ns(mtime_ns: int) -> int:
    """The nearest time that a signed 64-bit column of nanoseconds holds (the years 1677 to 2262)."""
    return max(-_LAST_NS, min(_LAST_NS, mtime_ns))


def fingerprint(files: Iterable[tuple[str, int, int]]) -> str:
    """XXH3-128 (32 hex characters) over the sorted (relative path, size in bytes, mtime in ns) of a checkpoint's files.

    Muster's own manifest files are not part of it. A time beyond 64 bits, which some file systems accept, counts as
    the nearest that a database holds, so that rows and files give the same value.
    """
    hasher = xxhash.xxh3_128()
    for path, size_bytes, mtime_ns in sorted(files):
        hasher.update(f"{path}\0{size_bytes}\0{bounded_mtime_ns(mtime_ns)}\n".encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()
