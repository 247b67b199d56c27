"""Steps from logs that really grow, rotate, shrink and are requeued."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from muster_agent.hooks.log_follower import LogFollower
from muster_agent.hooks.step_patterns import StepLog
from muster_agent.hooks.tailed_file import TailedFile
from muster_agent.protocol.wire import HookRecord


class Log:
    """A log and its follower. Each look is a second later than the one before."""

    def __init__(self, folder: Path, name: str = "train.log") -> None:
        self.folder, self.now = folder, 1000.0
        self.path = folder / name.replace("%j", "7").replace("*", "x")
        resumed = r"resumed from (?P<path>\S+) at (?P<step>\d+)"
        self.config = StepLog(run="llama", path=str(folder / name), step=r"step (?P<step>\d+) ", resumed=resumed)
        self.start()

    def start(self) -> None:
        self.follower = LogFollower((self.config,), self.folder / "state.json", clock=lambda: self.now)

    def write(self, *lines: str) -> None:
        with self.path.open("a") as stream:
            stream.write("".join(f"{line}\n" for line in lines))

    def look(self) -> list[HookRecord]:
        self.now += 1
        records = self.follower.read_new()
        self.follower.sent(records)
        return records

    def told(self) -> list[tuple[str, str, int | None]]:
        return [(one.kind, one.attempt, one.step) for one in self.look()]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path)
    log.path.touch()
    assert log.told() == []
    return log


def test_steps_are_told_once_when_they_are_seen_and_ranks_do_not_repeat_them(log: Log) -> None:
    log.write("step 41 of 100", "noise", "step 41 of 100", "step 42 of 100")
    found = log.look()
    assert [(one.kind, one.step, one.at_unix_seconds) for one in found] == [
        ("log_found", None, 1002.0),
        ("step", 41, 1002.0),
        ("step", 42, 1002.0),
    ]
    assert len({(one.source, one.seq) for one in found}) == 3
    assert log.told() == []


def test_what_was_written_before_the_agent_looked_is_not_given_a_time(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("step 1 of 100", "step 2 of 100")
    assert log.told() == []
    log.write("step 3 of 100")
    assert [step for _kind, _attempt, step in log.told()] == [None, 3]


def test_half_a_line_waits_for_its_end_and_a_progress_bars_return_ends_one(log: Log) -> None:
    with log.path.open("a") as stream:
        stream.write("step 5 o")
        stream.flush()
        assert log.told() == []
        stream.write("f 100\rstep 6 of 100\r")
        stream.flush()
    assert [one[2] for one in log.told()] == [None, 5, 6]


def test_a_resume_after_steps_begins_another_launch_and_one_before_any_does_not(log: Log) -> None:
    log.write("resumed from /c/40 at 40", "resumed from /c/40 at 40", "step 41 of 100")
    first = log.look()
    assert [one.kind for one in first] == ["log_found", "resumed_from", "resumed_from", "step"]
    assert len({one.attempt for one in first}) == 1
    log.write("resumed from /c/40 at 40", "step 41 of 100")
    again = log.look()
    assert [one.kind for one in again] == ["log_found", "resumed_from", "step"]
    assert again[1].data["path"] == "/c/40"
    assert {one.attempt for one in again}.isdisjoint({one.attempt for one in first})


def test_a_log_that_is_moved_away_is_read_to_its_end_before_the_new_one(log: Log) -> None:
    log.write("step 1 of 100")
    log.look()
    log.write("step 2 of 100")
    os.rename(log.path, log.folder / "train.log.1")
    log.write("step 3 of 100")
    found = [one for _look in range(3) for one in log.told()]
    assert [step for _kind, _attempt, step in found] == [2, 3]
    assert len({attempt for _kind, attempt, _step in found}) == 1, "a rotation is no restart"


def test_a_log_that_was_cut_to_nothing_is_read_from_its_beginning(log: Log) -> None:
    log.write("step 1 of 100", "step 2 of 100")
    log.look()
    os.truncate(log.path, 0)
    log.write("step 3 of 1")
    assert [step for _kind, _attempt, step in log.told()] == [3]


def test_each_slurm_job_writes_its_own_log_and_is_a_launch_of_its_own(tmp_path: Path) -> None:
    log = Log(tmp_path, "slurm-%j.out")
    (tmp_path / "slurm-x.out").write_text("step 9 of 100\n")
    log.write("step 1 of 100")
    assert log.told() == [], "it was there before"
    log.write("step 2 of 100")
    [found, _step] = log.look()
    assert (found.data["job_id"], found.data["job_restart_count"]) == ("7", 0)
    log.write("resumed from /c/1 at 1", "step 2 of 100")
    requeued = log.look()
    assert (requeued[0].data["job_id"], requeued[0].data["job_restart_count"]) == ("7", 1)
    log.path = tmp_path / "slurm-8.out"
    log.write("resumed from /c/1 at 1", "step 2 of 100")
    log.follower._followed[0]._file._look_for_names_at = 0
    later = [one for _look in range(2) for one in log.look()]
    assert (later[0].kind, later[0].data["job_id"], later[0].data["job_restart_count"]) == ("log_found", "8", 0)
    assert len({one.attempt for one in (found, *requeued, *later)}) == 3


def test_an_agent_that_starts_again_goes_on_with_the_launch_that_goes_on(log: Log) -> None:
    log.write("step 41 of 100")
    [_found, step] = log.look()
    log.write("step 42 of 100")
    log.start()
    assert log.told() == [], "nobody knows when that was written"
    log.write("step 43 of 100")
    [again] = log.look()
    assert (again.attempt, again.source) == (step.attempt, step.source)
    assert again.seq > step.seq
    log.start()
    log.look()
    log.write("step 41 of 100")
    assert [one.kind for one in log.look()] == ["log_found", "step"], "it went back while the agent was away"


def test_records_come_again_until_the_server_has_them(log: Log) -> None:
    log.write("step 41 of 100")
    first = log.follower.read_new()
    assert log.follower.read_new() == first
    log.follower.sent(first)
    assert log.follower.read_new() == []


def test_a_log_that_cannot_be_read_is_none_for_now_and_is_read_on_later(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write("step 1 of 100")
    log.look()
    with monkeypatch.context() as broken:
        broken.setattr(TailedFile, "_read", lambda _self: (_ for _ in ()).throw(OSError("stale file handle")))
        log.write("step 2 of 100")
        assert log.told() == []
    assert [step for _kind, _attempt, step in log.told()] == [2]


def test_a_folder_in_a_logs_place_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "train.log").mkdir()
    assert TailedFile(str(tmp_path / "train.log")).lines() == []
