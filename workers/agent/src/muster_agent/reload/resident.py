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
    """Views by tensor name; a name has several where its parts lie in several records. `cut`: how many tensors are held
    in part only, as at the border of a rank's share, and have no view. Close it, or use it in `with`: a view that is
    still held keeps the memory."""

    def __init__(self, arena: Arena, numbers: Mapping[str, int], tensors: Iterable[TensorRange]) -> None:
        self._arena = arena
        self._numbers = numbers
        self.tensors: dict[str, list[TensorView]] = {}
        self.cut = 0
        for tensor in tensors:
            number = numbers.get(tensor.shard)
            if number is None or not (held := arena.held[number]).overlaps(tensor.offset_bytes, tensor.length_bytes):
                continue
            if held.holds(tensor.offset_bytes, tensor.length_bytes):
                view = _view(arena.shard(number), held.offset_bytes, tensor)
                self.tensors.setdefault(tensor.name, []).append(view)
            else:
                self.cut += 1

    def shard(self, path: str) -> memoryview:
        """The bytes of one shard that are held. Raises KeyError for one that was not read."""
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


def _view(held: memoryview, held_from: int, tensor: TensorRange) -> TensorView:
    begin = tensor.offset_bytes - held_from
    data = held[begin : begin + tensor.length_bytes]
    return TensorView(tensor.name, tensor.shard, tensor.dtype, tensor.shape, data)
