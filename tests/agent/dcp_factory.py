"""DCP checkpoints as Megatron and FSDP write them, made without torch: for layouts of which there is no real sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.agent.torch_factory import _EMITTERS, Call, Global, New, Tensor, _emit, pickled, torch_zip

_METADATA = "torch.distributed.checkpoint.metadata"


class Piece(NamedTuple):
    """One record: a chunk at `offsets` of a tensor of `shape`, or, without a shape, a pickled `value`. `properties` is
    what stands in the metadata for the tensor's data type and the like."""

    name: str
    offsets: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    shape: tuple[int, ...] | None = None
    value: Any = None
    properties: Any = {"dtype": Global("torch", "float32")}  # noqa: RUF012

    @property
    def data(self) -> bytes:
        if self.shape is None:
            return torch_zip(self.value)
        return torch_zip(Tensor("0", self.sizes))


def write_dcp(folder: Path, files: dict[str, list[Piece]], *, plans: int | None = None) -> None:
    """Write `files` and the `.metadata` that describes them, with `plans` ranks' plans as Megatron adds them."""
    folder.mkdir(parents=True, exist_ok=True)
    storage: list[tuple[Any, Any]] = []
    for name, pieces in files.items():
        data = b""
        for piece in pieces:
            storage.append((_index(piece), _info(name, len(data), len(piece.data))))
            data += piece.data
        (folder / name).write_bytes(data)
    every = [piece for pieces in files.values() for piece in pieces]
    state = {
        "state_dict_metadata": {piece.name: _described(piece.name, every) for piece in every},
        "planner_data": {},
        "storage_data": _Pairs(storage),
        **({} if plans is None else {"all_local_plans": [_plan() for _ in range(plans)]}),
    }
    (folder / ".metadata").write_bytes(pickled(New(Global(_METADATA, "Metadata"), state)))


class _Pairs(NamedTuple):
    """A dictionary whose keys are objects."""

    pairs: list[tuple[Any, Any]]


def _index(piece: Piece) -> New:
    offset = None if piece.shape is None else _size(piece.offsets)
    return New(Global(_METADATA, "MetadataIndex"), {"fqn": piece.name, "offset": offset, "index": None})


def _info(file: str, begin: int, length: int) -> New:
    state = {"relative_path": file, "offset": begin, "length": length}
    return New(Global("torch.distributed.checkpoint.filesystem", "_StorageInfo"), state)


def _plan() -> New:
    return New(Global("torch.distributed.checkpoint.planner", "SavePlan"), {"items": []})


def _described(name: str, every: list[Piece]) -> New:
    own = [piece for piece in every if piece.name == name]
    if own[0].shape is None:
        return New(Global(_METADATA, "BytesStorageMetadata"), {})
    chunks = [
        New(Global(_METADATA, "ChunkStorageMetadata"), {"offsets": _size(piece.offsets), "sizes": _size(piece.sizes)})
        for piece in own
    ]
    properties = New(Global(_METADATA, "TensorProperties"), own[0].properties)
    state = {"properties": properties, "size": _size(own[0].shape), "chunks": chunks}
    return New(Global(_METADATA, "TensorStorageMetadata"), state)


def _size(sizes: tuple[int, ...]) -> Call:
    return Call(Global("torch", "Size"), (sizes,))


def _emit_pairs(value: _Pairs) -> bytes:
    return b"}(" + b"".join(_emit(key) + _emit(item) for key, item in value.pairs) + b"u"


_EMITTERS[_Pairs] = _emit_pairs
