from __future__ import annotations

import collections
import os
import pathlib
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.formats.pickle_reader import PickleRefused, Record, read_pickle

from tests.agent.formats.fuzz import examples

HOSTILE = Path(__file__).parents[2] / "data" / "hostile"
NAMES = frozenset({"collections.OrderedDict", "pathlib.PosixPath"})


def read(data: bytes) -> Any:
    return read_pickle(data, NAMES, NAMES)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(max_examples=examples(300), deadline=None)
@given(plain, st.integers(3, 5))
def test_plain_values_of_the_binary_protocols_come_back_equal(value: object, protocol: int) -> None:
    assert read(pickle.dumps(value, protocol)) == value


def test_shared_values_stay_shared() -> None:
    inner = [1]
    first, second = read(pickle.dumps([inner, inner], 4))
    assert first is second


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_an_allowed_name_becomes_an_inert_record(protocol: int) -> None:
    path = read(pickle.dumps(pathlib.PosixPath("/a/b"), protocol))
    assert isinstance(path, Record)
    assert (path.name, path.args) == ("pathlib.PosixPath", ("/", "a", "b"))


def test_an_ordered_dictionary_becomes_a_dictionary() -> None:
    assert read(pickle.dumps(collections.OrderedDict(a=1, b=2), 4)) == {"a": 1, "b": 2}


class Attack:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_call_of_the_shell_is_refused_and_never_made(tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    attack = pickle.dumps({"a": [Attack(os.system, f"touch {made}")]}, protocol)
    with pytest.raises(PickleRefused) as refused:
        read(attack)
    assert refused.value.unsafe
    assert "posix.system" in refused.value.reason
    assert not made.exists()


def test_a_name_that_is_put_together_at_run_time_is_refused() -> None:
    with pytest.raises(PickleRefused, match="computes the name") as refused:
        read(b"\x80\x04K\x01\x8c\x06system\x93.")
    assert refused.value.unsafe


def test_setting_state_on_a_list_or_calling_a_text_is_refused() -> None:
    for data in (b"\x80\x04]}b.", b"\x80\x04\x8c\x01x)R.", b"\x80\x04\x8c\x01x)\x81."):
        with pytest.raises(PickleRefused) as refused:
            read(data)
        assert refused.value.unsafe


@pytest.mark.parametrize("name", ["ext-opcode.pkl", "huge-binbytes8.pkl", "huge-long4.pkl", "protocol0-inst.pkl"])
def test_hostile_files_are_refused(name: str) -> None:
    with pytest.raises(PickleRefused):
        read((HOSTILE / name).read_bytes())


@pytest.mark.parametrize("letter", [b"\x8d", b"\x8e", b"\x96"])
def test_a_length_beyond_the_file_is_refused_before_anything_is_allocated(letter: bytes) -> None:
    with pytest.raises(PickleRefused):
        read(b"\x80\x05" + letter + struct.pack("<Q", 2**40) + b"x")


def test_deep_nesting_costs_no_recursion() -> None:
    deep = b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b"."
    assert len(read(deep)) == 1
    with pytest.raises(PickleRefused) as refused:
        read(b"\x80\x04" + b"(" * 5_000)
    assert refused.value.too_large


def test_a_deep_tuple_is_a_key_by_identity_only() -> None:
    (key,) = read(b"\x80\x04})" + b"\x85" * 500_000 + b"K\x01s.")
    assert isinstance(key, Record)


def test_an_endless_stack_is_refused() -> None:
    with pytest.raises(PickleRefused) as refused:
        read(b"\x80\x04" + b"N" * 1_100_000)
    assert refused.value.too_large


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read(data)
    except PickleRefused as refused:
        assert refused.reason


@settings(max_examples=examples(300), deadline=None)
@given(plain, st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_is_read_or_refused(value: object, place: int, byte: int) -> None:
    data = bytearray(pickle.dumps(value, 4))
    data[place % len(data)] = byte
    try:
        read(bytes(data))
    except PickleRefused as refused:
        assert refused.reason
