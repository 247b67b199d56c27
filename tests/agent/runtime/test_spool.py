"""The spool: what is dropped, what never is, and a disk that is full."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from muster_agent.protocol.wire import TaskEvent, TaskResult
from muster_agent.runtime.spool import Spool

ATTEMPT = ("tsk_1", 1)
RESULT = TaskResult(outcome="done", body={"bytes": 1})


def event(seq: int, kind: str = "progress", message: str | None = None) -> TaskEvent:
    return TaskEvent(seq=seq, kind=kind, at_unix_seconds=1.0, mono_seconds=1.0, message=message)


class FullDisk:
    """A database whose writes fail as they do on a full disk; reads go on."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.is_full = True

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if self.is_full and sql.split()[0] in ("INSERT", "UPDATE", "DELETE"):
            raise sqlite3.OperationalError("database or disk is full")
        return self._database.execute(sql, parameters)

    def close(self) -> None:
        self._database.close()


def test_events_come_back_in_order_and_go_once_they_are_accepted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    for seq in (2, 1, 3):
        spool.put_event(ATTEMPT, event(seq))
    assert [one.seq for one in spool.events(ATTEMPT, 10)] == [1, 2, 3]
    spool.forget_events(ATTEMPT, 2)
    assert [one.seq for one in spool.events(ATTEMPT, 10)] == [3]
    assert spool.attempts_with_events() == [ATTEMPT]
    spool.forget_events(ATTEMPT)
    assert (spool.attempts_with_events(), spool.held_bytes) == ([], 0)


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    spool.put_event(ATTEMPT, event(1))
    spool.put_result(ATTEMPT, RESULT)
    spool.close()
    again = Spool(tmp_path / "s")
    assert [one.seq for one in again.events(ATTEMPT, 10)] == [1]
    assert again.results() == [(ATTEMPT, RESULT)]
    assert again.held_bytes > 0


def test_beyond_its_size_the_oldest_progress_is_dropped_and_counted_and_nothing_else(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s", max_bytes=20_000)
    spool.put_event(ATTEMPT, event(1, "phase"))
    for seq in range(2, 502):
        spool.put_event(ATTEMPT, event(seq, message="x" * 100))
    spool.put_event(ATTEMPT, event(502, "injected"))
    kept = [one.seq for one in spool.events(ATTEMPT, 1000)]
    assert kept[0] == 1
    assert kept[-2:] == [501, 502]
    assert spool.held_bytes <= 20_000
    assert spool.take_dropped(ATTEMPT) == 502 - len(kept)
    assert spool.take_dropped(ATTEMPT) == 0


def test_a_full_disk_drops_progress_keeps_the_rest_in_memory_and_says_so(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    spool.put_event(ATTEMPT, event(1))
    full = FullDisk(spool._database)
    spool._database = full  # type: ignore[assignment]
    spool.put_event(ATTEMPT, event(2))
    spool.put_event(ATTEMPT, event(3, "phase"))
    spool.put_result(ATTEMPT, RESULT)
    assert [one.seq for one in spool.events(ATTEMPT, 10)] == [1, 3]
    assert spool.take_dropped(ATTEMPT) == 1
    assert spool.results() == [(ATTEMPT, RESULT)]
    assert spool.disk_error == "database or disk is full"
    full.is_full = False
    spool.put_event(ATTEMPT, event(4))
    assert spool.disk_error is None
    spool.settle_result(ATTEMPT, refused=False)
    assert spool.results() == []


def test_a_refused_result_is_kept_for_a_day_and_not_sent_again(tmp_path: Path) -> None:
    now = [1_000_000.0]
    spool = Spool(tmp_path / "s", wall=lambda: now[0])
    spool.put_result(ATTEMPT, RESULT)
    spool.settle_result(ATTEMPT, refused=True)
    assert spool.results() == []
    spool.close()
    kept = sqlite3.connect(tmp_path / "s")
    assert kept.execute("SELECT COUNT(*) FROM results").fetchone() == (1,)
    now[0] += 25 * 3600
    Spool(tmp_path / "s", wall=lambda: now[0])
    assert kept.execute("SELECT COUNT(*) FROM results").fetchone() == (0,)


def test_a_spool_that_cannot_be_opened_is_an_error_not_a_crash_later(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"not a database, but long enough to be looked at as one" * 10)
    with pytest.raises(sqlite3.DatabaseError):
        Spool(tmp_path / "s")
