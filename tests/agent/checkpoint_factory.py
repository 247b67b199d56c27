"""Rank-sharded safetensors checkpoints for tests: real bytes, made by hand from the format's own rules."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

DTYPE_BYTES = 4


def safetensors_bytes(tensors: dict[str, bytes]) -> bytes:
    """A safetensors file: an 8-byte header length, a JSON header, then the tensors back to back."""
    header: dict[str, object] = {}
    offset = 0
    for name, data in tensors.items():
        shape = [len(data) // DTYPE_BYTES]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + b"".join(tensors.values())


def rank_tensors(rank: int, rank_bytes: int, seed: int) -> dict[str, bytes]:
    """Model, two optimizer moments, rng and dataloader state; about `rank_bytes` in all."""
    source = random.Random(f"{seed}/{rank}")
    part = rank_bytes // 6 // DTYPE_BYTES * DTYPE_BYTES
    return {
        f"model.layer{rank}.weight": source.randbytes(2 * part),
        f"optimizer.exp_avg.layer{rank}.weight": source.randbytes(2 * part),
        f"optimizer.exp_avg_sq.layer{rank}.weight": source.randbytes(2 * part),
        "rng.state": source.randbytes(64),
        "dataloader.position": source.randbytes(8),
    }


def write_checkpoint(run: Path, step: int, *, world_size: int = 4, rank_bytes: int = 1_500_000, seed: int = 0) -> Path:
    """`<run>/step-<N>/rank-00000-of-00004.safetensors ...` and, last, `checkpoint.json`; returns the step's folder."""
    folder = run / f"step-{step:08d}"
    folder.mkdir(parents=True)
    sizes = {}
    for rank in range(world_size):
        name = f"rank-{rank:05d}-of-{world_size:05d}.safetensors"
        data = safetensors_bytes(rank_tensors(rank, rank_bytes, seed + step))
        (folder / name).write_bytes(data)
        sizes[name] = len(data)
    metadata = {"format": "muster-ranked-safetensors", "step": step, "world_size": world_size, "files": sizes}
    (folder / "checkpoint.json").write_text(json.dumps(metadata))
    return folder


def tensor_offset(shard: Path, name: str) -> int:
    """Where a tensor's bytes begin in the file."""
    data = shard.read_bytes()
    header_bytes = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + header_bytes])
    return int(8 + header_bytes + header[name]["data_offsets"][0])
