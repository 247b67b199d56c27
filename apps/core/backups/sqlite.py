"""SQLite through its own online backup: a consistent copy while others write."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from django.db import connections

from apps.core.backups.manifest import BackupError

WAIT_SECONDS = 30.0


class Sqlite:
    name = "sqlite"
    file = "muster.sqlite3"

    def __init__(self, database: Path) -> None:
        self._database = database

    def version(self) -> str:
        return sqlite3.sqlite_version

    def dump(self, target: Path) -> dict[str, int]:
        """All pages in one step: with a write-ahead log that is one moment, and no writer waits for it."""
        try:
            with closing(_open(self._database, "ro")) as source, closing(sqlite3.connect(target)) as copy:
                source.backup(copy, pages=-1)
                copy.execute("PRAGMA journal_mode=DELETE")
                return _counts(copy)
        except sqlite3.Error as error:
            raise BackupError(f"{self._database} could not be copied: {error}.") from error

    def check(self, dumped: Path) -> None:
        try:
            with closing(_open(dumped, "ro")) as copy:
                told = [row[0] for row in copy.execute("PRAGMA integrity_check(1)")]
        except sqlite3.Error as error:
            raise BackupError(f"{dumped} is no SQLite database: {error}. Take another backup.") from error
        if told != ["ok"]:
            raise BackupError(f"{dumped} is damaged: {told[0]}. Take another backup.")

    def load(self, dumped: Path) -> None:
        """Into the database file in place, as one transaction: whoever has it open sees the old or the new one."""
        connections.close_all()
        try:
            with closing(_open(dumped, "ro")) as source, closing(sqlite3.connect(self._database)) as target:
                target.execute(f"PRAGMA busy_timeout={int(WAIT_SECONDS * 1000)}")
                source.backup(target, pages=-1)
        except sqlite3.Error as error:
            raise BackupError(
                f"{self._database} could not be written: {error}. It holds what it held before."
            ) from error


def _open(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=WAIT_SECONDS)


def _counts(database: sqlite3.Connection) -> dict[str, int]:
    names = (
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    return {
        name: int(database.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0])
        for (name,) in database.execute(names).fetchall()
    }
