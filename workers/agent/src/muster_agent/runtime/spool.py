"""What the server has not accepted yet, on disk: events that may be dropped, results that never are."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec

from muster_agent.protocol.wire import TaskEvent, TaskResult

log = logging.getLogger(__name__)
MAX_BYTES = 256 * 1024 * 1024
KEEP_REFUSED_SECONDS = 24 * 3600
MAX_MEMORY_EVENTS = 2_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    task_id TEXT, attempt INTEGER, seq INTEGER, droppable INTEGER, size_bytes INTEGER, body BLOB,
    PRIMARY KEY (task_id, attempt, seq)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    task_id TEXT, attempt INTEGER, body BLOB, refused_at REAL,
    PRIMARY KEY (task_id, attempt)
) WITHOUT ROWID;
"""

Attempt = tuple[str, int]
"""A task's id and its attempt."""


class Spool:
    """Thread-safe. A full or failing disk never raises here: progress is dropped and counted, everything else is kept
    in memory, and `disk_error` says what went wrong. `max_bytes` bounds the events' bodies."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, wall: Callable[[], float] = time.time) -> None:
        self._lock = threading.RLock()
        self._wall = wall
        self._max_bytes = max_bytes
        self._memory_events: dict[Attempt, list[TaskEvent]] = defaultdict(list)
        self._memory_results: dict[Attempt, TaskResult] = {}
        self._dropped: dict[Attempt, int] = defaultdict(int)
        self.disk_error: str | None = None
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" + _SCHEMA)
        self._held_bytes: int = self._database.execute("SELECT COALESCE(SUM(size_bytes), 0) FROM events").fetchone()[0]
        self._database.execute("DELETE FROM results WHERE refused_at < ?", (wall() - KEEP_REFUSED_SECONDS,))

    # -- events --------------------------------------------------------------------------------------------------------
    def put_event(self, attempt: Attempt, event: TaskEvent) -> None:
        body = msgspec.json.encode(event)
        droppable = event.kind == "progress"
        with self._lock:
            if not self._make_room(len(body)) and droppable:
                self._dropped[attempt] += 1
                return
            try:
                self._database.execute(
                    "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?, ?)",
                    (*attempt, event.seq, droppable, len(body), body),
                )
                self._held_bytes += len(body)
                self.disk_error = None
            except sqlite3.Error as error:
                self._keep_in_memory(attempt, event, droppable, error)

    def _keep_in_memory(self, attempt: Attempt, event: TaskEvent, droppable: bool, error: sqlite3.Error) -> None:
        self._note(error)
        if droppable or len(self._memory_events[attempt]) >= MAX_MEMORY_EVENTS:
            self._dropped[attempt] += 1
        else:
            self._memory_events[attempt].append(event)

    def _make_room(self, needed_bytes: int) -> bool:
        """Drop the oldest progress until `needed_bytes` fit; False when there is none left to drop."""
        while self._held_bytes + needed_bytes > self._max_bytes:
            rows = self._database.execute(
                "SELECT task_id, attempt, seq, size_bytes FROM events WHERE droppable "
                "ORDER BY task_id, attempt, seq LIMIT 200"
            ).fetchall()
            if not rows:
                return False
            self._drop(rows)
        return True

    def _drop(self, rows: list[tuple[str, int, int, int]]) -> None:
        for task_id, attempt, seq, size_bytes in rows:
            self._database.execute(
                "DELETE FROM events WHERE task_id=? AND attempt=? AND seq=?", (task_id, attempt, seq)
            )
            self._held_bytes -= size_bytes
            self._dropped[task_id, attempt] += 1

    def events(self, attempt: Attempt, limit: int) -> list[TaskEvent]:
        """The oldest events of an attempt, in order."""
        with self._lock:
            rows = self._database.execute(
                "SELECT body FROM events WHERE task_id=? AND attempt=? ORDER BY seq LIMIT ?", (*attempt, limit)
            ).fetchall()
            found = [msgspec.json.decode(body, type=TaskEvent) for (body,) in rows]
            found += self._memory_events.get(attempt, [])
        return sorted(found, key=lambda event: event.seq)[:limit]

    def forget_events(self, attempt: Attempt, up_to_seq: int | None = None) -> None:
        """They were accepted, or never will be (None: all of the attempt)."""
        last = 2**62 if up_to_seq is None else up_to_seq
        with self._lock:
            self._memory_events[attempt] = [one for one in self._memory_events.get(attempt, []) if one.seq > last]
            if not self._memory_events[attempt]:
                del self._memory_events[attempt]
            self._delete_events(attempt, last)

    def _delete_events(self, attempt: Attempt, last_seq: int) -> None:
        where = "WHERE task_id=? AND attempt=? AND seq<=?"
        try:
            size_bytes = self._database.execute(
                f"SELECT COALESCE(SUM(size_bytes), 0) FROM events {where}", (*attempt, last_seq)
            ).fetchone()[0]
            self._database.execute(f"DELETE FROM events {where}", (*attempt, last_seq))
            self._held_bytes -= size_bytes
        except sqlite3.Error as error:
            self._note(error)  # sending them again is harmless

    def take_dropped(self, attempt: Attempt) -> int:
        """How many progress events of the attempt were thrown away since this was last asked."""
        with self._lock:
            return self._dropped.pop(attempt, 0)

    def give_back_dropped(self, attempt: Attempt, count: int) -> None:
        """The batch that carried this count was not accepted."""
        with self._lock:
            if count:
                self._dropped[attempt] += count

    def attempts_with_events(self) -> list[Attempt]:
        with self._lock:
            rows = self._database.execute("SELECT DISTINCT task_id, attempt FROM events").fetchall()
            return list(dict.fromkeys([*((task_id, attempt) for task_id, attempt in rows), *self._memory_events]))

    # -- results -------------------------------------------------------------------------------------------------------
    def put_result(self, attempt: Attempt, result: TaskResult) -> None:
        with self._lock:
            try:
                self._database.execute(
                    "PRAGMA synchronous=FULL"
                )  # a result must outlive a power cut, progress need not
                self._database.execute(
                    "INSERT OR REPLACE INTO results VALUES (?, ?, ?, NULL)", (*attempt, msgspec.json.encode(result))
                )
                self._database.execute("PRAGMA synchronous=NORMAL")
            except sqlite3.Error as error:
                self._note(error)
                self._memory_results[attempt] = result

    def results(self) -> list[tuple[Attempt, TaskResult]]:
        """Results that the server has not answered for yet."""
        with self._lock:
            rows = self._database.execute(
                "SELECT task_id, attempt, body FROM results WHERE refused_at IS NULL"
            ).fetchall()
            found = {(task_id, attempt): msgspec.json.decode(body, type=TaskResult) for task_id, attempt, body in rows}
            return list({**found, **self._memory_results}.items())

    def settle_result(self, attempt: Attempt, *, refused: bool) -> None:
        """Accepted: forget it. Refused (a lost lease, say): keep it for a day for whoever looks."""
        with self._lock:
            self._memory_results.pop(attempt, None)
            try:
                if refused:
                    self._database.execute(
                        "UPDATE results SET refused_at=? WHERE task_id=? AND attempt=?", (self._wall(), *attempt)
                    )
                else:
                    self._database.execute("DELETE FROM results WHERE task_id=? AND attempt=?", attempt)
            except sqlite3.Error as error:
                self._note(error)  # a repeated PUT is answered the same way

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def _note(self, error: sqlite3.Error) -> None:
        if self.disk_error is None:
            log.error("the spool cannot be written (%s); free some space on its disk", error)
        self.disk_error = str(error)
