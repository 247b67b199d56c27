"""The thread between a training loop and its spool: the loop only queues, the thread waits for the disk."""

from __future__ import annotations

import logging
import queue
import threading
import time
from pathlib import Path

import msgspec

from muster_agent.hooks.paths import WriterName
from muster_agent.hooks.registry import register, unregister
from muster_agent.hooks.spool_file import SpoolFile
from muster_agent.protocol.wire import HookRecord

QUEUE_RECORDS = 10_000
RETRY_SECONDS = 5.0
MAX_RECORD_BYTES = 64 * 1024

logger = logging.getLogger("muster_agent.hooks")


class SpoolWriter:
    """Takes records from any thread (or signal handler) and writes them in order, numbered, from one daemon thread.

    What cannot be queued or written is dropped and counted; the next record that is written carries the count as
    `data["dropped"]`. The first trouble is logged once, with what to do; training goes on.
    """

    def __init__(self, directory: Path, writer: WriterName, *, queue_records: int = QUEUE_RECORDS) -> None:
        self._directory = directory
        self._writer = writer
        self._file = SpoolFile(directory, writer)
        # SimpleQueue never blocks on put and is safe inside signal handlers; its bound is ours to keep.
        self._queue: queue.SimpleQueue[HookRecord | None] = queue.SimpleQueue()
        self._queue_records = queue_records
        self._lock = threading.RLock()
        self._dropped = 0
        self._seq = 0
        self._warned = False
        self._blocked_until = 0.0
        self._thread = threading.Thread(target=self._run, name="muster-hooks", daemon=True)
        self._thread.start()

    def put(self, record: HookRecord) -> None:
        """Queue one record; drop it when the queue is full. Returns at once."""
        if self._queue.qsize() >= self._queue_records:
            self._count_dropped()
        else:
            self._queue.put(record)

    def close(self, timeout_seconds: float) -> None:
        """Write what is queued and end the thread; a disk that hangs holds the caller at most so long."""
        self._queue.put(None)
        self._thread.join(timeout_seconds)

    def drop(self, problem: Exception) -> None:
        """Count one record that could not even be made."""
        self._count_dropped()
        self._warn_once(problem)

    def _warn_once(self, problem: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        advice = (
            f"Free space in {self._directory}, or set MUSTER_HOOK_DIR to a folder that this user can write."
            if isinstance(problem, OSError)
            else "Look at what is passed to the reporter."
        )
        logger.warning(
            "Muster hook: records are dropped (%s). Training goes on, drops are counted. %s", problem, advice
        )

    def _count_dropped(self) -> None:
        with self._lock:
            self._dropped += 1

    def _run(self) -> None:
        while (record := self._queue.get()) is not None:
            try:
                self._write(record)
                self._keep_registration(record)
            except Exception as problem:
                # A thread that died here would silence the run for good.
                self._warn_once(problem)
        self._file.close()

    def _write(self, record: HookRecord) -> None:
        if time.monotonic() < self._blocked_until:
            self._count_dropped()
            return
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        try:
            self._file.append(self._encode(record, dropped))
        except Exception as problem:
            with self._lock:
                self._dropped += dropped + 1
            if isinstance(problem, OSError):
                # A folder that comes back is used again; one that stays away costs nothing meanwhile.
                self._blocked_until = time.monotonic() + RETRY_SECONDS
            raise

    def _encode(self, record: HookRecord, dropped: int) -> bytes:
        data = {**record.data, "dropped": dropped} if dropped else record.data
        self._seq += 1
        numbered = msgspec.structs.replace(record, seq=self._seq, data=data)
        line = msgspec.json.encode(numbered, enc_hook=str) + b"\n"
        if len(line) > MAX_RECORD_BYTES:
            raise ValueError(f"a {record.kind} record of {len(line)} bytes is over the {MAX_RECORD_BYTES} allowed")
        return line

    def _keep_registration(self, record: HookRecord) -> None:
        if record.kind == "process_started":
            register(
                self._directory,
                self._writer,
                run=record.run,
                attempt=record.attempt,
                rank=record.rank,
                allow_injection=record.data.get("allow_injection") is True,
            )
        elif record.kind == "process_ended":
            unregister(self._directory, self._writer)
