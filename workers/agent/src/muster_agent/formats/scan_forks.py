"""Reading many checkpoints on several processors: forks of this process read a share each and send what they found.
Of what an earlier scan knew, they list the folder and send how that lies.

Only for a process without other threads: a fork of any other may wait for ever for a lock that nobody holds. A fork
reads and answers, nothing else; what one cannot do, and what one that died had not done yet, its parent does itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import msgspec

from muster_agent.formats.base import ShardMap
from muster_agent.formats.child import Children
from muster_agent.formats.child_wire import Request
from muster_agent.formats.evidence import Evidence, digest
from muster_agent.formats.folder import Folder
from muster_agent.formats.limits import NeedsChild

if TYPE_CHECKING:
    from muster_agent.formats.scan_reading import Reading, Task

LEAST_TASKS = 64
"""For fewer, starting processes costs more than it gains."""
MOST_PROCESSES = 8
POLL_SECONDS = 0.25
_LENGTH_BYTES = 4
_BLOCK_BYTES = 1 << 20
_GC_THRESHOLD = 50_000
"""Reading makes many values and hardly any cycles: looking for those less often saves a twentieth of the time."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What is to be done with a checkpoint that was read: look at it again, or remember it; or neither."""

    was_recent: bool
    again: Evidence | None = None
    keep: Evidence | None = None


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """What a fork found for the task with that index, or the digest of its folder's `listing`; with neither the parent
    must look itself."""

    index: int
    found: ShardMap | None = None
    note: Note | None = None
    listing: bytes | None = None
    seen_at: float = 0.0
    entries: int = 0
    is_sealed: bool = False


_DECODER = msgspec.msgpack.Decoder(Reply)


def processes_for(tasks: int) -> int:
    """How many processes should read so many checkpoints; 1: this one alone."""
    if tasks < LEAST_TASKS or threading.active_count() > 1:
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


class Forks:
    """`processes` forks, each reading every so-manieth of `tasks`; of those at `known` paths they only list the folder.
    Leaving the block ends them."""

    def __init__(self, reading: Reading, tasks: list[Task], known: frozenset[str], processes: int) -> None:
        self._reading, self._tasks, self._known = reading, tasks, known
        self._waiting = set(range(len(tasks)))
        self._pipes: dict[int, bytearray] = {}
        self._pids: list[int] = []
        gc.freeze()  # or the children's collections would copy the pages that they share with us
        try:
            for first in range(processes):
                self._start(range(first, len(tasks), processes))
        finally:
            gc.unfreeze()

    def replies(self) -> Iterator[Reply]:
        """In no certain order, until every fork has ended. Raises Cancelled when told so."""
        while self._pipes:
            self._reading.control.check()
            ready, _, _ = select.select(list(self._pipes), [], [], POLL_SECONDS)
            for pipe in ready:
                yield from self._read(pipe)

    def unread(self) -> list[Task]:
        """What no fork has answered for."""
        return [self._tasks[index] for index in sorted(self._waiting)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()

    def _start(self, indexes: range) -> None:
        ours, theirs = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(ours)
            os.close(theirs)
            return
        if pid == 0:
            _work(self._reading, self._tasks, self._known, indexes, theirs)
        os.close(theirs)
        self._pids.append(pid)
        self._pipes[ours] = bytearray()

    def _read(self, pipe: int) -> Iterator[Reply]:
        block = os.read(pipe, _BLOCK_BYTES)
        if not block:
            os.close(pipe)
            del self._pipes[pipe]
            return
        buffer = self._pipes[pipe]
        buffer += block
        begin = 0
        while len(buffer) >= begin + _LENGTH_BYTES:
            end = begin + _LENGTH_BYTES + int.from_bytes(buffer[begin : begin + _LENGTH_BYTES], "little")
            if len(buffer) < end:
                break
            reply = _DECODER.decode(memoryview(buffer)[begin + _LENGTH_BYTES : end])
            self._waiting.discard(reply.index)
            yield reply
            begin = end
        del buffer[:begin]


class _NoChildren(Children):
    """What takes long is left to the parent, which reads it beside the rest."""

    def start(self, _request: Request, _folder: Folder) -> NoReturn:
        raise NeedsChild


def _work(reading: Reading, tasks: list[Task], known: frozenset[str], indexes: range, pipe: int) -> None:
    """In the fork: answer, and end without any of the parent's farewells."""
    gc.set_threshold(_GC_THRESHOLD)
    try:
        for index in indexes:
            _send(pipe, _reply(reading, index, tasks[index], is_known=tasks[index].path in known))
    finally:
        os._exit(0)


def _reply(reading: Reading, index: int, task: Task, *, is_known: bool) -> bytes:
    try:
        return msgspec.msgpack.encode(_answer(reading, index, task, is_known=is_known))
    except Exception:
        return msgspec.msgpack.encode(Reply(index))


def _answer(reading: Reading, index: int, task: Task, *, is_known: bool) -> Reply:
    from muster_agent.formats.scan_reading import entries_in

    seen_at = time.monotonic()
    folder = task.seen or task.look()
    entries = 0 if task.seen else entries_in(folder)  # before readers add what they reach in sub-folders
    if is_known:
        return Reply(index, listing=digest(folder), entries=entries, is_sealed=bool(folder.own))
    found = None if folder.gone else task.read(folder, reading.age_limit, _NoChildren())
    if not isinstance(found, ShardMap):
        return Reply(index)
    return Reply(index, found, reading.note_of(found, folder), None, seen_at, entries, bool(folder.own))


def _send(pipe: int, data: bytes) -> None:
    left = memoryview(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
    while left:
        left = left[os.write(pipe, left) :]
