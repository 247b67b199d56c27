"""Cycle files as NVRx's launcher writes them (the form of its public writer; composed here, not recorded)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from muster_agent.hooks.nvrx_cycles import CycleReader, parse_cycle
from muster_agent.hooks.reporter import attempt_of


def cycle(number: int, begin: str, end: str = "", *, attempt: int = 0, job: str = "48123") -> dict[str, object]:
    return {
        "generation": 1 if end else 0,
        "job_id": job,
        "attempt_index": attempt,
        "cycle_number": number,
        "cycle_start_time": f"2026-05-04T{begin}Z",
        "cycle_end_time": f"2026-05-04T{end}Z" if end else "",
        "cycle_log_file": "/logs/train_cycle0.log",
        "active_nodes": "gpu-[1-4]",
        "standby_nodes": "gpu-5",
        "active_ranks": "0-31",
    }


def write(folder: Path, *cycles: dict[str, object]) -> None:
    for one in cycles:
        name = f"cycle_info.{one['job_id']}.{one['attempt_index']}.{one['cycle_number']}"
        (folder / name).write_text(json.dumps(one, indent=2))
        current = folder / f"cycle_info.{one['job_id']}.current"
        current.unlink(missing_ok=True)
        current.symlink_to(name)


def told(reader: CycleReader) -> list[tuple[str, str, float]]:
    return [(one.kind, one.attempt, one.at_unix_seconds % 3600) for one in reader.read_new()]


def test_a_cycle_that_ended_and_was_followed_is_a_failure_and_the_last_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path, cycle(0, "10:00:00", "10:05:00"), cycle(1, "10:06:00", "10:20:00"))
    assert told(CycleReader({str(tmp_path): "llama"})) == [
        ("launch_started", "48123", 0.0),
        ("failure_detected", "48123", 300.0),
        ("launch_started", "48123+1", 360.0),
    ]


def test_what_was_sent_is_not_sent_again_and_what_comes_later_is(tmp_path: Path) -> None:
    reader = CycleReader({str(tmp_path): "llama"})
    write(tmp_path, cycle(0, "10:00:00"))
    first = reader.read_new()
    assert [one.kind for one in reader.read_new()] == ["launch_started"]  # not accepted yet
    reader.sent(first)
    assert reader.read_new() == []
    write(tmp_path, cycle(0, "10:00:00", "10:05:00"), cycle(1, "10:06:00"))
    assert [one.kind for one in reader.read_new()] == ["failure_detected", "launch_started"]


def test_a_requeued_job_is_a_launch_of_its_own_with_keys_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, cycle(0, "10:00:00", "10:05:00"), cycle(0, "10:30:00", attempt=1), cycle(0, "11:00:00", job="7"))
    records = CycleReader({str(tmp_path): "llama"}).read_new()
    assert [(one.kind, one.attempt) for one in records] == [
        ("launch_started", "48123"),
        ("failure_detected", "48123"),
        ("launch_started", "48123.1"),
        ("launch_started", "7"),
    ]
    assert len({(one.source, one.seq) for one in records}) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"job_id": "1"}', '{"job_id": "1", "cycle_start_time": "noon"}'])
def test_a_file_that_is_no_whole_cycle_is_left_for_the_next_look(tmp_path: Path, text: str) -> None:
    (tmp_path / "cycle_info.1.0.0").write_text(text)
    assert CycleReader({str(tmp_path): "llama"}).read_new() == []


@given(st.binary(max_size=200))
def test_any_bytes_are_a_cycle_or_none(noise: bytes) -> None:
    assert parse_cycle(noise) is None


def test_a_folder_that_is_not_there_has_none_for_now(tmp_path: Path) -> None:
    assert CycleReader({str(tmp_path / "later"): "llama"}).read_new() == []


@pytest.mark.parametrize(
    ("count", "expected"), [(None, "48123"), ("0", "48123"), ("2", "48123+2"), ("x", "48123"), ("", "48123")]
)
def test_a_restart_inside_one_launch_is_told_apart_by_torchruns_own_count(count: str | None, expected: str) -> None:
    environment = {} if count is None else {"TORCHELASTIC_RESTART_COUNT": count}
    assert attempt_of("48123", environment) == expected
