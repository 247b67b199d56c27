"""The pickles inside files of `torch.save`, read without trust: values, tensors by their storages, and odd names.

Unlike DCP's metadata, such a file may hold any class of a training script. The reading goes on past a name that is not
on the list of torch_names, with an inert stand-in, so that the step and the tensors stay readable; which names were met
is told in `unsafe` (loading the file with an unpickler could run code) and `custom` (it would need somebody's classes).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from muster_agent.formats.pickle_machine import GETATTR, Machine, PickleRefused, Record, Symbol
from muster_agent.formats.pickle_opcodes import TABLE
from muster_agent.formats.pickle_reader import without_collector
from muster_agent.formats.python_names import passes_through_code
from muster_agent.formats.torch_names import (
    STORAGE_DTYPES,
    full_name,
    is_allowed,
    is_class_with_a_value,
    is_of_torch,
    is_unsafe_reference,
    may_be_called,
)
from muster_agent.formats.torch_values import Instance, StorageRef, TensorValue, named_tensors

MAX_DIMENSIONS = 64
MAX_NESTED_PICKLES = 2
MAX_CALLS_INSIDE_CALLS = 8
MAX_NAME_LETTERS = 1000
MAX_NAMES = 100
"""Unsafe, and custom, names kept per file; more would say the same."""
_COMPUTED = "something that the file computes"

__all__ = [
    "Instance",
    "PickleRefused",
    "Record",
    "StorageRef",
    "Symbol",
    "TensorValue",
    "TorchPickle",
    "named_tensors",
    "read_one",
    "read_torch_pickle",
]


@dataclass(frozen=True, slots=True)
class TorchPickle:
    """`value` is made of None, bool, int, float, str, bytes, list, tuple, dict, Symbol, Record and TensorValue; values
    may be shared, and may contain themselves: walk it with `named_tensors`, or visit each container once."""

    value: Any
    storages: dict[str, StorageRef] = field(default_factory=dict)
    unsafe: frozenset[str] = frozenset()
    custom: frozenset[str] = frozenset()


def read_torch_pickle(data: bytes) -> TorchPickle:
    """The one pickle that `data` begins with. Raises PickleRefused for bytes that are no pickle or break a bound, and
    limits.NeedsChild for a pickle that is longer than this process should parse."""
    return read_one(data)[0]


def read_one(data: bytes, offset: int = 0) -> tuple[TorchPickle, int]:
    """The pickle that begins at `offset`, and the offset behind its end: legacy files hold several, one after the
    other. Raises PickleRefused, and limits.NeedsChild where it is longer than this process should parse."""
    return _read(data, offset, depth=0)


def _read(data: bytes, offset: int, depth: int) -> tuple[TorchPickle, int]:
    machine = _TorchMachine(data, offset, depth)
    with without_collector(len(data) - offset):
        value = machine.run(TABLE)
    read = TorchPickle(value, machine.storages, frozenset(machine.unsafe), frozenset(machine.custom - machine.unsafe))
    return read, machine.position


class _TorchMachine(Machine):
    __slots__ = ("calling", "custom", "depth", "storages", "unsafe", "work_left")

    def __init__(self, data: bytes, position: int, depth: int) -> None:
        super().__init__(data, frozenset(), frozenset(), position)
        self.depth = depth
        self.calling = 0
        self.storages: dict[str, StorageRef] = {}
        self.unsafe: set[str] = set()
        self.custom: set[str] = set()
        self.work_left = 10_000 + len(data)
        """Items that conversions may copy in all: a shared list could otherwise be copied again and again."""

    # -- names ---------------------------------------------------------------------------------------------------------
    def symbol(self, module: object, name: object) -> Symbol:
        if type(module) is not str or type(name) is not str:
            self._note(self.unsafe, _COMPUTED)
            return Symbol(_COMPUTED)
        if len(module) + len(name) > MAX_NAME_LETTERS:
            self._note(self.unsafe, f"a name of {len(module) + len(name)} letters")
            return Symbol(_COMPUTED)
        full = full_name(module, name)
        if is_allowed(full):
            return Symbol(full)
        if is_unsafe_reference(full) or passes_through_code(name):
            self._note(self.unsafe, full)
        elif not is_of_torch(full):
            self._note(self.custom, full)
        return Symbol(full)

    def _note(self, names: set[str], name: str) -> None:
        if len(names) < MAX_NAMES:
            names.add(name[:200])

    def _named(self, target: object, args: object) -> str:
        """The name of what is called; noted as unsafe unless it may be called."""
        name = target.name if type(target) is Symbol else _COMPUTED
        if not may_be_called(name, args) and not is_class_with_a_value(name, args):
            self._note(self.unsafe, name)
        return name

    def extension(self, code: int) -> None:
        """EXT1, EXT2, EXT4: a name from a table that the loading process keeps."""
        self._note(self.unsafe, f"extension code {code}")
        self.stack.append(Symbol(_COMPUTED))

    # -- objects -------------------------------------------------------------------------------------------------------
    def call(self, target: object, args: object) -> None:
        self.stack.append(self._made(self._named(target, args), args))

    def _made(self, name: str, args: object) -> Any:
        values = args if type(args) is tuple else ()
        if name == "builtins.type" and not may_be_called(name, args):
            self._note(self.unsafe, name)
        make = _MAKERS.get(name)
        if make is not None and self.calling < MAX_CALLS_INSIDE_CALLS:
            self.calling += 1
            try:
                return make(self, values)
            except (TypeError, ValueError, AttributeError, LookupError):
                pass
            finally:
                self.calling -= 1
        return Instance(name, values)

    def create(self, target: object, args: object, named: object = None) -> None:
        if type(target) is not Symbol:
            self._note(self.unsafe, _COMPUTED)
        name = target.name if type(target) is Symbol else _COMPUTED
        made = self._made(name, args)
        if named and isinstance(made, Record):
            made.state = named
        self.stack.append(made)

    def instantiate(self, target: object, args: tuple[Any, ...]) -> None:
        self.call(target, args)

    def refer(self, reference: object) -> None:
        match reference:
            case ("storage", Symbol() | Record() as kind, str() | int() as key, location, int() as count, *_):
                place = location if type(location) is str else "unknown"
                self.stack.append(self._storage(kind, str(key), place, count))
            case ("module", Symbol() as kind, *_):
                self.stack.append(kind)
            case _:
                self.stack.append(Instance("reference", (reference,)))

    def _storage(self, kind: Symbol | Record, key: str, location: str, count: int) -> StorageRef:
        dtype = STORAGE_DTYPES.get(kind.name.rsplit(".", 1)[-1], "unknown")
        storage = StorageRef(key, dtype, count, location)
        known = self.storages.setdefault(key, storage)
        if known.element_count < count:
            self.storages[key] = storage
        return storage

    # -- state and items -----------------------------------------------------------------------------------------------
    def build(self, target: object, state: Any) -> None:
        """Attributes of plain containers and tensors are let go: nothing of the checkpoint is in them. To set those of
        a class or a function itself changes it for all that is loaded later."""
        if type(target) is Symbol:
            self._note(self.unsafe, f"an attribute of {target.name}")
        if isinstance(target, Record):
            target.state = self.attributes(state)

    def append(self, target: object, items: list[Any]) -> None:
        if type(target) is Instance:
            target.items = [] if target.items is None else target.items
            target = target.items
        if type(target) is list:
            target.extend(items)

    def fill(self, target: object, pairs: list[Any]) -> None:
        if type(target) is Instance:
            target.items = {} if target.items is None else target.items
            target = target.items
        if type(target) is dict:
            super().fill(target, pairs)

    def attributes(self, state: Any) -> Any:
        """An object with slots is pickled as (attributes or None, slots)."""
        match state:
            case (None, dict() as slots):
                return slots
            case (dict() as attributes, dict() as slots):
                self.spend(len(attributes) + len(slots))
                return {**attributes, **slots}
            case _:
                return state

    def spend(self, count: int) -> None:
        self.work_left -= count
        if self.work_left < 0:
            raise PickleRefused("it copies shared values again and again", too_large=True)


# -- what calls of known names give ------------------------------------------------------------------------------------
_Maker = Callable[[_TorchMachine, tuple[Any, ...]], Any]


def _tensor(_machine: _TorchMachine, args: tuple[Any, ...]) -> TensorValue:
    storage, offset, shape, stride = args[:4]
    return _view(storage, offset, shape, stride, storage.dtype)


def _tensor_with_dtype(_machine: _TorchMachine, args: tuple[Any, ...]) -> TensorValue:
    storage, offset, shape, stride = args[:4]
    return _view(storage, offset, shape, stride, args[6].name.removeprefix("torch."))


def _view(storage: Any, offset: Any, shape: Any, stride: Any, dtype: str) -> TensorValue:
    if type(storage) is not StorageRef or type(offset) is not int:
        raise TypeError
    return TensorValue(storage, offset, _sizes(shape), _sizes(stride), dtype)


def _sizes(value: Any) -> tuple[int, ...]:
    if (
        not isinstance(value, (list, tuple))
        or len(value) > MAX_DIMENSIONS
        or any(type(part) is not int for part in value)
    ):
        raise TypeError
    return tuple(value)


def _first(_machine: _TorchMachine, args: tuple[Any, ...]) -> Any:
    return args[0]


def _of_type(machine: _TorchMachine, args: tuple[Any, ...]) -> Any:
    """A tensor of a sub-class: args are the function that makes it, the class, the function's arguments, the state."""
    made = machine._made(machine._named(args[0], args[2]), args[2])
    if type(made) is Instance:
        made.state = machine.attributes(args[3]) if len(args) > 3 else None
    return made


def _dictionary(machine: _TorchMachine, args: tuple[Any, ...]) -> dict[Any, Any]:
    """A dictionary, an ordered one or a Counter, made of nothing, of another one, or of pairs."""
    made: dict[Any, Any] = {}
    if args and args[0] is not None:
        machine.spend(len(args[0]))
        pairs = args[0].items() if type(args[0]) is dict else [(key, value) for key, value in args[0]]
        for key, value in pairs:
            machine.fill(made, [key, value])
    return made


def _empty_dictionary(_machine: _TorchMachine, _args: tuple[Any, ...]) -> dict[Any, Any]:
    return {}


def _sequence(machine: _TorchMachine, args: tuple[Any, ...]) -> list[Any]:
    """A set, a list or a deque."""
    if not args:
        return []
    if not isinstance(args[0], (list, tuple, dict)):
        raise TypeError
    machine.spend(len(args[0]))
    return list(args[0])


def _inside(_machine: _TorchMachine, args: tuple[Any, ...]) -> Symbol:
    """A class inside another, or a member of an enumeration: a name, so that a call of it is judged as any other."""
    return Symbol(f"{args[0].name}.{args[1]}"[:MAX_NAME_LETTERS])


def _size(_machine: _TorchMachine, args: tuple[Any, ...]) -> tuple[int, ...]:
    return _sizes(args[0]) if args else ()


def _encoded(machine: _TorchMachine, args: tuple[Any, ...]) -> bytes:
    """How bytes are pickled for Python 2."""
    encoding = args[1] if len(args) > 1 else "utf-8"
    if type(args[0]) is not str or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise TypeError
    machine.spend(len(args[0]))
    return args[0].encode(encoding)


def _bytes(machine: _TorchMachine, args: tuple[Any, ...]) -> bytes:
    if not args:
        return b""
    return args[0] if type(args[0]) is bytes else _encoded(machine, args)


def _scalar(_machine: _TorchMachine, args: tuple[Any, ...]) -> int | float | bool:
    """A number of numpy; args are its type and its bytes."""
    kind, raw = args[0].args[0], args[1]
    if len(raw) > 16 or len(kind) > 3:
        raise ValueError
    if type(raw) is str:
        raw = raw.encode("latin-1")
    big = type(args[0].state) is tuple and ">" in args[0].state[1:2]
    if int(kind[1:]) != len(raw):
        raise ValueError
    if kind[0] == "f":
        return _float(raw, big)
    if kind[0] not in "iub":
        raise ValueError
    number = int.from_bytes(raw, "big" if big else "little", signed=kind[0] == "i")
    return bool(number) if kind[0] == "b" else number


def _float(raw: bytes, big: bool) -> float:
    letter = {2: "e", 4: "f", 8: "d"}[len(raw)]
    value: float = struct.unpack(f"{'>' if big else '<'}{letter}", raw)[0]
    return value


def _reconstructed(machine: _TorchMachine, args: tuple[Any, ...]) -> Any:
    """How protocol 0 and 1 make an object: its class, the built-in base class, and the base's value."""
    name = args[0].name
    base = args[1].name if type(args[1]) is Symbol else ""
    if base == "builtins.object":
        return machine._made(name, ())
    return machine._made(name, (args[2],))


def _new_object(machine: _TorchMachine, args: tuple[Any, ...]) -> Any:
    return machine._made(args[0].name, args[1:])


def _nested(machine: _TorchMachine, args: tuple[Any, ...]) -> Any:
    """A storage that was pickled as bytes of a whole `torch.save` stream; loading it loads that stream, so its names
    count as well."""
    if machine.depth >= MAX_NESTED_PICKLES or type(args[0]) is not bytes:
        machine._note(machine.unsafe, "torch.storage._load_from_bytes")
        raise TypeError
    machine.spend(len(args[0]))
    position = 0
    for _ in range(5):
        try:
            read, position = _read(args[0], position, machine.depth + 1)
        except PickleRefused:
            break
        machine.unsafe |= read.unsafe
        machine.custom |= read.custom
    return Instance("torch.storage._load_from_bytes", ())


_MAKERS: dict[str, _Maker] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_with_dtype,
    "torch._utils._rebuild_qtensor": _tensor,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch._tensor._rebuild_from_type": _of_type,
    "torch.jit._pickle.build_boollist": _first,
    "torch.jit._pickle.build_doublelist": _first,
    "torch.jit._pickle.build_intlist": _first,
    "torch.jit._pickle.build_tensorlist": _first,
    "torch.jit._pickle.restore_type_tag": _first,
    "torch.storage._load_from_bytes": _nested,
    "torch.Size": _size,
    GETATTR: _inside,
    "collections.OrderedDict": _dictionary,
    "collections.Counter": _dictionary,
    "collections.defaultdict": _empty_dictionary,
    "collections.deque": _sequence,
    "builtins.dict": _dictionary,
    "builtins.list": _sequence,
    "builtins.set": _sequence,
    "builtins.frozenset": _sequence,
    "builtins.bytearray": _bytes,
    "builtins.bytes": _bytes,
    "_codecs.encode": _encoded,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
    "copyreg._reconstructor": _reconstructed,
    "copyreg.__newobj__": _new_object,
}
