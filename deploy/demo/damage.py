"""One flipped bit, as storage does it: the size and the times stay, only the content differs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FlippedByte:
    shard: str
    offset_bytes: int


def flip_one_byte(checkpoint: Path, shard: str) -> FlippedByte:
    """Change one byte in the middle of `shard` and put its times back, so that no listing can notice it."""
    path = checkpoint / shard
    before = path.stat()
    offset_bytes = before.st_size // 2
    with path.open("r+b") as file:
        file.seek(offset_bytes)
        value = file.read(1)[0]
        file.seek(offset_bytes)
        file.write(bytes([value ^ 0x10]))
        file.flush()
        os.fsync(file.fileno())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return FlippedByte(shard, offset_bytes)
