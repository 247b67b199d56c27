"""The ceiling of a place: what is read, from cold, and what the figure is worth."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from muster_agent.jobs import ceiling, ceiling_sources
from muster_agent.jobs.ceiling import Setting, measure_ceiling
from muster_agent.jobs.ceiling_sources import NothingToRead, largest_files
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.probes.fio import FioRate

MIB = 1 << 20


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for number, mebibytes in enumerate((3, 5, 1)):
        (tmp_path / f"shard-{number}").write_bytes(os.urandom(mebibytes * MIB))
    (tmp_path / "small.json").write_bytes(b"{}")
    (tmp_path / "link").symlink_to("shard-0")
    return tmp_path


def test_the_largest_files_are_read_and_links_are_not_followed(place: Path) -> None:
    assert [(os.path.basename(path), size) for path, size in largest_files(str(place))] == [
        ("shard-1", 5 * MIB),
        ("shard-0", 3 * MIB),
        ("shard-2", MIB),
    ]


def test_every_way_of_reading_reads_all_bytes_and_the_best_is_the_ceiling(place: Path) -> None:
    report = measure_ceiling(str(place), with_fio=False)
    assert {one.read_bytes for one in report.tries} == {9 * MIB}
    rates = [one.bytes_per_second for one in report.tries if one.bytes_per_second]
    assert report.bytes_per_second in (None, max(rates))
    assert len(rates) == len(ceiling.SETTINGS)
    assert any("too little to keep storage busy" in note for note in report.notes)


def test_rates_from_memory_are_no_ceiling_of_the_storage(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling_sources, "cached_ratio", lambda _paths: 0.7)
    report = measure_ceiling(str(place), with_fio=False)
    assert report.bytes_per_second is None
    assert "the storage was not measured" in report.notes[0]


def test_a_try_ends_when_its_time_is_over(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "SETTINGS", (Setting("muster", 4096, 1),))
    report = measure_ceiling(str(place), seconds_per_try=0.0, with_fio=False)
    assert report.tries[0].read_bytes < 9 * MIB


def test_cancelling_ends_it_at_once(place: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        measure_ceiling(str(place), with_fio=False, control=JobControl(cancel=cancelled))


def test_fio_counts_where_it_is_installed_and_its_failure_has_a_reason(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceiling.fio, "is_installed", lambda: True)
    answers = iter([FioRate(10**12, 0.001), "fio failed: no engine"])
    monkeypatch.setattr(ceiling.fio, "read_fio", lambda *_paths, **_settings: next(answers))
    monkeypatch.setattr(ceiling_sources, "cached_ratio", lambda _paths: None)
    report = measure_ceiling(str(place))
    assert report.method == "fio psync 4 MiB x 1, direct"
    assert report.tries[-1].reason == "fio failed: no engine"
    assert any("storage's own cache" in note for note in report.notes)


def test_a_place_without_large_files_cannot_be_measured(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x")
    with pytest.raises(NothingToRead, match="1 MiB"):
        measure_ceiling(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        measure_ceiling(str(tmp_path / "none"))
