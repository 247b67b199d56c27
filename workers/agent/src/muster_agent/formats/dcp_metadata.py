"""What PyTorch DCP's `.metadata` says, read without trust: tensors, their chunks, and the records that hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from muster_agent.formats.dcp_runs import Runs
from muster_agent.formats.dcp_values import Chunk, Index, Offsets, Stored, is_size, size_of
from muster_agent.formats.pickle_lean import Fold, LeanMachine, Run
from muster_agent.formats.pickle_reader import PickleRefused, Record, Symbol, read_pickle

MAX_METADATA_BYTES = 512 * 1024 * 1024
MIN_CHUNK_BYTES = 16
"""Of the pickle; a chunk and a record cost it about 50 and 110 bytes, also where their parts are shared."""

DTYPE_BITS: dict[str, int] = {
    **dict.fromkeys(("bool", "uint8", "int8", "quint8", "qint8"), 8),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 8),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 16),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32", "qint32"), 32),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    "complex128": 128,
}
_METADATA = "torch.distributed.checkpoint.metadata"
_PLANNER = "torch.distributed.checkpoint.planner"
_FILESYSTEM = "torch.distributed.checkpoint.filesystem"
_MEGATRON = "megatron.core.dist_checkpointing.strategies.torch"
_BYTECHECKPOINT = "bytecheckpoint.checkpointer.meta_type"
CLASSES = frozenset(
    f"{module}.{name}"
    for module, names in {
        _METADATA: (
            "Metadata TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata TensorProperties "
            "MetadataIndex StorageMeta _MEM_FORMAT_ENCODING"
        ),
        _PLANNER: "SavePlan WriteItem WriteItemType TensorWriteData BytesIOWriteData",
        _FILESYSTEM: "_StorageInfo _StoragePrefix",
        _MEGATRON: "MCoreSavePlan MCoreMetadata",
        _BYTECHECKPOINT: "Metadata _StorageInfo",
        "torch": "Size",
        "torch.serialization": "_get_layout",
        "collections": "OrderedDict",
        "pathlib": "PosixPath PurePosixPath WindowsPath PureWindowsPath",
        "pathlib._local": "PosixPath PurePosixPath WindowsPath PureWindowsPath",
    }.items()
    for name in names.split()
)
_ENUMERATIONS = frozenset({f"{_METADATA}._MEM_FORMAT_ENCODING", f"{_PLANNER}.WriteItemType"})
_NAMES = CLASSES | {f"torch.{dtype}" for dtype in DTYPE_BITS} | {"torch.strided", "torch.contiguous_format"}


class TensorPlan(NamedTuple):
    dtype: str
    size: tuple[int, ...]
    chunks: dict[Offsets, Chunk]


@dataclass(slots=True)
class Plan:
    """The union of what the metadata files of one checkpoint say. `objects` are names of pickled non-tensor values."""

    tensors: dict[str, TensorPlan] = field(default_factory=dict)
    objects: set[str] = field(default_factory=set)
    stored: dict[tuple[str, Offsets | None], Stored] = field(default_factory=dict)
    records: list[Stored] = field(default_factory=list)
    """Every record, also where ranks that did not talk to each other stored the same chunk."""
    writers: int | None = None
    """How many ranks wrote, where the metadata says so exactly (Megatron)."""
    raw_records: bool = False
    """Records are bare tensor bytes, not zips (ByteCheckpoint)."""

    @property
    def names(self) -> list[str]:
        return [*self.tensors, *self.objects]


def parse_plan(data: bytes) -> Plan:
    """The plan in one metadata file. Raises PickleRefused for anything else than DCP metadata, and limits.NeedsChild
    for more bytes than this process should parse."""
    root = read_pickle(data, _NAMES, CLASSES, _FOLDS, frozenset({"torch.Size"}), _runs, _ENUMERATIONS)
    if not isinstance(root, Record) or not root.name.endswith("Metadata"):
        raise PickleRefused("it is a pickle, but not of checkpoint metadata")
    plan = Plan(raw_records=root.name.startswith(_BYTECHECKPOINT))
    budget = _Budget(10_000 + len(data) // MIN_CHUNK_BYTES)
    for name, entry in _dict(root.get("state_dict_metadata"), "state_dict_metadata").items():
        _take_entry(plan, name, entry, budget)
    storage = _dict(root.get("storage_data"), "storage_data")
    budget.spend(len(storage))
    for key, info in storage.items():
        index = key if type(key) is Index else _index(key)
        record = info if type(info) is Stored else _stored(info)
        plan.stored[index.name, index.offsets] = record
        plan.records.append(record)
    plans = root.get("all_local_plans")
    plan.writers = len(plans) if isinstance(plans, list) and plans else None
    return plan


class _Budget:
    """Shared values make a small pickle name a great many chunks; the work on them is bounded here."""

    def __init__(self, count: int) -> None:
        self.left = count

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise PickleRefused("it names the same chunks again and again", too_large=True)


def _take_entry(plan: Plan, name: object, entry: object, budget: _Budget) -> None:
    if not isinstance(name, str) or not isinstance(entry, Record):
        raise PickleRefused("an entry of state_dict_metadata has no name or no description")
    if entry.name.endswith("BytesStorageMetadata"):
        plan.objects.add(name)
        return
    chunks = entry.get("chunks")
    if not isinstance(chunks, list):
        raise PickleRefused(f"tensor {name[:200]!r} has no list of chunks")
    budget.spend(1 + len(chunks))
    read = [chunk if type(chunk) is Chunk else _chunk(chunk) for chunk in chunks]
    size = size_of(entry.get("size"))
    plan.tensors[name] = TensorPlan(_dtype(entry.get("properties")), size, {chunk.offsets: chunk for chunk in read})


# -- objects, folded as soon as their state is read; or later, where the pickle may refer to them ----------------------
def _fold_chunk(machine: LeanMachine, state: dict[Any, Any]) -> Chunk:
    share = machine.numbers
    return Chunk(share(size_of(state.get("offsets"))), share(size_of(state.get("sizes"))))


def _chunk(value: object) -> Chunk:
    if type(value) is Chunk:
        return value
    if not isinstance(value, Record):
        raise PickleRefused("a chunk is malformed")
    return Chunk(size_of(value.get("offsets")), size_of(value.get("sizes")))


def _fold_index(machine: LeanMachine, state: dict[Any, Any]) -> Index:
    name, offsets = _name_and_offsets(state)
    return Index(machine.text(name), None if offsets is None else machine.numbers(offsets))


def _index(value: object) -> Index:
    if type(value) is Index:
        return value
    if not isinstance(value, Record) or type(value.state) is not dict:
        raise PickleRefused("an entry of storage_data is malformed")
    return Index(*_name_and_offsets(value.state))


def _name_and_offsets(state: dict[Any, Any]) -> tuple[str, Offsets | None]:
    name, offsets = state.get("fqn"), state.get("offset")
    if type(name) is not str:
        raise PickleRefused("an entry of storage_data has no name")
    return name, None if offsets is None else size_of(offsets)


def _fold_stored(_machine: LeanMachine, state: dict[Any, Any]) -> Stored:
    return _stored_of(state)


def _stored_of(state: dict[Any, Any]) -> Stored:
    file, begin, length = state.get("relative_path"), state.get("offset"), state.get("length")
    if type(file) is not str or not is_size(begin) or not is_size(length):
        raise PickleRefused("an entry of storage_data has no file, offset or length")
    return Stored(file, begin, length, bool(state.get("transform_descriptors")))


def _stored(value: object) -> Stored:
    if type(value) is Stored:
        return value
    if not isinstance(value, Record) or type(value.state) is not dict:
        raise PickleRefused("an entry of storage_data is malformed")
    return _stored_of(value.state)


def _fold_away(_machine: LeanMachine, _state: dict[Any, Any]) -> None:
    """Of what each rank was to write only the number of ranks is of use."""
    return


_CHUNK_CLASS, _INDEX_CLASS = f"{_METADATA}.ChunkStorageMetadata", f"{_METADATA}.MetadataIndex"
_STORED_CLASSES = (f"{_FILESYSTEM}._StorageInfo", f"{_BYTECHECKPOINT}._StorageInfo")
_FOLDS: dict[str, Fold] = {
    _CHUNK_CLASS: _fold_chunk,
    _INDEX_CLASS: _fold_index,
    **dict.fromkeys(_STORED_CLASSES, _fold_stored),
    f"{_PLANNER}.WriteItem": _fold_away,
    f"{_PLANNER}.TensorWriteData": _fold_away,
}


def _runs(machine: LeanMachine) -> dict[str, Run]:
    """After a chunk come more of them; after a record the index of the next one."""
    runs = Runs(machine)
    behind: dict[str, Run] = {_CHUNK_CLASS: partial(runs.chunks, _CHUNK_CLASS)}
    behind.update((name, partial(runs.records, _INDEX_CLASS, name)) for name in _STORED_CLASSES)
    return behind


def _dict(value: object, what: str) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    raise PickleRefused(f"it has no {what}")


def _dtype(properties: object) -> str:
    """Properties are pickled as a tuple whose first part is the data type."""
    state = properties.state if isinstance(properties, Record) else None
    value = state.get("dtype") if isinstance(state, dict) else state[0] if isinstance(state, tuple) and state else None
    return value.name.removeprefix("torch.") if isinstance(value, Symbol) else "unknown"


def merge(plans: list[Plan]) -> Plan:
    """The union over the metadata files of ranks that saved without talking to each other."""
    union = Plan(raw_records=any(plan.raw_records for plan in plans))
    for plan in plans:
        for name, tensor in plan.tensors.items():
            known = union.tensors.get(name)
            chunks = {**known.chunks, **tensor.chunks} if known else tensor.chunks
            size = tuple(map(max, known.size, tensor.size)) if known and len(known.size) == len(tensor.size) else None
            union.tensors[name] = TensorPlan(tensor.dtype, size or tensor.size, chunks)
        union.objects |= plan.objects
        union.stored.update(plan.stored)
        union.records += plan.records
    return union


def volume(sizes: tuple[int, ...]) -> int:
    """Number of elements; 1 for a scalar."""
    return math.prod(sizes)


def raw_bytes(tensor: TensorPlan, chunk: Chunk) -> int | None:
    """Bytes of the chunk's elements; None for a data type of unknown width."""
    bits = DTYPE_BITS.get(tensor.dtype)
    return None if bits is None else volume(chunk.sizes) * bits // 8
