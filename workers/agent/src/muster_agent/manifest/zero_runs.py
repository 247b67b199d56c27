"""Zeros in the middle of weights: what writers and storage that lost a range leave behind where no hole shows. Pure.

Told from chunk digests alone, so a seal learns it without reading anything twice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import groupby

import xxhash

from muster_agent.formats.base import Finding, Role, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.manifest.compare import DIGEST_CHARACTERS
from muster_agent.manifest.model import ShardDigest


def zero_run_findings(shard: ShardDigest, tensors: Iterable[TensorRange], chunk_bytes: int) -> list[Finding]:
    """A `sparse_hole` warning for each run of whole chunks of zeros in a model tensor of the shard that has other
    values elsewhere: a tensor that is zero altogether may be meant to be."""
    chunks = _zero_chunks(shard, chunk_bytes)
    if not chunks:
        return []
    weights = [tensor for tensor in tensors if tensor.role is Role.MODEL]
    found = []
    for begin, end in _runs(sorted(chunks)):
        for tensor in weights:
            span = _common(tensor, begin * chunk_bytes, min(end * chunk_bytes, shard.size_bytes))
            if span is not None and _has_other_values(tensor, chunks, chunk_bytes):
                found.append(_finding(shard.path, tensor, *span))
    return found


def _zero_chunks(shard: ShardDigest, chunk_bytes: int) -> set[int]:
    """The whole chunks that hold zeros only; a shorter last one proves too little."""
    zeros, text = _digest_of_zeros(chunk_bytes), shard.chunks_xxh3_64
    whole = range(shard.size_bytes // chunk_bytes)
    return {index for index in whole if text[index * DIGEST_CHARACTERS : (index + 1) * DIGEST_CHARACTERS] == zeros}


@functools.cache
def _digest_of_zeros(length_bytes: int) -> str:
    return xxhash.xxh3_64_hexdigest(bytes(length_bytes))


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as (first, one past the last)."""
    groups = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    runs = [[number for _, number in group] for _, group in groups]
    return [(run[0], run[-1] + 1) for run in runs]


def _common(tensor: TensorRange, begin_byte: int, end_byte: int) -> tuple[int, int] | None:
    begin = max(tensor.offset_bytes, begin_byte)
    end = min(tensor.offset_bytes + tensor.length_bytes, end_byte)
    return (begin, end) if begin < end else None


def _has_other_values(tensor: TensorRange, zeros: set[int], chunk_bytes: int) -> bool:
    """Whether a chunk that lies inside the tensor holds anything but zeros."""
    first = -(-tensor.offset_bytes // chunk_bytes)
    last = (tensor.offset_bytes + tensor.length_bytes) // chunk_bytes
    return any(index not in zeros for index in range(first, last))


def _finding(path: str, tensor: TensorRange, begin_byte: int, end_byte: int) -> Finding:
    detail = (
        f"bytes {begin_byte} to {end_byte} of {path} are all zero, in the tensor {tensor.name}, whose other values are "
        "not: a range that was lost when it was written looks like this"
    )
    return finding("sparse_hole", path=path, detail=detail, begin_byte=begin_byte, end_byte=end_byte)
