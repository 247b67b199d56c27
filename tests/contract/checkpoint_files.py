"""A small real checkpoint for tasks to read."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path


def write_checkpoint(folder: Path, step: int = 10, *, ranks: int = 2, shard_bytes: int = 1024) -> Path:
    """Rank-sharded safetensors with model and optimizer state and its commit marker, saved an hour ago."""
    checkpoint = folder / f"step-{step}"
    checkpoint.mkdir(parents=True)
    sizes = {
        f"rank-{rank:05d}-of-{ranks:05d}.safetensors": _write_shard(checkpoint, rank, ranks, shard_bytes)
        for rank in range(ranks)
    }
    marker = {"format": "muster-ranked-safetensors", "step": step, "world_size": ranks, "files": sizes}
    (checkpoint / "checkpoint.json").write_text(json.dumps(marker))
    an_hour_ago = time.time() - 3600
    for path in (*checkpoint.iterdir(), checkpoint):
        os.utime(path, (an_hour_ago, an_hour_ago))
    return checkpoint


def _write_shard(checkpoint: Path, rank: int, ranks: int, shard_bytes: int) -> int:
    half = shard_bytes // 2
    header = json.dumps(
        {
            name: {"dtype": "U8", "shape": [half], "data_offsets": [at, at + half]}
            for name, at in ((f"model.w{rank}", 0), (f"optimizer.m{rank}", half))
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    path = checkpoint / f"rank-{rank:05d}-of-{ranks:05d}.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(256)) * (shard_bytes // 256))
    return path.stat().st_size
