"""The inventory of a place: one checkpoint, one run's folder, or a folder of runs."""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import msgspec

from muster_agent.decide.model import Pointer
from muster_agent.formats import registry
from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.checkpoint import GRACE_SECONDS, read_family, read_folder, read_place, read_single_file
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder, escapes, look
from muster_agent.formats.names import is_temporary, step_of_name
from muster_agent.formats.pointers import is_pointer_name, pointer_findings, read_pointer
from muster_agent.formats.reader import Family, FamilyFormat
from muster_agent.formats.verdict import AgeLimit
from muster_agent.jobs.control import JobControl

MAX_DEPTH = 8
READERS = 8
"""Threads that read headers where storage answers slowly; on a fast disk they would only get in each other's way."""
FIRST_TASKS = 4
WAITING_RATIO = 4.0
WAITING_SLEEPS = 4


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """`checkpoints` newest step first, without tensors. `findings` are about the place itself."""

    checkpoints: tuple[ShardMap, ...]
    pointers: tuple[Pointer, ...] = ()
    findings: tuple[Finding, ...] = ()


class RootUnreadable(Exception):
    """The place to inspect is not there or cannot be listed; `hint` says what to do."""

    def __init__(self, path: str, reason: str, hint: str, *, is_missing: bool = False) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason, self.hint, self.is_missing = path, reason, hint, is_missing


class Task(NamedTuple):
    """One checkpoint to read: the folder it lies in, the step that its name gives, and how."""

    folder: str
    step: int | None
    read: Callable[[], ShardMap | None]


Enough = Callable[[ShardMap, Sequence[Pointer]], bool]
"""Whether a checkpoint settles what the caller wants to know, so that older steps beside it need not be read."""


class _Walk:
    def __init__(self, root: str, age_limit: AgeLimit, control: JobControl) -> None:
        self.root = os.path.realpath(root)
        self.age_limit = age_limit
        self.control = control
        self.seen: set[tuple[int, int]] = set()
        self.tasks: list[Task] = []
        self.nested: list[tuple[Folder, int]] = []
        self.links: list[tuple[str, int]] = []
        self.pointers: list[Pointer] = []
        self.findings: list[Finding] = []

    def enter(self, path: str, depth: int) -> None:
        """Walk the folder at `path`, which is not a checkpoint by its name."""
        self.control.check()
        if not self._is_new(path):
            return
        folder = look(path, self.root)
        if folder.gone:
            return
        claimed = registry.claim(folder) if folder.listed else None
        if not folder.listed or claimed is not None:
            self._add(path, lambda: self._read(folder))
            own = set(claimed.owns(folder)) if claimed else set()
            steps = [name for name in folder.folders if step_of_name(name) is not None and name not in own]
            self._enter_folders(steps, folder, depth)
        else:
            self.descend(folder, depth)

    def descend(self, folder: Folder, depth: int) -> None:
        """Take what a folder that is no checkpoint holds: pointers, leftovers, checkpoints, further folders."""
        self._take_pointers(folder)
        shared = self._take_families(folder)
        self._take_files(folder, shared)
        self.findings.extend(found for found in folder.findings if not is_pointer_name(found.path))
        self._enter_folders([name for name in folder.folders if name not in shared], folder, depth)

    def _take_families(self, folder: Folder) -> set[str]:
        """Add the checkpoints that share the folder; the names of the files and sub-folders that are theirs."""
        taken: set[str] = set()
        for family_format, family in registry.families_of(folder):
            read = partial(self._read_family, folder, family_format, family)
            self.tasks.append(Task(folder.path, family.step, read))
            taken |= family.files | family.folders
        return taken

    def _read_family(self, folder: Folder, family_format: FamilyFormat, family: Family) -> ShardMap:
        self.control.check()
        return read_family(folder, family_format, family, age_limit=self.age_limit, with_tensors=False)

    def _enter_folders(self, names: Sequence[str], folder: Folder, depth: int) -> None:
        """Some writers keep the steps beside a final checkpoint, so a folder may be one and hold others."""
        for name in names:
            path = os.path.join(folder.path, name)
            if name in folder.links:
                if not is_pointer_name(name):
                    self.links.append((path, depth + 1))
            elif is_temporary(name):
                self.findings.append(_leftover(path))
            elif step_of_name(name) is not None:
                self._step_folder(path, depth + 1)
            elif not name.startswith(".") and depth < MAX_DEPTH:
                self.enter(path, depth + 1)

    def follow_links(self) -> None:
        """Links come last, so that a folder is listed under its own name where it has one inside the root."""
        while self.links:
            path, depth = self.links.pop()
            if depth <= MAX_DEPTH and not escapes(path, self.root):
                if step_of_name(os.path.basename(path)) is None:
                    self.enter(path, depth)
                else:
                    self._step_folder(path, depth)

    def _step_folder(self, path: str, depth: int) -> None:
        """A folder named like a step is a checkpoint, unless it only holds folders that are themselves steps."""
        if not self._is_new(path):
            return
        self._add(path, lambda: self._read_step(path, depth))

    def _add(self, path: str, read: Callable[[], ShardMap | None]) -> None:
        self.tasks.append(Task(os.path.dirname(path), step_of_name(os.path.basename(path)), read))

    def _read_step(self, path: str, depth: int) -> ShardMap | None:
        folder = look(path, self.root)
        if folder.gone:
            return None
        holds_steps = any(step_of_name(name) is not None for name in folder.folders)
        if holds_steps and depth < MAX_DEPTH and registry.claim(folder) is None:
            self.nested.append((folder, depth))
            return None
        return self._read(folder)

    def _read(self, folder: Folder) -> ShardMap:
        self.control.check()
        return read_folder(folder, age_limit=self.age_limit, with_tensors=False)

    def _is_new(self, path: str) -> bool:
        try:
            seen = os.stat(path)
        except OSError:
            return True
        key = (seen.st_dev, seen.st_ino)
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def _take_pointers(self, folder: Folder) -> None:
        for name in sorted(folder.files.keys() | folder.links):
            if is_pointer_name(name):
                pointer, found = read_pointer(folder, name)
                self.pointers.extend([pointer] if pointer else [])
                self.findings.extend([found] if found else [])

    def _take_files(self, folder: Folder, shared: set[str]) -> None:
        for name in sorted(folder.files.keys() - shared):
            if is_temporary(name):
                self.findings.append(_leftover(os.path.join(folder.path, name)))
            elif not is_pointer_name(name) and registry.claim_file(folder, name) is not None:
                path = os.path.join(folder.path, name)
                self._add(path, partial(self._read_file, folder, name))

    def _read_file(self, folder: Folder, name: str) -> ShardMap:
        self.control.check()
        return read_single_file(folder, name, age_limit=self.age_limit, with_tensors=False)

    def run_tasks(self, enough: Enough | None) -> list[ShardMap]:
        """Read what was found; what turned out to hold further steps is walked in the next round."""
        read: list[ShardMap] = []
        while self.tasks:
            tasks, self.tasks, self.nested = self.tasks, [], []
            results = _run(tasks) if enough is None else self._run_until(tasks, enough)
            read.extend(found for found in results if found is not None)
            for folder, depth in self.nested:
                self.descend(folder, depth)
            if not self.tasks:
                self.follow_links()
        return read

    def _run_until(self, tasks: list[Task], enough: Enough) -> Iterator[ShardMap | None]:
        """Newest named step first, and in each folder no older step once one was enough. Names without a step come
        first, since they may hold any."""
        settled: dict[str, int] = {}
        for task in sorted(tasks, key=lambda one: (one.step is not None, -(one.step or 0))):
            if task.step is not None and task.step < settled.get(task.folder, 0):
                continue
            found = task.read()
            yield found
            if found is not None and found.step is not None and enough(found, self.pointers):
                settled[task.folder] = max(found.step, settled.get(task.folder, 0))


def _sleeps() -> int:
    """How often this thread gave the CPU away to wait; losing it to other processes on a busy node does not count."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _run(tasks: list[Task]) -> Iterator[ShardMap | None]:
    """Results in order. The first tasks show whether the time goes into waiting for storage: then threads read on."""
    waits = False
    for index, task in enumerate(tasks[:FIRST_TASKS]):
        wall, busy, sleeps = time.monotonic(), time.thread_time(), _sleeps()
        yield task.read()
        slow = time.monotonic() - wall > WAITING_RATIO * (time.thread_time() - busy)
        waits = slow and _sleeps() - sleeps >= WAITING_SLEEPS if index else waits
    if not waits:
        yield from (task.read() for task in tasks[FIRST_TASKS:])
        return
    with ThreadPoolExecutor(READERS) as pool:
        try:
            yield from pool.map(lambda task: task.read(), tasks[FIRST_TASKS:])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def inventory(
    root: str | os.PathLike[str],
    *,
    grace_seconds: float = GRACE_SECONDS,
    now_unix_seconds: float | None = None,
    control: JobControl | None = None,
    enough: Enough | None = None,
) -> Inventory:
    """Every checkpoint under `root`, whole or broken, with what the framework's own pointers say.

    With `enough`, steps older than one that is enough are left out, and nothing is said about pointers that may name
    them: a restart need not read a thousand headers to learn that the newest checkpoint is good.
    Raises RootUnreadable when `root` itself is not there or cannot be listed, and Cancelled when `control` says so.
    """
    place = os.path.abspath(os.fspath(root))
    age_limit = AgeLimit(time.time() if now_unix_seconds is None else now_unix_seconds, grace_seconds)
    _check_root(place)
    only = _one(place, age_limit)
    if only is not None:
        return Inventory(checkpoints=(only,))
    walk = _Walk(place, age_limit, control or JobControl())
    walk.enter(place, 0)
    if not walk.tasks:
        walk.follow_links()
    checkpoints = _with_duplicates(walk.run_tasks(enough))
    checkpoints.sort(key=_newest_first)
    return Inventory(
        checkpoints=tuple(checkpoints),
        pointers=tuple(walk.pointers),
        findings=(*walk.findings, *(() if enough else pointer_findings(walk.pointers, checkpoints))),
    )


def _one(place: str, age_limit: AgeLimit) -> ShardMap | None:
    """The single checkpoint at `place`; None for a folder that is not named like a step, or only holds such folders."""
    if os.path.isdir(place):
        if step_of_name(os.path.basename(place)) is None:
            return None
        folder = look(place, os.path.realpath(os.path.dirname(place)))
        if registry.claim(folder) is None and any(step_of_name(name) is not None for name in folder.folders):
            return None
    root = os.path.realpath(os.path.dirname(place))
    return read_place(place, root=root, age_limit=age_limit, with_tensors=False)


def _check_root(place: str) -> None:
    try:
        if os.path.isdir(place):
            os.scandir(place).close()
        else:
            os.stat(place)
    except (FileNotFoundError, NotADirectoryError):
        hint = "check the spelling; if it lies on a mount, check that the storage is mounted here"
        raise RootUnreadable(place, "there is no such file or folder", hint, is_missing=True) from None
    except PermissionError:
        hint = f"run as a user who may read it, or give uid {os.geteuid()} read and search permission on it"
        raise RootUnreadable(place, "this user may not read it", hint) from None
    except OSError as error:
        hint = "check the mount and its server, then run again"
        raise RootUnreadable(place, f"it could not be read ({error.strerror})", hint) from None


def _newest_first(shard_map: ShardMap) -> tuple[int, str, str]:
    return 1 if shard_map.step is None else -shard_map.step, shard_map.run, shard_map.path


def _leftover(path: str) -> Finding:
    return finding("temporary_left", path=path, detail="its name says that the save which made it did not end")


def _with_duplicates(checkpoints: Iterable[ShardMap]) -> list[ShardMap]:
    """Two checkpoints in one folder with one step: each says so."""
    places: dict[tuple[str, int], list[str]] = defaultdict(list)
    listed = list(checkpoints)
    for shard_map in listed:
        if shard_map.step is not None:
            places[os.path.dirname(shard_map.path), shard_map.step].append(shard_map.path)
    return [_marked(shard_map, places) for shard_map in listed]


def _marked(shard_map: ShardMap, places: dict[tuple[str, int], list[str]]) -> ShardMap:
    same = places.get((os.path.dirname(shard_map.path), shard_map.step if shard_map.step is not None else -1), [])
    others = [os.path.basename(path) for path in same if path != shard_map.path]
    if not others:
        return shard_map
    detail = f"{', '.join(sorted(others)[:3])} in the same folder claims step {shard_map.step} too"
    found = finding("duplicate_step", path=shard_map.path, detail=detail)
    return msgspec.structs.replace(shard_map, findings=(*shard_map.findings, found))
