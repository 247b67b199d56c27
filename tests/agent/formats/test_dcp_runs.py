"""Reading regular entries as a whole gives what reading them opcode by opcode gives, of any bytes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from muster_agent.formats import dcp_metadata, dcp_runs
from muster_agent.formats.dcp_metadata import parse_plan
from muster_agent.formats.dcp_plan import Plan
from muster_agent.formats.pickle_reader import PickleRefused

from tests.bench.metadata_writer import Shape, write_metadata

DATA = Path(__file__).parents[2] / "data"
REAL = sorted(DATA.rglob(".metadata"))
MUTANTS = 60
OPCODES = b"hjKMJ\x8a\x8c\x94)\x85\x86\x87Rub(}\x81tN.qrp0"


def read(data: bytes) -> Plan | tuple[str, bool, bool]:
    try:
        return parse_plan(data)
    except PickleRefused as refused:
        return refused.reason, refused.unsafe, refused.too_large


def read_plainly(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Plan | tuple[str, bool, bool]:
    with monkeypatch.context() as patched:
        patched.setattr(dcp_metadata._Latest, "read", None)
        patched.setattr(dcp_metadata, "_runs", lambda _machine: {})
        return read(data)


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, kind = chance.randrange(len(changed)), chance.randrange(5)
        if kind == 0:
            changed[at] = chance.randrange(256)
        elif kind == 1:
            del changed[at : at + chance.randrange(1, 4)]
        elif kind == 2:
            changed[at] = chance.choice(OPCODES)
        elif kind == 3:
            begin, count = chance.randrange(len(changed)), chance.randrange(1, 90)
            changed[at : at + count] = changed[begin : begin + count]
        else:
            changed[at:at] = bytes([chance.randrange(256)])
    return bytes(changed)


@pytest.fixture(autouse=True)
def nothing_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp_metadata._Latest, "read", None)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    place = tmp_path_factory.mktemp("metadata") / ".metadata"
    write_metadata(place, Shape(7, 40))
    return place.read_bytes()


@pytest.mark.parametrize("path", REAL, ids=lambda path: str(path.relative_to(DATA)))
def test_runs_read_real_metadata_and_damaged_ones_like_the_machine(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = path.read_bytes()
    chance = random.Random(str(path.relative_to(DATA)))
    for sample in (data, *(mutated(data, chance) for _ in range(MUTANTS))):
        assert read(sample) == read_plainly(sample, monkeypatch)


def test_runs_read_most_of_large_metadata(written: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = read(written)
    assert plan == read_plainly(written, monkeypatch)
    assert isinstance(plan, Plan)
    assert len(plan.records) == 280
    runs: list[int] = []
    plain = dcp_runs.Index.__init__

    def counted(self: dcp_runs.Index, name: str, offsets: dcp_runs.Offsets | None) -> None:
        runs.append(1)
        plain(self, name, offsets)

    monkeypatch.setattr(dcp_runs, "Index", type("Index", (dcp_runs.Index,), {"__init__": counted}))
    monkeypatch.setattr(dcp_metadata._Latest, "read", None)
    with pytest.raises(PickleRefused):
        parse_plan(written)  # a class of the test's own is no index; only how many were made matters here
    assert len(runs) > 200


def test_runs_read_damaged_large_metadata_like_the_machine(written: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    for _ in range(MUTANTS):
        sample = mutated(written, chance)
        assert read(sample) == read_plainly(sample, monkeypatch)


def test_a_name_that_no_metadata_needs_ends_the_reading_within_a_run(written: bytes) -> None:
    at = written.rindex(b"\x8c", 0, written.rindex(b"__39_0.distcp"))
    code = b"\x8c\x02os\x94\x8c\x06system\x94\x93"
    refused = read(written[:at] + code + written[at:])
    assert isinstance(refused, tuple)
    assert refused[1]


def test_a_frame_in_the_midst_of_a_run_ends_it_without_harm(written: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    at = written.rindex(b"ubj") + 2
    sample = written[:at] + b"\x95" + struct.pack("<Q", 10) + written[at:]
    assert read(sample) == read_plainly(sample, monkeypatch)
