"""What earlier scans found, in one SQLite file, so that an unchanged checkpoint costs only the listing of its folders.

The file is a convenience: without it, or where it is damaged, from another version or held by another writer, a scan
reads everything and finds the same. It is also what lets a scan that was killed go on: what had been read is kept.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import msgspec
import xxhash

from muster_agent.formats.base import ShardMap
from muster_agent.formats.evidence import Evidence, readers_version, still_holds
from muster_agent.formats.folder import Folder
from muster_agent.formats.places import resolved

APPLICATION_ID = 0x6D757374
"""Marks the file as ours, so that a wrong path given by a user is never written over."""
WAIT_SECONDS = 2.0
"""For another writer; after that this scan keeps nothing more for a while."""
PAGE_BYTES = 16384
"""A checkpoint of a hundred files fills one."""
FLUSH_COUNT = 128
FLUSH_SECONDS = 2.0

_MAGIC = b"SQLite format 3\0"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS readers (version TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS found (root TEXT NOT NULL, path TEXT NOT NULL, body BLOB NOT NULL, sum BLOB NOT NULL,
                                  PRIMARY KEY (root, path));
"""


class _Found(msgspec.Struct, frozen=True, array_like=True):
    evidence: Evidence
    shard_map: ShardMap


_DECODER = msgspec.msgpack.Decoder(_Found)


class ScanCache:
    """The cache in `file`, for scans of `root`; a `formats.evidence.Memory`. A context manager.

    `trouble` says why it could not be used, or only in part; it is None while all is well. With `replace_damaged`, a
    damaged file is begun anew; only for a file that nobody but Muster writes. Without `recalls` everything is read
    again, and kept.
    """

    def __init__(
        self, file: str | os.PathLike[str], root: str, *, recalls: bool = True, replace_damaged: bool = False
    ) -> None:
        self.trouble: str | None = None
        self._recalls = recalls
        self._file = os.fspath(file)
        self._root = f"{root}\0{resolved(root)}"
        self._lock = threading.Lock()
        self._waiting: dict[str, _Found] = {}
        self._flushed_at = time.monotonic()
        self._used: set[str] = set()
        self._is_damaged, self._replace_damaged = False, replace_damaged
        self._connection = self._open()
        if self._connection is None and self._remove_damaged():
            self._connection = self._open()

    def knows(self, path: str) -> bool:
        """See `Memory.knows`."""
        with self._lock, self._told():
            if self._connection is not None and self._recalls:
                query = "SELECT 1 FROM found WHERE root = ? AND path = ?"
                return self._connection.execute(query, (self._root, path)).fetchone() is not None
        return False

    def recall(self, path: str, folder: Folder) -> ShardMap | None:
        """See `Memory.recall`."""
        return self._recalled(path, lambda evidence: still_holds(evidence, folder))

    def recall_listing(self, path: str, listing: bytes) -> ShardMap | None:
        """See `Memory.recall_listing`."""
        return self._recalled(path, lambda evidence: evidence == Evidence((("", listing),)))

    def _recalled(self, path: str, holds: Callable[[Evidence], bool]) -> ShardMap | None:
        found = self._stored(path) if self._recalls else None
        if found is None or not holds(found.evidence):
            return None
        self._used.add(path)
        return found.shard_map

    def keep(self, path: str, evidence: Evidence, shard_map: ShardMap) -> None:
        """See `Memory.keep`. It is written a little later, with others."""
        with self._lock:
            self._used.add(path)
            self._waiting[path] = _Found(evidence, shard_map)
            due = time.monotonic() - self._flushed_at >= FLUSH_SECONDS or len(self._waiting) >= FLUSH_COUNT
        if due:
            self.flush()

    def flush(self) -> None:
        """Write what was kept. A file that another writer holds too long costs this scan's memory, nothing else."""
        with self._lock:
            waiting, self._waiting, self._flushed_at = self._waiting, {}, time.monotonic()
            if self._connection is not None and waiting:
                rows = [row for path, found in waiting.items() if (row := self._row(path, found)) is not None]
                self._write("INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?)", rows)

    def finish(self) -> None:
        """After a whole scan: forget what it did not find any more."""
        self.flush()
        with self._lock, self._told():
            if self._connection is not None:
                known = self._connection.execute("SELECT path FROM found WHERE root = ?", (self._root,))
                gone = [(self._root, path) for (path,) in known if path not in self._used]
                self._write("DELETE FROM found WHERE root = ? AND path = ?", gone)

    def close(self) -> None:
        self.flush()
        with self._lock, self._told():
            if self._connection is not None:
                self._connection.close()
            self._connection = None
        self._remove_damaged()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _remove_damaged(self) -> bool:
        if not (self._is_damaged and self._replace_damaged):
            return False
        self._is_damaged = False
        with self._told():
            os.unlink(self._file)
        return True

    # -- the file ------------------------------------------------------------------------------------------------------
    def _open(self) -> sqlite3.Connection | None:
        with self._told():
            if not self._begins_as_ours():
                self._is_damaged = True
                self.trouble = f"{self._file} is no cache of scans; checkpoints are read again instead"
                return None
            connection = sqlite3.connect(
                self._file, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            return connection
        return None

    def _begins_as_ours(self) -> bool:
        """Raises OSError. SQLite takes any file of a few bytes for an empty one, makes files that everybody may read,
        and waits at a FIFO."""
        with os.fdopen(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600), "rb") as file:
            return file.read(len(_MAGIC)) in (b"", _MAGIC)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Raises sqlite3.Error for a file that is not ours."""
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != APPLICATION_ID and tables:
            raise sqlite3.DatabaseError("it is a database of something else")
        version = readers_version()
        with contextlib.suppress(sqlite3.OperationalError):
            if owner == APPLICATION_ID and connection.execute("SELECT version FROM readers").fetchall() == [(version,)]:
                return
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for statement in filter(str.strip, _SCHEMA.split(";")):
            connection.execute(statement)
        connection.execute("DELETE FROM found")
        connection.execute("DELETE FROM readers")
        connection.execute("INSERT INTO readers VALUES (?)", (version,))
        connection.execute("COMMIT")

    def _stored(self, path: str) -> _Found | None:
        with self._lock, self._told():
            if self._connection is None:
                return None
            query = "SELECT body, sum FROM found WHERE root = ? AND path = ?"
            row = self._connection.execute(query, (self._root, path)).fetchone()
            if row is None or row[1] != self._sum(path, row[0]):
                return None
            return _DECODER.decode(row[0])
        return None

    def _row(self, path: str, found: _Found) -> tuple[str, str, bytes, bytes] | None:
        try:
            body = msgspec.msgpack.encode(found)
        except (OverflowError, UnicodeEncodeError):
            return None
        return self._root, path, body, self._sum(path, body)

    def _sum(self, path: str, body: bytes) -> bytes:
        """Against bytes that rotted; nobody who may write the file gains by forging it."""
        return xxhash.xxh3_64_digest(f"{self._root}\0{path}\0".encode("utf-8", "surrogateescape") + body)

    def _write(self, statement: str, rows: Sequence[tuple[str | bytes, ...]]) -> None:
        assert self._connection is not None
        if not rows:
            return
        with self._told():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Trouble with the cache is told, and never stops a scan."""
        try:
            yield
        except (sqlite3.Error, OSError, msgspec.MsgspecError, UnicodeError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            self._is_damaged = self._is_damaged or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            self.trouble = f"{self._file}: {error}; checkpoints are read again instead"
