from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from muster_agent.formats import child, limits
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.checkpoint import Later, begin_folder, now, read_checkpoint
from muster_agent.formats.child import Children, request_of
from muster_agent.formats.child_tree import AnsweringTree
from muster_agent.formats.child_wire import Look, Open, Opened, Take, Trouble
from muster_agent.formats.folder import look
from muster_agent.formats.posix_file import PosixFile
from muster_agent.formats.verdict import AgeLimit

Sample = Callable[[str], Path]


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every pickle is too large for this process."""
    monkeypatch.setattr(limits._Here, "pickle_bytes", 0)
    yield


def begun(place: Path, children: Children) -> ShardMap | Later:
    folder = look(str(place), str(place.parent))
    return begin_folder(folder, children, age_limit=AgeLimit(time.time(), 0), with_tensors=True)


@pytest.mark.parametrize(
    "name",
    [
        "w2/step-10",
        "w4-replicated/step-40",
        "w2-nocoll/step-60",
        "torchtitan/step-15",
        "crash/b-overwrite-killed/step-10",
    ],
)
def test_a_child_reads_what_this_process_would_read(sample: Sample, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = sample(f"dcp/{name}")
    here = read_checkpoint(place, grace_seconds=0)
    monkeypatch.setattr(limits._Here, "pickle_bytes", 0)
    assert read_checkpoint(place, grace_seconds=0) == here


@pytest.mark.usefixtures("nothing_here")
def test_the_caller_goes_on_while_children_read(sample: Sample) -> None:
    with Children() as children:
        later = [begun(sample(f"dcp/{name}"), children) for name in ("w2/step-10", "w2-nocoll/step-60")]
        assert all(isinstance(one, Later) for one in later)
        assert {now(one).status for one in later} == {Status.COMPLETE}


def assert_only_noted(found: ShardMap) -> None:
    """It says why nothing is known, and calls nothing damaged or missing."""
    (note,) = found.findings
    assert (note.code, note.severity) == ("format_unknown", Severity.NOTE)
    assert note.detail in found.not_resumable_reasons and "muster explain" in note.cure


@pytest.mark.usefixtures("nothing_here")
def test_a_child_that_runs_out_of_memory_leaves_the_checkpoint_undecided(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "MEMORY_BYTES", 64 * 1024 * 1024)
    place = sample("dcp/w2/step-10")
    (place / ".metadata").write_bytes(b"\x80\x04" + b"}" * 900_000)
    found = read_checkpoint(place, grace_seconds=0)
    assert found.status is Status.UNKNOWN
    assert any("could not be read within" in reason for reason in found.not_resumable_reasons)
    assert_only_noted(found)


@pytest.mark.usefixtures("nothing_here")
def test_a_child_that_takes_too_long_leaves_the_checkpoint_undecided(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "WALL_SECONDS", 0.0)
    found = read_checkpoint(sample("dcp/w2/step-10"), grace_seconds=0)
    assert (found.status, found.resumable) == (Status.UNKNOWN, False)
    assert "it could not be read within 0 s" in found.not_resumable_reasons
    assert_only_noted(found)


@pytest.mark.usefixtures("nothing_here")
def test_a_child_that_dies_leaves_the_checkpoint_undecided(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.sys, "executable", "/bin/false")
    found = read_checkpoint(sample("dcp/w2/step-10"), grace_seconds=0)
    assert found.status is Status.UNKNOWN
    assert_only_noted(found)


@pytest.mark.usefixtures("nothing_here")
def test_a_child_that_cannot_be_started_leaves_the_checkpoint_undecided(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child.sys, "executable", "/nowhere/python")
    found = read_checkpoint(sample("dcp/w2/step-10"), grace_seconds=0)
    assert found.status is Status.UNKNOWN
    assert any("no process could be started" in reason for reason in found.not_resumable_reasons)


def test_small_metadata_of_many_ranks_is_read_in_a_child_where_it_is_large_together(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = sample("dcp/w2-nocoll/step-60")
    largest = max(path.stat().st_size for path in place.glob("*.metadata"))
    monkeypatch.setattr(limits._Here, "pickle_bytes", largest)
    with Children() as children:
        assert isinstance(begun(place, children), Later)


@pytest.mark.usefixtures("nothing_here")
def test_leaving_the_block_ends_the_child(sample: Sample) -> None:
    with Children() as children:
        later = begun(sample("dcp/w2/step-10"), children)
    assert isinstance(later, Later)
    assert later.result().status in (Status.UNKNOWN, Status.COMPLETE)


@pytest.fixture
def answering(sample: Sample) -> AnsweringTree:
    place = sample("dcp/w2/step-10")
    return AnsweringTree(look(str(place), str(place.parent)))


@pytest.mark.parametrize("path", ["/etc/passwd", "{place}/../../etc/passwd", "{place}x/a", "{place}/a\0b"])
def test_a_child_is_told_of_nothing_outside_of_the_checkpoint(answering: AnsweringTree, path: str) -> None:
    path = path.replace("{place}", answering.folder.path)
    for said in (Open(path), Look(path), Take(path, "x")):
        with pytest.raises(ValueError, match="outside"):
            answering.answer(said)


def test_files_come_as_descriptors_that_can_only_be_read(answering: AnsweringTree) -> None:
    answer, descriptors = answering.answer(Open(f"{answering.folder.path}/.metadata"))
    assert isinstance(answer, Opened) and answer.has_descriptor and len(descriptors) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(descriptors[0], b"x")
    answering.sent(answer)
    assert answering.files == {}


def test_trouble_with_a_file_is_told_as_such(answering: AnsweringTree) -> None:
    answer, _ = answering.answer(Open(f"{answering.folder.path}/absent"))
    assert isinstance(answer, Trouble) and answer.text == "No such file or directory"


def test_a_tree_without_descriptors_is_read_through_the_parent(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    place = sample("dcp/w2/step-10")
    folder = look(str(place), str(place.parent))

    class Remote:
        """A file of a bucket: no descriptor."""

        def __init__(self, path: str) -> None:
            self.inner = PosixFile(path)
            self.size_bytes = self.inner.size_bytes

        def pread(self, length_bytes: int, offset_bytes: int) -> bytes:
            return self.inner.pread(length_bytes, offset_bytes)

        def hole(self) -> None:
            return None

        def close(self) -> None:
            self.inner.close()

        def __enter__(self) -> Remote:
            return self

        def __exit__(self, *error: object) -> None:
            self.close()

    class Bucket(type(folder.tree)):  # type: ignore[misc]
        def open(self, path: str) -> Remote:
            return Remote(path)

    folder.tree = Bucket()
    with Children() as children:
        draft = children.start(request_of(folder, "dcp", with_tensors=True), folder).result()
    assert draft.format == "dcp" and draft.tensors and not draft.findings
