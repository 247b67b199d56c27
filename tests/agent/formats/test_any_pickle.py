"""Real pickles, bent: whatever a flipped bit, a cut or a splice makes of them, reading gives a value or a refusal."""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from muster_agent.formats.dcp_metadata import parse_plan
from muster_agent.formats.pickle_lean import LEAN_TABLE, LeanMachine
from muster_agent.formats.pickle_machine import Machine, PickleRefused, Record, Symbol
from muster_agent.formats.pickle_opcodes import OPCODES, TABLE
from muster_agent.formats.torch_pickle import named_tensors, read_one, read_torch_pickle

from tests.agent.formats.fuzz import examples

DATA = Path(__file__).parents[2] / "data"
TORCH = [path.read_bytes() for path in sorted((DATA / "torch_pickle").glob("*.p*"))]
PLANS = [path.read_bytes() for path in sorted((DATA / "dcp").glob("*/*/*.metadata"))]
SECONDS = 2.0

bends = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 255)), min_size=1, max_size=6)


def assert_read_or_refused(data: bytes) -> None:
    """What is slow by itself is slow twice; a pause of the collector, late in a long run, comes once."""
    assert seconds_for(data) < SECONDS or seconds_for(data) < SECONDS


def seconds_for(data: bytes) -> float:
    began = time.process_time()
    try:
        read, _end = read_one(data)
        list(named_tensors(read.value))
    except PickleRefused as refused:
        assert refused.reason
    try:
        parse_plan(data)
    except PickleRefused as refused:
        assert refused.reason
    return time.process_time() - began


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(TORCH + PLANS), bends)
def test_flipped_bytes(data: bytes, changes: list[tuple[int, int]]) -> None:
    bent = bytearray(data)
    for place, byte in changes:
        bent[place % len(bent)] = byte
    assert_read_or_refused(bytes(bent))


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(TORCH + PLANS), st.integers(0, 20_000), st.integers(0, 2_000))
def test_cuts(data: bytes, begin: int, count: int) -> None:
    begin %= len(data)
    assert_read_or_refused(data[:begin] + data[begin + count :])


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(TORCH + PLANS), st.sampled_from(TORCH + PLANS), st.integers(0, 20_000), st.integers(0, 20_000))
def test_splices(one: bytes, other: bytes, first: int, second: int) -> None:
    first, second = first % len(one), second % len(other)
    assert_read_or_refused(one[:first] + other[second:])
    assert_read_or_refused(one[:first] + other[second : second + 40] + one[first:])


opcodes = st.lists(
    st.sampled_from(sorted(OPCODES)).flatmap(
        lambda letter: st.binary(max_size=9 if letter in b"cipgSVIF" else 4).map(lambda rest: letter + rest)
    )
    | st.sampled_from(
        [b"ctorch\nSize\n", b"ccollections\nOrderedDict\n", b"\x8c\x01a", b"K\x01", b"h\x00", b"q\x00", b"("]
    ),
    max_size=60,
)


@settings(max_examples=examples(300), deadline=None)
@given(opcodes)
@example([b"ctorch\nSize\n", b")", b"\x81", b"\x94", b"}", b"\x94", b"(", b"u", b"b"])
def test_random_opcodes(parts: list[bytes]) -> None:
    assert_read_or_refused(b"\x80\x04" + b"".join(parts) + b".")


# -- the lean machine is the machine ----------------------------------------------------------------------------------
NAMES = frozenset({"torch.Size", "collections.OrderedDict", "pathlib.PosixPath"})


def shape_of(value: Any, known: dict[int, int]) -> Any:
    """Comparable, and equal only where sharing is equal too."""
    if isinstance(value, (list, dict, Record)):
        if id(value) in known:
            return ("same", known[id(value)])
        known[id(value)] = len(known)
    match value:
        case Symbol(name=name):
            return ("symbol", name)
        case Record(name=name, args=args, state=state):
            return ("record", name, shape_of(args, known), shape_of(state, known))
        case dict():
            return ("dict", [(shape_of(key, known), shape_of(part, known)) for key, part in value.items()])
        case list() | tuple():
            return (type(value).__name__, [shape_of(part, known) for part in value])
        case _:
            return repr(value)


def outcome(machine: Machine, table: Any) -> Any:
    try:
        return shape_of(machine.run(table), {})
    except PickleRefused as refused:
        return ("refused", refused.unsafe)


@settings(max_examples=examples(300), deadline=None)
@given(opcodes)
@example([b"\x94}"])
def test_taking_opcodes_together_gives_what_they_give_one_by_one(parts: list[bytes]) -> None:
    data = b"\x80\x04" + b"".join(part for part in parts if part[:1] not in (b"g", b"p", b"r", b"q")) + b"."
    assert outcome(LeanMachine(data, NAMES, NAMES), LEAN_TABLE) == outcome(Machine(data, NAMES, NAMES), TABLE)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_that_are_referred_to_from_afar_are_kept(protocol: int) -> None:
    shared = [[index] for index in range(1000)]
    data = pickle.dumps([shared, list(reversed(shared)), "j" * 1000], protocol)
    first, second, _ = LeanMachine(data, NAMES, NAMES).run(LEAN_TABLE)
    assert first == shared
    assert all(one is other for one, other in zip(first, reversed(second), strict=True))


def test_most_values_are_not_kept() -> None:
    data = pickle.dumps([[index] for index in range(100_000)], 4)
    machine = LeanMachine(data, NAMES, NAMES)
    assert len(machine.run(LEAN_TABLE)) == 100_000
    assert len(machine.places) < 1000
    assert read_torch_pickle(data).value[-1] == [99_999]
