"""Reading a place for a while: by fio where it is installed, by the built-in reader everywhere, and never writing."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from muster_agent.jobs.bandwidth import RunnerUnavailable, prepare
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.protocol.measuring import BandwidthParams

MIB = 1 << 20
GDSIO = """#!{python}
print("IoType: READ XferType: GPUD Threads: 8 DataSetSize: 8388608/8388608(KiB) IOSize: 4096(KiB) "
      "Throughput: 8.000000 GiB/sec, Avg_Latency: 1.0 usecs ops: 2048 total_time 1.000000 secs")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    for number in range(4):
        (folder / f"shard-{number}").write_bytes(os.urandom(8 * MIB))
    return folder


def params(place: Path, **given: object) -> BandwidthParams:
    return BandwidthParams(root=str(place), **{"seconds": 1.0, "depth": 4, **given})  # type: ignore[arg-type]


def seen(place: Path) -> list[tuple[str, int, int]]:
    return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in place.iterdir())


def test_the_built_in_reader_measures_a_rate_and_writes_nothing(place: Path) -> None:
    before = seen(place)
    report = prepare(params(place, runner="builtin")).run(JobControl()).report
    assert report.bytes == 32 * MIB
    assert report.bytes_per_second == pytest.approx(report.bytes / report.seconds)
    assert (report.verified, report.phases["read"], report.evidence["runner"]) == (None, report.seconds, "builtin")
    assert seen(place) == before


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_fio_really_reads_for_the_time_that_was_asked_for(place: Path) -> None:
    before = seen(place)
    report = prepare(params(place, runner="fio")).run(JobControl()).report
    assert report.bytes > 0 and 0.5 < report.seconds < 20
    assert report.evidence["method"] == "fio io_uring 4 MiB x 4"
    assert seen(place) == before


def test_nodes_that_read_at_once_take_different_files_where_there_are_enough(place: Path) -> None:
    first = {path for path, _size in prepare(params(place, part=(0, 2))).files}
    second = {path for path, _size in prepare(params(place, part=(1, 2))).files}
    assert len(first) == len(second) == 2 and not first & second
    assert len(prepare(params(place, part=(0, 4))).files) == 4


def test_a_runner_that_is_not_installed_or_unknown_says_what_to_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(RunnerUnavailable, match="elbencho is not installed on this node"):
        prepare(params(place, runner="elbencho"))
    with pytest.raises(RunnerUnavailable, match="is no runner"):
        prepare(params(place, runner="dd"))
    assert prepare(params(place)).runner == "builtin"


def test_gdsio_is_taken_with_a_gpu_and_never_believed_that_it_went_straight(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "gdsio"
    program.parent.mkdir()
    program.write_text(GDSIO.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    report = prepare(params(place, gpu=0)).run(JobControl()).report
    assert report.bytes_per_second == pytest.approx(8 * 2**30)
    assert (report.effective, "may have fallen back" in report.reason) == ("unknown", True)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_cancelling_ends_the_program_within_seconds(place: Path) -> None:
    control, began = JobControl(), time.monotonic()
    threading.Timer(0.5, control.cancel).start()
    with pytest.raises(Cancelled):
        prepare(params(place, runner="fio", seconds=60.0)).run(control)
    assert time.monotonic() - began < 10
