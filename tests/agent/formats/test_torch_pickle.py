from __future__ import annotations

import argparse
import array
import collections
import collections.abc
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import http
import inspect
import io
import ipaddress
import math
import os
import pathlib
import pickle
import random
import re
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import numpy
import pytest
from muster_agent.formats.torch_pickle import (
    PickleRefused,
    Record,
    StorageRef,
    Symbol,
    TensorValue,
    TorchPickle,
    named_tensors,
    read_one,
    read_torch_pickle,
)

DATA = Path(__file__).parents[2] / "data" / "torch_pickle"
LISTED = sorted(
    path.stem for path in DATA.glob("*.pkl") if path.stem not in ("custom-class", "nvrx-local", "reduce-eval")
)


def sample(name: str) -> TorchPickle:
    return read_torch_pickle((DATA / f"{name}.pkl").read_bytes())


def dumped(value: object, protocol: int = 2) -> TorchPickle:
    return read_torch_pickle(pickle.dumps(value, protocol))


# -- real files --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", LISTED)
def test_files_of_known_writers_hold_listed_names_only(name: str) -> None:
    read = sample(name)
    assert (read.unsafe, read.custom) == (frozenset(), frozenset())


def test_views_of_one_storage_share_its_key() -> None:
    read = sample("zip")
    weight, view = read.value["model"]["w"], read.value["model"]["w_view"]
    assert weight == TensorValue(StorageRef("0", "float32", 64, "cpu"), 0, (8, 8), (8, 1), "float32")
    assert (view.storage, view.offset_elements, view.shape) == (weight.storage, 16, (2, 8))
    assert read.storages == {"0": weight.storage, "1": StorageRef("1", "bfloat16", 8, "cpu")}
    assert (read.value["step"], read.value["epoch"]) == (1234, 2)


def test_a_legacy_file_is_read_pickle_by_pickle() -> None:
    data, end, values = (DATA / "legacy.pt").read_bytes(), 0, []
    for _ in range(5):
        read, end = read_one(data, end)
        values.append(read)
    assert (values[0].value, values[1].value) == (0x1950A86A20F9469CFC6C, 1001)
    assert values[2].value["little_endian"] is True
    assert values[3].value["step"] == 1234
    assert sorted(values[3].storages) == values[4].value
    assert end < len(data)


def test_arguments_of_a_megatron_run_are_readable() -> None:
    read = sample("megatron-common")
    assert (read.value["iteration"], read.value["args"].get("world_size")) == (100, 4)


def test_a_parameter_spread_over_ranks_gives_its_local_tensor_and_global_size() -> None:
    read = sample("fsdp-rank")
    names = dict(named_tensors(read.value))
    assert names["model.embed_tokens.weight._local_tensor"].shape == (32, 16)
    assert read.value["model.embed_tokens.weight"].args[2] == (64, 16)


def test_a_class_of_the_training_script_is_custom_and_what_it_holds_is_read() -> None:
    read = sample("nvrx-local")
    assert (read.custom, read.unsafe) == ({"__mp_main__.CpuSD"}, frozenset())
    assert read.value.get("state_dict")["iteration"] == 20
    assert [name for name, _ in named_tensors(read.value)] == ["state_dict.w"]


def test_a_call_of_eval_is_unsafe_and_the_step_beside_it_is_read() -> None:
    read = sample("reduce-eval")
    assert (read.unsafe, read.value["step"]) == ({"builtins.eval"}, 3)


# -- values ------------------------------------------------------------------------------------------------------------
class Colour(enum.Enum):
    RED = "red"


class ByName(enum.Enum):
    """As Python 3.11.0 to 3.11.3 pickle every enumeration."""

    RED = "red"

    def __reduce_ex__(self, _protocol: object) -> Any:
        return getattr, (type(self), self.name)


class Outer:
    class Inner:
        def __init__(self) -> None:
            self.rank = 3

    class Mode(enum.Enum):
        FAST = "fast"


class Bag(dict[str, int]):
    pass


class Row(list[int]):
    pass


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.defaultdict(list, a=[1]), {"a": [1]}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.deque([1, 2], maxlen=5), [1, 2]),
        ({3}, [3]),
        (frozenset({3}), [3]),
        (bytearray(b"\xff\x00"), b"\xff\x00"),
        (b"\xff\x00", b"\xff\x00"),
        (numpy.int64(7), 7),
        (numpy.uint8(200), 200),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), True),
        ([1, -1, 2**40, 1.5, True, None, "ü", "line\n"], [1, -1, 2**40, 1.5, True, None, "ü", "line\n"]),
        (random.Random(1).getstate(), random.Random(1).getstate()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_containers_and_numbers_are_given_as_built_in_values(value: Any, expected: Any, protocol: int) -> None:
    read = dumped(value, protocol)
    assert (read.value, read.unsafe, read.custom) == (expected, frozenset(), frozenset())


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value",
    [
        argparse.Namespace(a=1),
        pathlib.PurePosixPath("/a"),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        datetime.timedelta(1),
        functools.partial(int, "3"),
        complex(1, 2),
        slice(1, 2),
        range(3),
        numpy.arange(3),
        numpy.random.default_rng(1).bit_generator.state,
        numpy.random.RandomState(1),
        object,
        signal.SIGTERM,
        signal.SIG_DFL,
        re.compile("a+"),
        re.IGNORECASE,
        time.gmtime(0),
        ValueError("x"),
        FileNotFoundError(2, "x"),
        inspect.Parameter.empty,
        dataclasses.MISSING,
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_network("10.0.0.0/8"),
        array.array("i", [1]),
        collections.ChainMap({"a": 1}),
        uuid.UUID(int=5),
        decimal.Decimal("1.5"),
        fractions.Fraction(1, 3),
        http.HTTPStatus.OK,
        type(None),
        math.cos,
        len,
        collections.abc.Mapping,
    ],
    ids=lambda value: type(value).__name__,
)
def test_harmless_objects_of_libraries_are_quiet(value: Any, protocol: int) -> None:
    read = dumped(value, protocol)
    assert (read.unsafe, read.custom) == (frozenset(), frozenset())


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_buffer_of_bytes_is_quiet(protocol: int) -> None:
    read = dumped({"_extra_state": io.BytesIO(b"abc")}, protocol)
    assert (read.unsafe, read.custom) == (frozenset(), frozenset())


def test_items_of_own_dictionaries_and_lists_are_readable() -> None:
    read = dumped({"bag": Bag(step=3), "row": Row([1, 2])})
    assert read.value["bag"].get("step") == 3
    assert read.value["row"].items == [1, 2]
    assert len(read.custom) == 2


def test_a_member_of_an_enumeration_of_the_script_is_custom() -> None:
    read = dumped({"step": 7, "colour": Colour.RED, "signal": signal.SIGTERM})
    assert (read.unsafe, read.custom) == (frozenset(), {f"{__name__}.Colour"})


@pytest.mark.parametrize("protocol", range(6))
def test_a_member_of_an_enumeration_that_is_asked_for_by_name_is_custom(protocol: int) -> None:
    read = dumped({"step": 7, "colour": ByName.RED, "again": [ByName.RED]}, protocol)
    assert (read.unsafe, read.custom, read.value["step"]) == (frozenset(), {f"{__name__}.ByName"}, 7)


@pytest.mark.parametrize("protocol", range(6))
def test_a_class_inside_another_is_custom_and_what_it_holds_is_read(protocol: int) -> None:
    read = dumped({"inner": Outer.Inner(), "mode": Outer.Mode.FAST}, protocol)
    assert read.unsafe == frozenset()
    assert {name.split(".Inner")[0].split(".Mode")[0] for name in read.custom} == {f"{__name__}.Outer"}
    assert read.value["inner"].get("rank") == 3


def test_listed_enumerations_are_quiet_by_name_and_flags_may_be_joined() -> None:
    stage = b"c__builtin__\ngetattr\n(cdeepspeed.runtime.zero.config\nZeroStageEnum\nX\x07\x00\x00\x00weightstR"
    read = read_torch_pickle(b"\x80\x02" + stage + b".")
    assert (read.unsafe, read.custom) == (frozenset(), frozenset())
    flags = read_torch_pickle(b"\x80\x02c_operator\nor_\n(" + stage + stage + b"tR.")
    assert (flags.unsafe, flags.custom) == (frozenset(), frozenset())


@pytest.mark.parametrize(
    "data",
    [
        b"cbuiltins\ngetattr\n(clib\nThing\nX\x08\x00\x00\x00__init__tR",
        b"cbuiltins\ngetattr\n(clib\nThing\nX\x03\x00\x00\x00runtRX\x01\x00\x00\x00x\x85R",
        b"cbuiltins\ngetattr\n(clib\nthing\nX\x03\x00\x00\x00RUNtR",
        b"cbuiltins\ngetattr\n(clib\nThing\n)\x81X\x03\x00\x00\x00RUNtR",
        b"cbuiltins\ngetattr\n(clib\nThing\nX\x03\x00\x00\x00RUNtR}b",
        b"cbuiltins\ngetattr\n(cbuiltins\neval\nX\x03\x00\x00\x00RUNtR",
        b"c_operator\nor_\n(]]tR",
    ],
)
def test_looking_up_more_than_a_part_of_a_class_is_unsafe(data: bytes) -> None:
    assert read_torch_pickle(b"\x80\x02" + data + b".").unsafe


@pytest.mark.parametrize(
    ("target", "args"),
    [
        (b"clib\nrun\n", b"X\x01\x00\x00\x00x\x85"),
        (b"clib.subprocess\nPopen\n", b"X\x01\x00\x00\x00x\x85"),
        (b"cpsutil\nPopen\n", b"X\x01\x00\x00\x00x\x85"),
        (b"clib\nThing\n", b"]\x85"),
        (b"clib\nThing\n", b"K\x01K\x02\x86"),
        (b"csubprocess\nPopen\n", b"X\x01\x00\x00\x00x\x85"),
        (b"ctorch\nload\n", b"X\x01\x00\x00\x00x\x85"),
        (b"ctorch.jit\nCompilationUnit\n", b"X\x01\x00\x00\x00x\x85"),
        (b"cbuiltins\ntype\n", b"X\x01\x00\x00\x00x)}\x87"),
        (b"cbuiltins\ngetattr\n", b"K\x01K\x02\x86"),
        (b"coperator\nattrgetter\n", b"X\x01\x00\x00\x00x\x85"),
    ],
)
def test_a_call_that_is_more_than_a_value_of_a_class_is_unsafe(target: bytes, args: bytes) -> None:
    read = read_torch_pickle(b"\x80\x02" + target + args + b"R.")
    assert (len(read.unsafe), read.custom) == (1, frozenset())


def test_objects_and_functions_of_torch_are_neither_custom_nor_unsafe_and_its_loaders_are_unsafe() -> None:
    quiet = read_torch_pickle(b"\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81ctorch.nn.functional\nrelu\n\x86.")
    assert (quiet.unsafe, quiet.custom) == (frozenset(), frozenset())
    assert read_torch_pickle(b"\x80\x02ctorch.hub\nload\n.").unsafe == {"torch.hub.load"}


def test_setting_an_attribute_of_a_class_is_unsafe() -> None:
    assert read_torch_pickle(b"\x80\x02ctorch.nn\nModule\n}b.").unsafe == {"an attribute of torch.nn.Module"}


@pytest.mark.parametrize("protocol", range(6))
def test_attributes_set_on_plain_containers_do_not_stop_the_reading(protocol: int) -> None:
    state = collections.OrderedDict(w=1)
    state._metadata = {"version": 1}  # type: ignore[attr-defined]
    assert dumped(state, protocol).value == {"w": 1}


def test_keys_that_could_collide_are_kept_by_identity() -> None:
    prime = (1 << 61) - 1
    keys = b"".join(b"\x8a\x0b" + (index * prime).to_bytes(11, "little") + b"N" for index in range(2, 60_000))
    began = time.monotonic()
    read = read_torch_pickle(b"\x80\x04}(" + keys + b"K\x01K\x02\x86K\x03u.")
    assert len(read.value) == 59_999
    assert time.monotonic() - began < 5


def test_tensors_of_every_rebuild_function() -> None:
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x08tQ"
    view = storage + b"K\x02K\x03\x85K\x01\x85"
    for call in (
        b"ctorch._utils\n_rebuild_tensor\n(" + view + b"tR",
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + view + b"\x89N}tR",
        b"ctorch._utils\n_rebuild_parameter\n(ctorch._utils\n_rebuild_tensor_v2\n(" + view + b"\x89NtR\x88NtR",
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n("
        + view + b"\x89Nt}tR",
    ):  # fmt: skip
        read = read_torch_pickle(b"\x80\x02" + call + b".")
        assert (read.value, read.unsafe) == (
            TensorValue(StorageRef("0", "float32", 8, "cpu"), 2, (3,), (1,), "float32"),
            frozenset(),
        )
    third = b"\x80\x02ctorch._utils\n_rebuild_tensor_v3\n(" + view + b"\x89Nctorch\nfloat8_e4m3fn\ntR."
    assert read_torch_pickle(third).value.dtype == "float8_e4m3fn"


def test_malformed_tensors_stay_inert_records() -> None:
    for args in (b"()", b"(NNNNt", b"(K\x01K\x02K\x03K\x04t"):
        read = read_torch_pickle(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + args.replace(b"()", b")") + b"R.")
        assert isinstance(read.value, Record)


# -- names -------------------------------------------------------------------------------------------------------------
class Attack:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ((os.system, "touch x"), "posix.system"),
        ((eval, "1"), "builtins.eval"),
        ((getattr, "", "join"), "builtins.getattr"),
        ((numpy.load, "x"), "numpy.load"),
    ],
)
def test_calls_of_functions_are_unsafe_at_every_protocol(call: tuple[Any, ...], name: str, protocol: int) -> None:
    read = dumped({"step": 7, "x": Attack(*call)}, protocol)
    assert read.unsafe == {name}
    assert read.value["step"] == 7


def test_a_mere_reference_to_the_standard_library_is_unsafe_and_one_to_another_library_is_custom() -> None:
    read = read_torch_pickle(b"\x80\x02(cos\nsystem\ncsome.package\nThing\nt.")
    assert (read.unsafe, read.custom) == ({"os.system"}, {"some.package.Thing"})
    assert all(type(part) is Symbol for part in read.value)


def test_a_way_through_a_listed_module_is_still_a_call_of_an_unlisted_name() -> None:
    read = read_torch_pickle(b"\x80\x04\x8c\x05torch\x8c\x17serialization.os.system\x93\x8c\x01x\x85R.")
    assert read.unsafe == {"torch.serialization.os.system"}


def test_a_function_handed_to_a_rebuild_function_counts_as_called() -> None:
    read = read_torch_pickle(b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(clib\nrun\nctorch\nTensor\n)NtR.")
    assert read.unsafe == {"lib.run"}


def test_a_stream_inside_a_storage_is_looked_into() -> None:
    inner = pickle.dumps(Attack(os.system, "x"), 2)
    outer = b"\x80\x02ctorch.storage\n_load_from_bytes\nB" + len(inner).to_bytes(4, "little") + inner + b"\x85R."
    assert read_torch_pickle(outer).unsafe == {"posix.system"}


def test_a_name_from_the_memo_is_the_name_that_counts() -> None:
    data = b"\x80\x04\x8c\x06system\x94\x8c\x02os\x94\x8c\x04Size\x8c\x05torch0000h\x01h\x00\x93\x8c\x01x\x85R."
    assert read_torch_pickle(data).unsafe == {"os.system"}


# -- walking -----------------------------------------------------------------------------------------------------------
def test_values_that_contain_themselves_are_walked_once() -> None:
    read = read_torch_pickle(b"\x80\x02]q\x00h\x00ah\x00a.")
    assert read.value[0] is read.value
    assert list(named_tensors(read.value)) == []


def test_a_tree_of_shared_lists_is_walked_in_no_time() -> None:
    level, laughs = [], pickle.dumps(None)
    for _ in range(60):
        level = [level, level]
    laughs = pickle.dumps(level, 2)
    assert list(named_tensors(read_torch_pickle(laughs).value, max_depth=100)) == []


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"<html>", b"\x80\x02.", b"\x80\x09N.", b"\x80\x02NN."])
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(PickleRefused):
        read_torch_pickle(data)
