"""Files that are opened in turn, and brought near by several threads before."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from muster_agent.formats import child_tree
from muster_agent.formats.ahead import WINDOW, in_turn
from muster_agent.formats.base import Status
from muster_agent.formats.checkpoint import read_checkpoint
from muster_agent.formats.child_tree import AnsweringTree, AskingTree
from muster_agent.formats.child_wire import MAX_TOGETHER, Answer, OpenAll, Said
from muster_agent.formats.folder import look
from muster_agent.formats.limits import PICKLE_BYTES_HERE, _Here

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.dcp_factory import Piece, write_dcp


@pytest.mark.parametrize("count", [0, 3, 32, WINDOW + 100])
def test_each_is_brought_before_it_is_due_and_in_its_order(count: int) -> None:
    brought: set[str] = set()
    names = [f"shard-{number}" for number in range(count)]
    due = []
    for name in in_turn(names, brought.add):
        assert name in brought or count < 32
        due.append(name)
    assert due == names


def test_no_thread_is_left_where_the_loop_ends_early() -> None:
    for _ in in_turn(map(str, range(100)), lambda _: None):
        break
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("muster-ahead")]


def test_names_that_are_no_listed_files_are_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker may name anything; what leads elsewhere is refused by whoever opens it, and not opened before that."""
    folder = write_checkpoint(tmp_path / "run", 1, world_size=40, rank_bytes=600)
    marker = json.loads((folder / "checkpoint.json").read_text())
    (tmp_path / "outside.safetensors").write_bytes(b"x")
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    marker["files"] |= {"link.safetensors": 1, "absent.safetensors": 1}
    (folder / "checkpoint.json").write_text(json.dumps(marker))
    touched: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **named: touched.append(str(path)) or real(path, *more, **named)
    )
    found = read_checkpoint(folder, grace_seconds=0)
    assert {one.path for one in found.findings if one.code == "shard_missing"} == {"absent.safetensors"}
    assert not [path for path in touched if path.endswith(("link.safetensors", "absent.safetensors"))]


class _Counting(AskingTree):
    """Asks an answering tree in this process, and keeps what it asked."""

    def __init__(self, answering: AnsweringTree) -> None:
        self.answering, self.asked, self._ahead = answering, [], {}

    def ask(self, said: Said) -> Answer:
        self.asked.append(said)
        return self.answering._answer(said)

    def _taken(self, answer: Answer) -> child_tree.tree.Opened:
        return self.answering.files.pop(answer.file)  # type: ignore[union-attr]


def test_a_child_asks_once_for_many_files_and_hears_of_each(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number:03d}").write_bytes(b"%d" % number)
    names = sorted([*os.listdir(tmp_path), "absent"])
    asking = _Counting(AnsweringTree(look(str(tmp_path), str(tmp_path))))
    told: dict[str, bytes] = {}
    for path in asking.ahead(f"{tmp_path}/{name}" for name in names):
        try:
            with asking.open(path) as opened:
                told[os.path.basename(path)] = opened.pread(10, 0)
        except FileNotFoundError:
            told[os.path.basename(path)] = b"none"
    assert told == {**{f"{number:03d}": b"%d" % number for number in range(100)}, "absent": b"none"}
    assert len(asking.asked) == -(-len(names) // MAX_TOGETHER)
    with pytest.raises(ValueError, match="not a question"):
        asking.answering.answer(OpenAll([f"{tmp_path}/000"] * (MAX_TOGETHER + 1)))


def test_a_checkpoint_of_many_files_reads_the_same_in_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "step-00000001"
    pieces = [Piece(f"model.w{rank}", (0,), (4,), (4,)) for rank in range(70)]
    write_dcp(folder, {f"__{rank}_0.distcp": [piece] for rank, piece in enumerate(pieces)})
    (folder / "__33_0.distcp").write_bytes(b"\0" * (folder / "__33_0.distcp").stat().st_size)
    here = read_checkpoint(folder, grace_seconds=0)
    assert (folder / ".metadata").stat().st_size < PICKLE_BYTES_HERE
    monkeypatch.setattr(_Here, "pickle_bytes", 10)
    there = read_checkpoint(folder, grace_seconds=0)
    assert there == here and here.status is Status.CORRUPT
    assert {one.path for one in here.findings if one.code == "metadata_unreadable"} == {"__33_0.distcp"}
