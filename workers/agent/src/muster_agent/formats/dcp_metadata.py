"""What PyTorch DCP's `.metadata` says, read without trust: tensors, their chunks, and the records that hold them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from muster_agent.formats.dcp_plan import DTYPE_BITS, Plan, TensorPlan
from muster_agent.formats.dcp_runs import Runs
from muster_agent.formats.dcp_steps import Beginning, StepMachine
from muster_agent.formats.dcp_values import Chunk, Index, Offsets, Stored, is_size, size_of
from muster_agent.formats.pickle_lean import Fold, LeanMachine, Run
from muster_agent.formats.pickle_reader import PickleRefused, Record, Symbol, run

MAX_METADATA_BYTES = 512 * 1024 * 1024
MIN_CHUNK_BYTES = 16
"""Of the pickle; a chunk and a record cost it about 50 and 110 bytes, also where their parts are shared."""

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


class _Latest:
    """What was read last: in a scan the steps of a run come one after the other."""

    read: tuple[Beginning, Plan] | None = None


def parse_plan(data: bytes) -> Plan:
    """The plan in one metadata file. Raises as parse_metadata does."""
    return parse_metadata(data)[0]


def parse_metadata(data: bytes) -> tuple[Plan, str | None]:
    """The plan in one metadata file, and what the folder was called that it was written for, where it says so. Raises
    PickleRefused for anything else than DCP metadata, and limits.NeedsChild for more bytes than this process should
    parse."""
    if _Latest.read is not None:
        beginning, plan = _Latest.read
        rest = beginning.rest_of(data, _machine)
        if rest is not None:
            writers, saved_as = _writers(rest.get("all_local_plans")), _saved_as(rest.get("storage_meta"))
            return (plan if writers == plan.writers else replace(plan, writers=writers)), saved_as
    machine = _machine(data)
    root = run(machine, _runs)
    plan = _plan(root, len(data))
    noted = machine.beginning()
    if noted is not None:
        _Latest.read = noted, plan
    return plan, _saved_as(root.get("storage_meta") if isinstance(root, Record) else None)


def _saved_as(meta: object) -> str | None:
    """The last part of the path in `checkpoint_id`: a text, or a path, which pickles as its parts or as a text."""
    given = meta.get("checkpoint_id") if isinstance(meta, Record) else None
    if isinstance(given, Record) and given.args:
        given = given.args[-1]
    return given.rstrip("/").rpartition("/")[2] if isinstance(given, str) else None


def _machine(data: bytes, **where: Any) -> StepMachine:
    return StepMachine(data, _NAMES, CLASSES, _FOLDS, frozenset({"torch.Size"}), _ENUMERATIONS, **where)


def _plan(root: object, size_bytes: int) -> Plan:
    if not isinstance(root, Record) or not root.name.endswith("Metadata"):
        raise PickleRefused("it is a pickle, but not of checkpoint metadata")
    plan = Plan(raw_records=root.name.startswith(_BYTECHECKPOINT), writers=_writers(root.get("all_local_plans")))
    budget = _Budget(10_000 + size_bytes // MIN_CHUNK_BYTES)
    for name, entry in _dict(root.get("state_dict_metadata"), "state_dict_metadata").items():
        _take_entry(plan, name, entry, budget)
    storage = _dict(root.get("storage_data"), "storage_data")
    budget.spend(len(storage))
    for key, info in storage.items():
        index = key if type(key) is Index else _index(key)
        record = info if type(info) is Stored else _stored(info)
        plan.stored[index.name, index.offsets] = record
        plan.records.append(record)
    return plan


def _writers(plans: object) -> int | None:
    return len(plans) if isinstance(plans, list) and plans else None


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
