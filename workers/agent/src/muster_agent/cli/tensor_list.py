"""The tensors of one checkpoint: where each of them lies, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from muster_agent.cli.output import CommandFailed, ExitCode
from muster_agent.formats.base import ShardMap, TensorRange
from muster_agent.formats.checkpoint import read_checkpoint
from muster_agent.formats.places import is_bucket

_UNKNOWN = "this format does not tell where its tensors lie, or its metadata could not be read"


def tensors_of(shard_map: ShardMap, text: str) -> list[TensorRange]:
    """Those whose names contain `text`, by name and place. Reads every header again: a listing leaves tensors out."""
    if is_bucket(shard_map.path):
        raise CommandFailed("--tensors is not for buckets yet", hint="leave it out", code=ExitCode.USAGE)
    found = (tensor for tensor in read_checkpoint(shard_map.path).tensors if text in tensor.name)
    return sorted(found, key=lambda tensor: (tensor.name, tensor.shard, tensor.offset_bytes))


def tensor_lines(tensors: Sequence[TensorRange], text: str) -> Iterator[str]:
    """For people: one line for each range of bytes."""
    yield ""
    yield "Tensors"
    if not tensors:
        yield f"  None has {text!r} in its name." if text else f"  None: {_UNKNOWN}."
        return
    count = len({tensor.name for tensor in tensors})
    parts = f", in {len(tensors):,} pieces" if len(tensors) > count else ""
    yield f"  {count:,} tensor{'' if count == 1 else 's'}{parts}."
    for tensor in tensors:
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        end = tensor.offset_bytes + tensor.length_bytes
        yield f"  {tensor.name}  {tensor.dtype} {shape}  {tensor.shard} bytes {tensor.offset_bytes:,} to {end:,}"


def tensor_json(tensor: TensorRange) -> dict[str, Any]:
    """One element of `tensors` in the JSON."""
    return {**msgspec.structs.asdict(tensor), "shape": list(tensor.shape), "role": tensor.role.value}
