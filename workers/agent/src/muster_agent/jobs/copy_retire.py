"""Removing a copy that is not needed any more: first out of sight in one step, then file by file, and only what was
known to be there. The caller has made sure that it may go."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence

from muster_agent.formats.names import beside, is_ours
from muster_agent.jobs.copy_survey import list_files
from muster_agent.jobs.copy_trouble import CopyTrouble, target_trouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.manifest.model import FILE_MANIFEST_SUFFIX, VERDICT_NAME
from muster_agent.protocol.copies import CopiedFile, Known

ASIDE_PREFIX = ".muster-retire-"


def known_files(files: Sequence[CopiedFile]) -> list[Known]:
    return sorted((one.path, one.size_bytes, one.mtime_ns) for one in files)


def is_under_way(path: str, tag: str) -> bool:
    """Whether an earlier attempt has put it out of sight, and has not ended."""
    return os.path.lexists(_hidden(path, tag))


def _hidden(path: str, tag: str) -> str:
    parent, name = os.path.split(path)
    return os.path.join(parent, ASIDE_PREFIX + tag, name)


def retire_folder(path: str, root: str, tag: str, known: Sequence[Known] | None, check: Callable[[], None]) -> bool:
    """Remove the checkpoint at `path`, of which exactly the files in `known` were copied or may go; None finishes a
    removal that is under way, whose files were compared before. False where nothing of it was there any more. Raises
    CopyTrouble `source_changed`, with everything in its place again, where other files lie there. May be repeated after
    a crash at any moment."""
    hidden = _hidden(path, tag)
    aside, parent = os.path.dirname(hidden), os.path.dirname(path)
    with _removing(path):
        was_there = os.path.lexists(path)
        if known is not None and was_there and not os.path.lexists(hidden):
            _require_same(path, root, known)
            failpoint("retire.checked")
            _put_aside(path, aside, hidden)
            failpoint("retire.aside")
            _require_same_or_back(path, root, hidden, known)
        elif was_there:
            raise CopyTrouble("source_changed", f"{path} is there again while its removal is under way; look at it")
        was_there = was_there or os.path.lexists(hidden)
        if os.path.lexists(hidden):
            _remove(hidden, known if known is not None else known_files(list_files(hidden, root)[0]), check)
        failpoint("retire.emptied")
        shutil.rmtree(aside, ignore_errors=True)
        _sync(parent)
    failpoint("retire.removed")
    return was_there


def _put_aside(path: str, aside: str, hidden: str) -> None:
    """From here on nobody reads it by its name, and a reader that has it open keeps what it reads."""
    os.makedirs(aside, exist_ok=True)
    if not os.path.isdir(path):
        for suffix in (FILE_MANIFEST_SUFFIX, VERDICT_NAME):
            with contextlib.suppress(FileNotFoundError):
                os.rename(beside(path, suffix), beside(hidden, suffix))
    os.rename(path, hidden)
    _sync(os.path.dirname(path))


def _require_same(path: str, root: str, known: Sequence[Known]) -> None:
    files, _folders = list_files(path, root)
    there = known_files(files)
    wanted = [*known]
    if there == sorted(wanted):
        return
    other = sorted(set(there) ^ set(wanted))
    name = other[0][0] if other else path
    raise CopyTrouble("source_changed", f"{path} is not what it was ({name} was added, changed or removed); it stays")


def _require_same_or_back(path: str, root: str, hidden: str, known: Sequence[Known]) -> None:
    """A writer may have been quicker than the rename: then it gets its folder back."""
    try:
        _require_same(hidden, root, known)
    except CopyTrouble:
        os.rename(hidden, path)
        if not os.path.isdir(path):
            for suffix in (FILE_MANIFEST_SUFFIX, VERDICT_NAME):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(beside(hidden, suffix), beside(path, suffix))
        shutil.rmtree(os.path.dirname(hidden), ignore_errors=True)
        raise


def _remove(hidden: str, known: Sequence[Known], check: Callable[[], None]) -> None:
    """Known files only: what a writer added meanwhile keeps its folder from going."""
    is_folder = os.path.isdir(hidden)
    for path, _size, _mtime in known:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(hidden, path) if is_folder else hidden)
        failpoint("retire.half")
        check()
    if is_folder:
        _remove_folders(hidden)


def _remove_folders(folder: str) -> None:
    for inside, _folders, names in os.walk(folder, topdown=False):
        for name in names:
            if is_ours(name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(inside, name))
        left = os.listdir(inside)
        if not left:
            os.rmdir(inside)
        elif any(not name.startswith(".nfs") for name in left):
            raise CopyTrouble("source_changed", f"{inside} has {left[0]}, which nobody copied; look at it")


@contextlib.contextmanager
def _removing(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise target_trouble(error, place) from error


def _sync(folder: str) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
