"""What was understood of one step's metadata serves the next one only where reading it in whole gives the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from muster_agent.formats import dcp_metadata
from muster_agent.formats.dcp_metadata import parse_plan
from muster_agent.formats.dcp_plan import Plan
from muster_agent.formats.dcp_steps import Beginning

from tests.agent.formats.test_dcp_runs import DATA, OPCODES, REAL, read, read_plainly
from tests.bench.metadata_writer import Shape, write_metadata

MUTANTS = 40
STEPS = [
    DATA / "dcp" / folder / ".metadata"
    for folder in ("torchtitan-steps/step-10", "torchtitan/step-15", "torchtitan-steps/step-20")
]


@pytest.fixture(autouse=True)
def nothing_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp_metadata._Latest, "read", None)


def beginning_of(data: bytes) -> Beginning:
    parse_plan(data)
    assert dcp_metadata._Latest.read is not None
    return dcp_metadata._Latest.read[0]


def test_real_steps_of_a_run_share_all_but_their_ends() -> None:
    plans = [parse_plan(path.read_bytes()) for path in STEPS]
    assert plans[0] is plans[1] is plans[2]


def test_a_step_with_another_shape_is_read_in_whole(tmp_path: Path) -> None:
    plans = []
    for ranks in (3, 4, 3):
        write_metadata(tmp_path / ".metadata", Shape(2, ranks))
        plans.append(parse_plan((tmp_path / ".metadata").read_bytes()))
    assert [len(plan.records) for plan in plans] == [6, 8, 6]


WHOLE = [path for path in REAL if "hostile" not in path.parts]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: str(path.relative_to(DATA)))
def test_any_end_behind_a_known_beginning_is_read_as_in_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = path.read_bytes()
    begin = len(beginning_of(data).data)
    chance = random.Random(str(path.relative_to(DATA)))
    for _ in range(MUTANTS):
        end = bytearray(data[begin:])
        for _ in range(chance.choice((1, 2, 3))):
            at = chance.randrange(len(end))
            new = chance.choice((bytes([chance.randrange(256)]), b"h\x01", bytes([chance.choice(OPCODES)])))
            end[at : at + chance.choice((0, 1, 2))] = new
        sample = data[:begin] + bytes(end)
        assert read(sample) == read_plainly(sample, monkeypatch)


def test_an_end_that_changes_what_lies_before_it_leaves_the_known_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text and dictionaries of the beginning are numbered, so that the end may add to them."""
    data = STEPS[0].read_bytes()
    begin = len(beginning_of(data).data)
    known = parse_plan(data)
    before = len(known.tensors), len(known.records)
    for place in range(0, 256, 9):
        for change in (b"\x8c\x01xNs0", b"(\x8c\x01xNu0", b"Na0", b"}b0"):
            sample = data[:begin] + b"h" + bytes([place]) + change + data[begin:]
            assert read(sample) == read_plainly(sample, monkeypatch)
    assert (len(known.tensors), len(known.records)) == before
    assert parse_plan(data) == known
    assert isinstance(read_plainly(data, monkeypatch), Plan)
