"""Finding where checkpoints lie below a place: which folders are one, hold some, or hold further folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from muster_agent.decide.model import Pointer
from muster_agent.formats import registry
from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.checkpoint import (
    Later,
    begin_family,
    begin_folder,
    begin_single_file,
    read_place,
)
from muster_agent.formats.child import Children
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder, PosixTree, absolute, escapes
from muster_agent.formats.hub_cache import root_of
from muster_agent.formats.known_by_name import unread_tasks
from muster_agent.formats.names import is_like_a_checkpoint, is_temporary, step_of_name, step_of_unfinished
from muster_agent.formats.places import resolved
from muster_agent.formats.pointers import is_other_name, is_pointer, read_pointer
from muster_agent.formats.reader import Family, FamilyFormat
from muster_agent.formats.s3_tree import S3Tree
from muster_agent.formats.scan_progress import ScanProgress
from muster_agent.formats.scan_reading import Enough, Read, Reading, Task
from muster_agent.formats.verdict import AgeLimit

MAX_DEPTH = 16
_MAX_LOOKED_INTO = 64


class Finder:
    """Finds where checkpoints lie; `reading` reads them."""

    def __init__(self, root: str, reading: Reading, tree: PosixTree | S3Tree, progress: ScanProgress) -> None:
        self.root = root_of(resolved(root))
        self.reading = reading
        self.control, self.counts = reading.control, reading.counts
        self.tree = tree
        self.seen: set[tuple[int, int]] = set()
        self.tasks: list[Task] = []
        self.nested: list[tuple[Folder, int]] = []
        self.links: list[tuple[str, int]] = []
        self.pointers: list[Pointer] = []
        self.findings: list[Finding] = []
        self.progress = progress

    def look(self, path: str, root: str | None = None) -> Folder:
        folder = self.tree.look(path, root or self.root)
        if folder.own:
            self.reading.sealed.add(path)
        return folder

    def begin(self, place: str) -> None:
        only = self._one(place)
        if only is not None:
            self.tasks.append(only)
            return
        self.seen.add(_identity(place) or (0, 0))
        self.enter(place, 0)
        if not self.tasks:
            self.follow_links()
        if not self.tasks and step_of_name(os.path.basename(place)) is not None:
            self.tasks.append(self._task(place, lambda: self.look(place), self.read_step, self.look(place)))

    def _one(self, place: str) -> Task | None:
        """The single checkpoint at `place`; None for a folder not named like a step, or that only holds such ones."""
        parent = os.path.dirname(place)
        root = resolved(parent)
        if not self.tree.is_folder(place):

            def read(folder: Folder, age_limit: AgeLimit, children: Children) -> ShardMap | Later:
                name = os.path.basename(place)
                if name in folder.files:
                    return begin_single_file(folder, name, children, age_limit=age_limit, with_tensors=False)
                return read_place(place, root=root, age_limit=age_limit, with_tensors=False)

            return Task(place, parent, None, lambda: self.look(parent, root), read)
        if step_of_name(os.path.basename(place)) is None:
            return None
        inside = root if not escapes(place, root) else resolved(place)
        folder = self.look(place, inside)
        if registry.claim(folder) is None and any(step_of_name(name) is not None for name in folder.folders):
            return None
        if registry.is_numbered_run(folder) or registry.may_be_a_run(folder):
            return None
        return Task(place, parent, None, lambda: self.look(place, inside), self.read_step, folder)

    def enter(self, path: str, depth: int) -> None:
        """Walk the folder at `path`, which is not a checkpoint by its name and was not entered before."""
        self.control.check()
        folder = self.look(path)
        if folder.gone:
            return
        self.counts.add(folder)
        self.progress.listed()
        self._take(folder, depth)

    def _take(self, folder: Folder, depth: int) -> None:
        claimed = registry.claim(folder) if folder.listed else None
        if not folder.listed or claimed is not None:
            self.tasks.append(self._task(folder.path, lambda: self.look(folder.path), self.read_step, folder))
            own = set(claimed.owns(folder)) if claimed else set()
            steps = [name for name in folder.folders if step_of_name(name) is not None and name not in own]
            self._enter_folders(steps, folder, depth)
            self.tasks.extend(task for name, task in unread_tasks(folder).items() if name not in own)
        else:
            self.descend(folder, depth)

    def descend(self, folder: Folder, depth: int) -> None:
        """Take what a folder that is no checkpoint holds: pointers, leftovers, checkpoints, further folders."""
        self._take_pointers(folder)
        shared = self._take_families(folder)
        self._take_files(folder, shared)
        unread = unread_tasks(folder)
        self.tasks.extend(unread.values())
        told = (found for found in folder.findings if found.path not in unread and not is_pointer(folder, found.path))
        self.findings.extend(absolute(found, folder.path) for found in told)
        self._enter_folders([name for name in folder.folders if name not in shared], folder, depth)

    def _take_families(self, folder: Folder) -> set[str]:
        """Add the checkpoints that share the folder; the names of the files and sub-folders that are theirs."""
        taken: set[str] = set()
        for family_format, family in registry.families_of(folder):
            read = _family_reader(family_format, family)
            path = os.path.join(folder.path, family.pattern)
            task = Task(path, folder.path, family.step, lambda: self.look(folder.path), read, folder)
            self.tasks.append(task)
            taken |= family.files | family.folders
        return taken

    def _enter_folders(self, names: Sequence[str], folder: Folder, depth: int) -> None:
        """Some writers keep the steps beside a final checkpoint, so a folder may be one and hold others."""
        for name in names:
            path = os.path.join(folder.path, name)
            if name in folder.links:
                if not is_pointer(folder, name):
                    self.links.append((path, depth + 1))
            elif is_temporary(name):
                if step_of_unfinished(name) is None or registry.claim(folder.sub(name)) is None:
                    self.findings.append(_leftover(path))
                else:
                    self._go_into(path, folder.identities.get(name), True, depth + 1)
            elif (is_step := step_of_name(name) is not None) or not _is_hidden(name):
                if is_step or depth < MAX_DEPTH:
                    self._go_into(path, folder.identities.get(name), is_step, depth + 1)
                else:
                    self.findings.append(_too_deep(path))

    def follow_links(self) -> None:
        """Links come last, so that a folder is listed under its own name where it has one inside the root."""
        while self.links:
            path, depth = self.links.pop()
            if depth <= MAX_DEPTH and not escapes(path, self.root):
                is_step = step_of_name(os.path.basename(path)) is not None
                self._go_into(path, _identity(path), is_step, depth)

    def _go_into(self, path: str, identity: tuple[int, int] | None, is_step: bool, depth: int) -> None:
        """A folder named like a step is a checkpoint, unless it only holds folders that are themselves steps."""
        if identity in self.seen:
            return
        if identity is not None:
            self.seen.add(identity)
        if is_step:
            self.tasks.append(self._task(path, lambda: self.look(path), self._step_reader(depth)))
        else:
            self.enter(path, depth)

    def _task(
        self,
        path: str,
        look: Callable[[], Folder],
        read: Read,
        seen: Folder | None = None,
    ) -> Task:
        self.counts.unlisted += seen is None
        return Task(path, os.path.dirname(path), step_of_name(os.path.basename(path)), look, read, seen)

    def _step_reader(self, depth: int) -> Read:
        def read(folder: Folder, age_limit: AgeLimit, children: Children) -> ShardMap | Later | None:
            if depth < MAX_DEPTH and _is_run(folder):
                self.nested.append((folder, depth))
                return None
            return self.read_step(folder, age_limit, children)

        return read

    def read_step(self, folder: Folder, age_limit: AgeLimit, children: Children) -> ShardMap | Later:
        return begin_folder(folder, children, age_limit=age_limit, with_tensors=False)

    def _take_nested(self, folder: Folder, depth: int) -> None:
        """What is named like a step and holds nothing that could be one is listed as what it seems to be."""
        before = len(self.tasks)
        self._take(folder, depth)
        if len(self.tasks) == before and registry.may_be_a_run(folder):
            self.tasks.append(self._task(folder.path, lambda: self.look(folder.path), self.read_step, folder))

    def _take_pointers(self, folder: Folder) -> None:
        for name in sorted(folder.files.keys() | folder.links):
            if is_pointer(folder, name):
                pointer, found = read_pointer(folder, name)
                self.pointers.extend([pointer] if pointer else [])
                self.findings.extend([found] if found else [])

    def _take_files(self, folder: Folder, shared: set[str]) -> None:
        for name in sorted(folder.files.keys() - shared):
            if is_temporary(name):
                self.findings.append(_leftover(os.path.join(folder.path, name)))
            elif not is_other_name(folder, name) and registry.claim_file(folder, name) is not None:
                path = os.path.join(folder.path, name)
                self.tasks.append(self._task(path, lambda: self.look(folder.path), _file_reader(name), folder))

    def run_tasks(self, enough: Enough | None) -> list[ShardMap]:
        """Read what was found; what turned out to hold further steps is walked in the next round."""
        read: list[ShardMap] = []
        while self.tasks:
            tasks, self.tasks, self.nested = self.tasks, [], []
            results = self.reading.all_of(tasks) if enough is None else self.reading.until(tasks, enough, self.pointers)
            self.progress.more(len(tasks))
            for found in results:
                read.append(found)
                self.progress.done()
            for folder, depth in self.nested:
                self._take_nested(folder, depth)
            if not self.tasks:
                self.follow_links()
        for found in self.reading.rest():
            read.append(found)
            self.progress.done()
        return read


def _is_hidden(name: str) -> bool:
    """Whether it is a hidden folder, and not one of checkpoints, which some jobs hide: `.checkpoints`."""
    return name.startswith(".") and not is_like_a_checkpoint(name[1:])


def _is_run(folder: Folder) -> bool:
    """Whether a folder that is named like a step holds checkpoints, and is none."""
    if _holds_steps(folder) and registry.claim(folder) is None:
        return True
    return registry.is_numbered_run(folder) or registry.may_be_a_run(folder)


def _holds_steps(folder: Folder) -> bool:
    """Whether steps lie in the folder, or, where it has no file of its own, in a folder that lies in it. Numbers alone
    may be those of ranks in a folder whose own name says that it is a step."""
    steps = [name for name in folder.folders if step_of_name(name) is not None]
    if any(not name.isdecimal() for name in steps) or (steps and os.path.basename(folder.path).isdecimal()):
        return True
    if any(registry.claim(folder.sub(name)) is not None for name in steps[:_MAX_LOOKED_INTO]):
        return True
    inside = () if folder.files else folder.folders[:_MAX_LOOKED_INTO]
    return any(step_of_name(name) is not None for one in inside for name in folder.sub(one).folders)


def _family_reader(family_format: FamilyFormat, family: Family) -> Read:
    def read(folder: Folder, age_limit: AgeLimit, children: Children) -> ShardMap | Later | None:
        return begin_family(folder, family_format, family, children, age_limit=age_limit, with_tensors=False)

    return read


def _file_reader(name: str) -> Read:
    def read(folder: Folder, age_limit: AgeLimit, children: Children) -> ShardMap | Later | None:
        if name not in folder.files:
            return None
        return begin_single_file(folder, name, children, age_limit=age_limit, with_tensors=False)

    return read


def _identity(path: str) -> tuple[int, int] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _too_deep(path: str) -> Finding:
    detail = f"it lies more than {MAX_DEPTH} folders below the place, and was not looked at"
    return finding("listing_failed", path=path, detail=detail, cure="Name this folder, or one nearer to it.")


def _leftover(path: str) -> Finding:
    return finding("temporary_left", path=path, detail="its name says that the save which made it did not end")
