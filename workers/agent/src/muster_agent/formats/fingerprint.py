"""One short value for "these files, with these sizes and times": evidence about bytes holds only while it is equal."""

from __future__ import annotations

from collections.abc import Iterable

import xxhash


def fingerprint(files: Iterable[tuple[str, int, int]]) -> str:
    """XXH3-128 (32 hex characters) over the sorted (relative path, size in bytes, mtime in ns) of a checkpoint's files.

    Muster's own manifest files are not part of it.
    """
    hasher = xxhash.xxh3_128()
    for path, size_bytes, mtime_ns in sorted(files):
        hasher.update(f"{path}\0{size_bytes}\0{mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()
