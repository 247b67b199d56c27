"""The agent forwards every record at least once, misreads none, and removes only what is finished."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster_agent.hooks import RunReporter
from muster_agent.hooks.paths import WriterName, spool_name
from muster_agent.hooks.processes import read_stat
from muster_agent.hooks.spool_file import SpoolFile
from muster_agent.hooks.spool_reader import HookSpoolReader

RECORD = (
    b'{"source":"0123456789abcdef","seq":%d,"kind":"step","run":"run","attempt":"run-1","at_unix_seconds":1.0,'
    b'"mono_seconds":1.0,"step":%d}'
)
GONE = WriterName(pid=1, start_ticks=2**40, source="0123456789abcdef")
"""Process 1 exists, and did not start then: a pid that was reused."""


def record(seq: int) -> bytes:
    return RECORD % (seq, seq)


def myself() -> WriterName:
    stat = read_stat(os.getpid())
    assert stat is not None
    return WriterName(os.getpid(), stat.start_ticks, "0123456789abcdef")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def steps(reader: HookSpoolReader) -> list[int | None]:
    return [one.step for one in reader.read_new()]


def test_records_come_again_until_they_are_committed(tmp_path: Path) -> None:
    reporter = RunReporter("run", "run-1", directory=tmp_path)
    for step in range(3):
        reporter.step(step)
    reporter.close()
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == [0, 1, 2]
    assert steps(reader) == [0, 1, 2]
    reader.commit()
    assert steps(reader) == []


def test_what_was_committed_survives_a_restart_of_the_agent(tmp_path: Path) -> None:
    path = tmp_path / spool_name(myself(), 0)
    path.write_bytes(record(1) + b"\n" + record(2) + b"\n")
    first = HookSpoolReader(tmp_path)
    assert steps(first) == [1, 2]
    first.commit()
    with path.open("ab") as stream:
        stream.write(record(3) + b"\n")
    assert steps(HookSpoolReader(tmp_path)) == [3]


def test_a_commit_covers_only_what_was_read(tmp_path: Path) -> None:
    path = tmp_path / spool_name(myself(), 0)
    path.write_bytes(record(1) + b"\n")
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == [1]
    with path.open("ab") as stream:
        stream.write(record(2) + b"\n")
    reader.commit()
    assert steps(reader) == [2]


def test_half_a_line_of_a_living_writer_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / spool_name(myself(), 0)
    path.write_bytes(record(1) + b"\n" + record(2)[:40])
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == [1]
    reader.commit()
    assert steps(reader) == []
    with path.open("ab") as stream:
        stream.write(record(2)[40:] + b"\n")
    assert steps(reader) == [2]
    assert reader.malformed_records == 0


def test_the_torn_last_line_of_a_killed_writer_is_counted_and_never_misread(tmp_path: Path) -> None:
    path = tmp_path / spool_name(GONE, 0)
    whole = record(1) + b"\n"
    for cut in range(1, len(record(2))):
        path.write_bytes(whole + record(2)[:cut])
        reader = HookSpoolReader(tmp_path, state_path=tmp_path / "state.json")
        assert steps(reader) == [1], cut
        assert reader.malformed_records == 1
    reader.commit()
    assert not path.exists()


def test_a_killed_writers_last_record_that_lacks_only_its_newline_is_kept(tmp_path: Path) -> None:
    (tmp_path / spool_name(GONE, 0)).write_bytes(record(1) + b"\n" + record(2))
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == [1, 2]
    assert reader.malformed_records == 0


def test_lines_that_are_no_records_are_passed_over(tmp_path: Path) -> None:
    junk = [b"not json", b"{}", b'{"seq":"x"}', b"\xff\xfe", b"null", b"", b"[" * 100_000]
    (tmp_path / spool_name(GONE, 0)).write_bytes(b"\n".join([record(1), *junk, record(2)]) + b"\n")
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == [1, 2]
    assert reader.malformed_records == len(junk) - 1


def test_a_file_of_a_living_writer_stays_and_one_of_a_dead_writer_goes_once_forwarded(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    stat = read_stat(sleeper.pid)
    assert stat is not None
    path = tmp_path / spool_name(WriterName(sleeper.pid, stat.start_ticks, "0123456789abcdef"), 0)
    path.write_bytes(record(1) + b"\n")
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == [1]
    reader.commit()
    assert path.exists()
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert path.exists()
    assert steps(reader) == []
    reader.commit()
    assert not path.exists()


def test_a_file_is_not_removed_before_all_of_it_was_forwarded(tmp_path: Path) -> None:
    path = tmp_path / spool_name(GONE, 0)
    path.write_bytes(b"".join(record(seq) + b"\n" for seq in range(10)))
    reader = HookSpoolReader(tmp_path)
    seen: list[int | None] = []
    for _ in range(3):
        assert path.exists()
        seen += [one.step for one in reader.read_new(limit_records=4)]
        reader.commit()
    assert seen == list(range(10))
    assert not path.exists()


def test_a_file_whose_writer_holds_its_lock_stays_though_its_pid_means_nothing_here(tmp_path: Path) -> None:
    """A trainer in a container has another pid there than here."""
    writer = SpoolFile(tmp_path, GONE)
    writer.append(record(1) + b"\n")
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == [1]
    reader.commit()
    writer.append(record(2) + b"\n")
    assert steps(reader) == [2]
    writer.close()
    assert steps(reader) == [2]
    reader.commit()
    assert list(tmp_path.glob("*.jsonl")) == []


def test_offsets_that_cannot_be_stored_lose_and_remove_nothing(tmp_path: Path) -> None:
    path = tmp_path / spool_name(GONE, 0)
    path.write_bytes(record(1) + b"\n")
    reader = HookSpoolReader(tmp_path, state_path=tmp_path / "no-such-folder" / "state.json")
    assert steps(reader) == [1]
    with pytest.raises(OSError, match="no-such-folder"):
        reader.commit()
    assert path.exists()
    assert steps(reader) == [1]


@pytest.mark.parametrize("content", [b"", b"not json", b'{"x": 1}', b"[]"])
def test_a_damaged_offset_file_means_reading_again_not_losing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / spool_name(GONE, 0)).write_bytes(record(1) + b"\n")
    state = tmp_path / "state.json"
    state.write_bytes(content)
    assert steps(HookSpoolReader(tmp_path, state_path=state)) == [1]


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    others = ["notes.txt", "1-2-3.jsonl", "x.jsonl"]
    for name in others:
        (tmp_path / name).write_bytes(record(1) + b"\n")
    (tmp_path / spool_name(GONE, 0)).symlink_to(tmp_path / "notes.txt")
    reader = HookSpoolReader(tmp_path)
    assert steps(reader) == []
    reader.commit()
    assert {path.name for path in tmp_path.iterdir()} >= set(others)


def test_a_folder_that_does_not_exist_yet_holds_nothing(tmp_path: Path) -> None:
    reader = HookSpoolReader(tmp_path / "later")
    assert steps(reader) == []
    reader.commit()


def test_a_line_without_end_does_not_stop_the_agent(tmp_path: Path) -> None:
    path = tmp_path / spool_name(GONE, 0)
    path.write_bytes(b"x" * (4 * 1024 * 1024 + 10) + b"\n" + record(1) + b"\n")
    reader = HookSpoolReader(tmp_path)
    seen: list[int | None] = []
    for _ in range(3):
        seen += steps(reader)
        reader.commit()
    assert seen == [1]
    assert not path.exists()


@pytest.mark.parametrize("delay_seconds", [0.02, 0.05, 0.2, 0.5])
def test_a_writer_killed_at_any_moment_leaves_an_unbroken_sequence(tmp_path: Path, delay_seconds: float) -> None:
    code = (
        "import sys; from muster_agent.hooks import RunReporter\n"
        "reporter = RunReporter('run', 'run-1', directory=sys.argv[1])\n"
        "reporter.process_started(); print('up', flush=True)\n"
        "step = 0\n"
        "while True:\n    step += 1; reporter.step(step)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(delay_seconds)
    process.kill()
    process.wait()
    process.stdout.close()
    reader = HookSpoolReader(tmp_path)
    seqs: list[int] = []
    while batch := reader.read_new(limit_records=1000):
        seqs += [one.seq for one in batch]
        reader.commit()
    reader.commit()
    assert seqs == list(range(1, len(seqs) + 1))
    assert seqs or delay_seconds < 0.1
    assert list(tmp_path.glob("[0-9]*")) == []
