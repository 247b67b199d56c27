"""Reading the checkpoints that a walk found: in what order, at the same time or one by one, again where needed."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from muster_agent.decide.model import Pointer
from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.checkpoint import Later
from muster_agent.formats.child import Children
from muster_agent.formats.evidence import Evidence, Memory, evidence_of, still_holds
from muster_agent.formats.folder import Folder
from muster_agent.formats.scan_forks import Forks, Note, Reply, processes_for
from muster_agent.formats.verdict import AgeLimit
from muster_agent.jobs.control import JobControl

READERS = 8
"""Threads that read headers where storage answers slowly; on a fast disk they would only get in each other's way."""
FIRST_TASKS = 4
WAITING_RATIO = 4.0
WAITING_SLEEPS = 4

POLL_SECONDS = 0.25

_MAY_BE_RUNNING = frozenset({Status.INCOMPLETE, Status.IN_PROGRESS, Status.UNCOMMITTED})
_NOT_REMEMBERED = _MAY_BE_RUNNING | {Status.UNREADABLE}
_PASSING_TROUBLE = frozenset({"permission_denied", "listing_failed", "link_broken"})
_RACY_NS = 2_000_000_000
"""A file that changes twice within its file system's time step looks as if it had changed once."""


Read = Callable[[Folder, AgeLimit, Children], ShardMap | Later | None]
"""Reads a checkpoint from its folder; a child may go on with what takes long."""


class Task(NamedTuple):
    """One checkpoint to read: its path, the folder it lies in, and the step that its name gives. `look` lists the
    folder that holds its files, which `seen` is where that has been done."""

    path: str
    parent: str
    step: int | None
    look: Callable[[], Folder]
    read: Read
    seen: Folder | None = None


Enough = Callable[[ShardMap, Sequence[Pointer]], bool]
"""Whether a checkpoint settles what the caller wants to know, so that older steps beside it need not be read."""


class Counts:
    """What has been looked at: `entries` are names in listed folders, `unchanged` the checkpoints that were known.
    `unlisted` are folders that were found and are to be listed yet."""

    def __init__(self) -> None:
        self.entries = self.folders = self.unchanged = self.unlisted = 0

    def add(self, folder: Folder) -> None:
        self.take(entries_in(folder))

    def take(self, entries: int) -> None:
        self.folders += 1
        self.entries += entries


def entries_in(folder: Folder) -> int:
    return len(folder.files) + len(folder.folders) + len(folder.blocked)


class _Begun(NamedTuple):
    task: Task
    folder: Folder
    seen_at: float
    later: Later


class _Unsettled(NamedTuple):
    task: Task
    evidence: Evidence
    seen_at: float
    was_recent: bool


class Reading:
    """Reads tasks, each as far as it is not remembered. `may_lag`: the storage may show a listing late."""

    def __init__(
        self,
        memory: Memory | None,
        age_limit: AgeLimit,
        control: JobControl,
        counts: Counts,
        children: Children,
        *,
        may_lag: bool,
    ) -> None:
        self.memory, self.age_limit, self.control, self.counts = memory, age_limit, control, counts
        self.children, self.may_lag = children, may_lag
        self.may_fork = True
        self.changed_since: Callable[[str, int | None], bool] = _changed_since
        self.before_second_looks: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._unsettled: dict[str, _Unsettled] = {}
        self._begun: list[_Begun] = []
        self.sealed: set[str] = set()
        """Paths of folders that hold files of Muster's own."""

    def all_of(self, tasks: list[Task]) -> Iterator[ShardMap]:
        """In no certain order. The first tasks show whether the time goes into waiting for storage: then threads read
        on. What takes long by itself is read beside all that, and comes with `rest`."""
        waits = False
        for index, task in enumerate(tasks[:FIRST_TASKS]):
            wall, busy, sleeps = time.monotonic(), time.thread_time(), _sleeps()
            yield from _present(self.read(task, later=True))
            slow = time.monotonic() - wall > WAITING_RATIO * (time.thread_time() - busy)
            waits = slow and _sleeps() - sleeps >= WAITING_SLEEPS if index else waits
        if not waits and self.may_fork:
            yield from self._here_and_in_forks(tasks[FIRST_TASKS:])
            return
        with ThreadPoolExecutor(READERS) as pool:
            try:
                for found in pool.map(lambda task: self.read(task, later=True), tasks[FIRST_TASKS:]):
                    yield from _present(found)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _here_and_in_forks(self, tasks: list[Task]) -> Iterator[ShardMap]:
        """Where reading costs CPU time and not waiting, other processors help."""
        processes = processes_for(len(tasks))
        here = tasks if processes < 2 else []
        if processes > 1:
            memory = self.memory
            known = frozenset(task.path for task in tasks if memory.knows(task.path)) if memory else frozenset[str]()
            with Forks(self, tasks, known, processes) as forks:
                for reply in forks.replies():
                    found = self._replied(tasks[reply.index], reply)
                    if found is None:
                        here.append(tasks[reply.index])
                    else:
                        yield found
                here.extend(forks.unread())
        for task in here:
            yield from _present(self.read(task, later=True))

    def _replied(self, task: Task, reply: Reply) -> ShardMap | None:
        """None where this process must look itself."""
        found = reply.found
        if reply.listing is not None and self.memory:
            found = self.memory.recall_listing(task.path, reply.listing)
            self.counts.unchanged += found is not None
        if found is None:
            return None
        self.counts.take(reply.entries)
        self.counts.unlisted -= task.seen is None
        self.sealed.update([task.path] if reply.is_sealed else [])
        return found if reply.note is None else self.take(task, reply.seen_at, found, reply.note)

    def until(self, tasks: list[Task], enough: Enough, pointers: Sequence[Pointer]) -> Iterator[ShardMap]:
        """Newest named step first, and in each folder no older step once one was enough, except those that a pointer
        names, and those that changed since then: a name may be older than the state inside, and a second history may
        have begun. Names without a step come first, since they may hold any."""
        settled: dict[str, tuple[int, int | None]] = {}
        passed: dict[str, list[Task]] = defaultdict(list)
        mixed: set[str] = set()
        for task in sorted(tasks, key=lambda one: (one.step is not None, -(one.step or 0))):
            step, saved_ns = settled.get(task.parent, (0, None))
            if task.step is not None and task.step < step and task.parent not in mixed:
                if self.changed_since(task.path, saved_ns):
                    mixed.add(task.parent)
                elif not _is_named(task, pointers):
                    passed[task.parent].append(task)
                    continue
            found = self.read(task)
            yield from _present(found)
            if found is not None and (found.step or 0) >= step and found.step is not None and enough(found, pointers):
                settled[task.parent] = (found.step, found.middle_mtime_ns)
        # Histories are told apart by all that lies in a folder.
        for task in (task for parent in sorted(mixed) for task in passed[parent]):
            yield from _present(self.read(task))

    def rest(self) -> Iterator[ShardMap]:
        """What child processes read beside the others."""
        begun, self._begun = self._begun, []
        for one in begun:
            found = self._waited_for(one.later)
            # A child that met its limits says nothing lasting about the checkpoint.
            note = self.note_of(found, one.folder, may_keep=found.status is not Status.UNKNOWN)
            yield self.take(one.task, one.seen_at, found, note)

    def read(self, task: Task, *, later: bool = False) -> ShardMap | None:
        """The checkpoint; None where there is none (any more), or it comes with `rest`."""
        self.control.check()
        seen_at = time.monotonic()
        folder = task.seen or task.look()
        if folder.gone:
            return None
        if task.seen is None:
            self.counts.add(folder)
            self.counts.unlisted -= 1
        known = self.memory.recall(task.path, folder) if self.memory else None
        if known is not None:
            self.counts.unchanged += 1
            return known
        found = task.read(folder, self.age_limit, self.children)
        if isinstance(found, Later):
            if later:
                self._begun.append(_Begun(task, folder, seen_at, found))
                return None
            found = self._waited_for(found)
        return None if found is None else self.take(task, seen_at, found, self.note_of(found, folder))

    def _waited_for(self, found: Later) -> ShardMap:
        while not found.wait(POLL_SECONDS):
            self.control.check()
        return found.result()

    def note_of(self, found: ShardMap, folder: Folder, *, may_keep: bool = True) -> Note:
        """`folder` is the one that the checkpoint was read from."""
        recent = self.age_limit.is_recent(found.newest_mtime_ns)
        if found.status in _MAY_BE_RUNNING or (recent and found.status is not Status.COMPLETE):
            return Note(recent, again=evidence_of(folder))
        if self.memory and may_keep and _may_be_remembered(found, folder, self.age_limit):
            return Note(recent, keep=evidence_of(folder))
        return Note(recent)

    def take(self, task: Task, seen_at: float, found: ShardMap, note: Note) -> ShardMap:
        """`found`, noted for a second look or for the next scan."""
        self.age_limit.learn(found.newest_mtime_ns)
        if note.again is not None:
            with self._lock:
                self._unsettled[task.path] = _Unsettled(task, note.again, seen_at, note.was_recent)
        elif note.keep is not None and self.memory:
            self.memory.keep(task.path, note.keep, found)
        return found

    def settle(self, found: list[ShardMap], settle_seconds: float) -> list[ShardMap]:
        """What looked unfinished and may be being written, or may not be shown in full yet, is looked at once more
        `settle_seconds` after its first listing: if it changed, a save is running, or has ended."""
        waiting = self._unsettled
        times = {one.path: one.newest_mtime_ns for one in found if one.path in waiting}
        again = {path for path in times if self._needs_second_look(waiting[path], times[path], settle_seconds)}
        if again and settle_seconds:
            self._wait(max(waiting[path].seen_at for path in again) + settle_seconds)
            self.before_second_looks()
        result: list[ShardMap] = []
        for one in found:
            if one.path in again:
                second = self._second_look(waiting[one.path], one)
                result.extend(_present(second))
            else:
                result.append(one)
        return result

    def reconsider(self, found: list[ShardMap], grace_seconds_by_folder: Mapping[str, float]) -> list[ShardMap]:
        """Read again what looks abandoned, in folders whose saves take longer than the grace period allows for."""
        return [other for one in found for other in _present(self._reconsidered(one, grace_seconds_by_folder))]

    def _reconsidered(self, one: ShardMap, grace_seconds_by_folder: Mapping[str, float]) -> ShardMap | None:
        grace_seconds = grace_seconds_by_folder.get(os.path.dirname(one.path))
        waiting = self._unsettled.get(one.path)
        if grace_seconds is None or waiting is None or one.status is Status.IN_PROGRESS:
            return one
        limit = AgeLimit(self.age_limit.now_ns / 1e9, grace_seconds)
        if not limit.is_recent(one.newest_mtime_ns):
            return one
        found = waiting.task.read(waiting.task.look(), limit, self.children)
        return self._waited_for(found) if isinstance(found, Later) else found

    def _needs_second_look(self, one: _Unsettled, newest_mtime_ns: int | None, settle_seconds: float) -> bool:
        recent = self.age_limit.is_recent(newest_mtime_ns)
        return recent != one.was_recent or (settle_seconds > 0 and (recent or self.may_lag))

    def _second_look(self, one: _Unsettled, found: ShardMap) -> ShardMap | None:
        self.control.check()
        folder = one.task.look()
        if folder.gone:
            return None
        if not still_holds(one.evidence, folder):
            second = one.task.read(folder, self.age_limit.growing(), self.children)
        elif self.age_limit.is_recent(found.newest_mtime_ns) != one.was_recent:
            second = one.task.read(folder, self.age_limit, self.children)
        else:
            return found
        return self._waited_for(second) if isinstance(second, Later) else second

    def _wait(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            self.control.check()
            time.sleep(min(left, POLL_SECONDS))


def _is_named(task: Task, pointers: Sequence[Pointer]) -> bool:
    name = os.path.basename(task.path)
    beside = (pointer for pointer in pointers if os.path.dirname(pointer.path) == task.parent)
    return any(name == one.target or (one.step is not None and task.step == one.step) for one in beside)


def _changed_since(path: str, saved_ns: int | None) -> bool:
    """Whether the folder or file, or one of the first files in it, changed after that: a save into a folder that was
    there before leaves the folder's own time as it is."""
    if saved_ns is None:
        return False
    try:
        if os.stat(path).st_mtime_ns >= saved_ns:
            return True
        with os.scandir(path) as entries:
            return any(entry.stat().st_mtime_ns >= saved_ns for entry in islice(entries, _LOOKED_AT))
    except OSError:
        return False


_LOOKED_AT = 64


def _present(found: ShardMap | None) -> Sequence[ShardMap]:
    return () if found is None else (found,)


def _sleeps() -> int:
    """How often this thread gave the CPU away to wait; losing it to other processes on a busy node does not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _may_be_remembered(found: ShardMap, folder: Folder, age_limit: AgeLimit) -> bool:
    """Not what may look otherwise next time although no listing shows a change: unfinished, young, or not readable."""
    if found.status in _NOT_REMEMBERED or any(one.code in _PASSING_TROUBLE for one in found.findings):
        return False
    newest = max((seen.ctime_ns for seen in folder.files.values()), default=0)
    settled = newest + min(_RACY_NS, age_limit.grace_ns) <= age_limit.now_ns
    return settled and (found.newest_mtime_ns is None or found.newest_mtime_ns + age_limit.grace_ns <= age_limit.now_ns)
