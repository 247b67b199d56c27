"""A checkpoint that is held in host memory: every tensor as a view of the bytes that were read, without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from muster_agent.formats.base import TensorRange
from muster_agent.reload.arena import Arena


class TensorView(NamedTuple):
    """One tensor, or the part of it that one record holds. `dtype` is the format's own word (BF16, bfloat16,
    float8_e4m3fn ...); `data` its bytes in memory, which any array library takes (`torch.frombuffer`)."""

    name: str
    shard: str
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


class Resident:
    """Views by tensor name; a name has several where its parts lie in several records. Close it, or use it in `with`:
    a view that is still held keeps the memory."""

    def __init__(self, arena: Arena, numbers: Mapping[str, int], tensors: Iterable[TensorRange]) -> None:
        self._arena = arena
        self._numbers = numbers
        self.tensors: dict[str, list[TensorView]] = {}
        for tensor in tensors:
            number = numbers.get(tensor.shard)
            if number is not None:
                self.tensors.setdefault(tensor.name, []).append(_view(arena.shard(number), tensor))

    def shard(self, path: str) -> memoryview:
        """All bytes of one shard. Raises KeyError for one that was not read."""
        return self._arena.shard(self._numbers[path])

    def sizes(self) -> list[int]:
        """Bytes of each shard that is held."""
        return [len(self._arena.shard(number)) for number in self._numbers.values()]

    def close(self) -> None:
        self.tensors.clear()
        self._arena.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _view(shard: memoryview, tensor: TensorRange) -> TensorView:
    data = shard[tensor.offset_bytes : tensor.offset_bytes + tensor.length_bytes]
    return TensorView(tensor.name, tensor.shard, tensor.dtype, tensor.shape, data)
