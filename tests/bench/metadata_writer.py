"""Writes DCP metadata of any size the way Python's own pickler does (protocol 4: frames, everything memoized), without
torch and without holding it in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

WRAPPED = "_fsdp_wrapped_module._checkpoint_wrapped_module."
FRAME_BYTES = 64 * 1024
BATCH = 1000
METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"


class Pickler:
    """Opcodes into frames. What was given a word (`text`, `name`) is recalled from the memo the second time."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.frame = io.BytesIO()
        self.places: dict[str, int] = {}
        self.count = 0
        out.write(b"\x80\x04")

    def op(self, raw: bytes) -> None:
        self.frame.write(raw)
        if self.frame.tell() >= FRAME_BYTES:
            self.flush()

    def flush(self) -> None:
        raw = self.frame.getvalue()
        self.out.write(b"\x95" + len(raw).to_bytes(8, "little") + raw)
        self.frame = io.BytesIO()

    def memoize(self) -> None:
        self.op(b"\x94")
        self.count += 1

    def recall(self, place: int) -> None:
        self.op(b"h" + bytes([place]) if place < 256 else b"j" + place.to_bytes(4, "little"))

    def text(self, value: str) -> None:
        """A string that other parts of the metadata share."""
        if value in self.places:
            self.recall(self.places[value])
        else:
            self.places[value] = self.count
            self.own_text(value)

    def own_text(self, value: str) -> None:
        """A string of this entry's own, as each rank's plan brings one."""
        raw = value.encode()
        head = b"\x8c" + bytes([len(raw)]) if len(raw) < 256 else b"X" + len(raw).to_bytes(4, "little")
        self.op(head + raw)
        self.memoize()

    def name(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        if full in self.places:
            self.recall(self.places[full])
            return
        self.text(module)
        self.text(name)
        self.op(b"\x93")
        self.places[full] = self.count
        self.memoize()

    def number(self, value: int) -> None:
        if value < 256:
            self.op(b"K" + bytes([value]))
        elif value < 65536:
            self.op(b"M" + value.to_bytes(2, "little"))
        elif value < 1 << 31:
            self.op(b"J" + value.to_bytes(4, "little"))
        else:
            raw = value.to_bytes(value.bit_length() // 8 + 1, "little")
            self.op(b"\x8a" + bytes([len(raw)]) + raw)

    def sizes(self, values: tuple[int, ...]) -> None:
        """A `torch.Size`."""
        self.name("torch", "Size")
        if len(values) > 3:
            self.op(b"(")
        for value in values:
            self.number(value)
        self.op((b")", b"\x85", b"\x86", b"\x87")[len(values)] if len(values) <= 3 else b"t")
        if values:
            self.memoize()
        self.op(b"\x85")
        self.memoize()
        self.op(b"R")
        self.memoize()

    def begin(self, module: str, name: str) -> None:
        """An object with a dictionary for its state; its fields follow."""
        self.name(module, name)
        self.op(b")\x81")
        self.memoize()
        self.op(b"}")
        self.memoize()
        self.op(b"(")

    def end(self) -> None:
        self.op(b"ub")

    def stop(self) -> None:
        self.op(b".")
        self.flush()


def names(tensors: int) -> Iterator[str]:
    """Names as a large model with an optimizer has them."""
    parts = ("self_attn.q_proj.weight", "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.down_proj.weight")
    kinds = ("model.{}", "optimizer.state.{}.exp_avg", "optimizer.state.{}.exp_avg_sq")
    for index in range(tensors):
        layer, rest = divmod(index, len(parts) * len(kinds))
        part, kind = divmod(rest, len(kinds))
        yield kinds[kind].format(f"model.layers.{layer}.{WRAPPED}{parts[part]}")


class Shape:
    """`tensors` tensors, each cut along its first dimension into one chunk for every rank; `record_bytes` a record."""

    rows, columns, record_bytes = 128, 8192, 128 * 8192 * 2 + 900

    def __init__(self, tensors: int, ranks: int) -> None:
        self.tensors, self.ranks = tensors, ranks

    @property
    def entries(self) -> int:
        return self.tensors * self.ranks

    @property
    def file_bytes(self) -> int:
        return self.tensors * self.record_bytes


def write_metadata(path: Path, shape: Shape, save_id: str = "") -> int:
    """Writes `.metadata` to `path`; returns its size in bytes. With `save_id`, its end tells where it was saved to and
    by which save, as that of PyTorch 2.3 and later does."""
    with path.open("wb") as out:
        pickler = Pickler(out)
        pickler.begin(METADATA, "Metadata")
        pickler.text("state_dict_metadata")
        _dictionary(pickler, (_tensor(pickler, name, shape) for name in names(shape.tensors)))
        pickler.text("planner_data")
        _dictionary(pickler, (_path(pickler, name) for name in names(shape.tensors)))
        pickler.text("storage_data")
        _dictionary(pickler, _records(pickler, shape))
        pickler.text("storage_meta")
        _storage_meta(pickler, path.parent, save_id)
        pickler.text("version")
        pickler.text("1.0.0")
        pickler.end()
        pickler.stop()
    return path.stat().st_size


def _storage_meta(pickler: Pickler, folder: Path, save_id: str) -> None:
    if not save_id:
        pickler.op(b"N")
        return
    pickler.begin(METADATA, "StorageMeta")
    pickler.text("checkpoint_id")
    pickler.name("pathlib", "PosixPath")
    pickler.op(b"(")
    for part in folder.parts:
        pickler.own_text(part)
    pickler.op(b"t")
    pickler.memoize()
    pickler.op(b"R")
    pickler.memoize()
    pickler.text("save_id")
    pickler.own_text(save_id)
    pickler.text("load_id")
    pickler.op(b"N")
    pickler.text("modules")
    pickler.op(b"]")
    pickler.memoize()
    pickler.end()


def _dictionary(pickler: Pickler, entries: Iterator[None]) -> None:
    """In batches of a thousand, as Python's pickler sets items."""
    pickler.op(b"}")
    pickler.memoize()
    _batches(pickler, entries, b"u")


def _batches(pickler: Pickler, entries: Iterator[None], last: bytes) -> None:
    is_open = False
    pickler.op(b"(")
    for count, _ in enumerate(entries, 1):
        if count % BATCH == 0:
            pickler.op(last + b"(")
        is_open = True
    pickler.op(last if is_open else b"1")


def _tensor(pickler: Pickler, name: str, shape: Shape) -> None:
    pickler.own_text(name)
    pickler.begin(METADATA, "TensorStorageMetadata")
    pickler.text("properties")
    pickler.name(METADATA, "TensorProperties")
    pickler.op(b")\x81")
    pickler.memoize()
    pickler.op(b"(")
    pickler.name("torch", "bfloat16")
    _constant_call(pickler, "layout", "torch.serialization", "_get_layout", b"\x8c\x0dtorch.strided\x94", 1)
    pickler.op(b"\x89")
    _constant_call(pickler, "format", METADATA, "_MEM_FORMAT_ENCODING", b"K\x00", 0)
    pickler.op(b"\x89t")
    pickler.memoize()
    pickler.op(b"b")
    pickler.text("size")
    pickler.sizes((shape.rows * shape.ranks, shape.columns))
    pickler.text("chunks")
    pickler.op(b"]")
    pickler.memoize()
    _batches(pickler, (_chunk(pickler, rank, shape) for rank in range(shape.ranks)), b"e")
    pickler.end()


def _constant_call(pickler: Pickler, word: str, module: str, name: str, argument: bytes, memoized: int) -> None:
    place = pickler.places.get(f"call {word}")
    if place is not None:
        pickler.recall(place)
        return
    pickler.name(module, name)
    pickler.op(argument)
    pickler.count += memoized
    pickler.op(b"\x85")
    pickler.memoize()
    pickler.op(b"R")
    pickler.places[f"call {word}"] = pickler.count
    pickler.memoize()


def _chunk(pickler: Pickler, rank: int, shape: Shape) -> None:
    pickler.begin(METADATA, "ChunkStorageMetadata")
    pickler.text("offsets")
    pickler.sizes((rank * shape.rows, 0))
    pickler.text("sizes")
    pickler.sizes((shape.rows, shape.columns))
    pickler.end()


def _path(pickler: Pickler, name: str) -> None:
    """An entry of planner_data: the name's parts."""
    pickler.own_text(name)
    head, _, rest = name.partition(".")
    pickler.own_text(head)
    pickler.own_text(rest)
    pickler.op(b"\x86")
    pickler.memoize()


def _records(pickler: Pickler, shape: Shape) -> Iterator[None]:
    for rank in range(shape.ranks):
        for index, name in enumerate(names(shape.tensors)):
            pickler.begin(METADATA, "MetadataIndex")
            pickler.text("fqn")
            pickler.own_text(name)
            pickler.text("index")
            pickler.number(rank)
            pickler.text("offset")
            pickler.sizes((rank * shape.rows, 0))
            pickler.end()
            pickler.begin(FILESYSTEM, "_StorageInfo")
            pickler.text("relative_path")
            pickler.text(f"__{rank}_0.distcp")
            pickler.text("offset")
            pickler.number(index * shape.record_bytes)
            pickler.text("length")
            pickler.number(shape.record_bytes)
            pickler.end()
            yield
