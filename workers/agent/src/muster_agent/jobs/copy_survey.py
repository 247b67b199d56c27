"""What belongs to a copy of a checkpoint: every file in its folder, so that nothing is lost when the source goes."""

from __future__ import annotations

import os
import stat

from muster_agent.formats.checkpoint import is_family
from muster_agent.formats.names import is_ours
from muster_agent.jobs.copy_trouble import CopyTrouble, source_trouble
from muster_agent.protocol.copies import CopiedFile

MAX_FILES = 200_000
_LEFT_ALONE = frozenset({".snapshot", "lost+found"})
Listing = tuple[list[CopiedFile], list[str]]


def list_files(path: str, root: str) -> Listing:
    """Every file and folder at `path`, relative to it; Muster's own manifest is left out. Links to files inside the
    real `root` are followed. Raises CopyTrouble for what cannot be copied as it is."""
    if is_family(path):
        raise CopyTrouble(
            "unsupported", f"the files of {path} share a folder with other checkpoints; copy that folder as a whole"
        )
    try:
        if not os.path.isdir(path):
            return [_file(path, os.path.basename(path), root)], []
        return _list_folder(path, root)
    except OSError as error:
        raise source_trouble(error, path) from error


def _list_folder(path: str, root: str) -> Listing:
    files: list[CopiedFile] = []
    folders: list[str] = []
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(os.path.join(path, inside)) as entries:
            for entry in entries:
                relative = f"{inside}/{entry.name}" if inside else entry.name
                if _is_left_alone(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(relative)
                    waiting.append(relative)
                else:
                    files.append(_file(entry.path, relative, root))
                if len(files) > MAX_FILES:
                    raise CopyTrouble("unsupported", f"{path} has more than {MAX_FILES} files")
    return sorted(files, key=lambda one: one.path), sorted(folders)


def _is_left_alone(name: str) -> bool:
    """What is not the checkpoint's: our own notes, files that NFS keeps until they are closed, snapshots."""
    return is_ours(name) or name.startswith(".nfs") or name in _LEFT_ALONE


def _file(location: str, relative: str, root: str) -> CopiedFile:
    seen = os.lstat(location)
    is_link = stat.S_ISLNK(seen.st_mode)
    if is_link:
        seen = _followed(location, root)
    if not stat.S_ISREG(seen.st_mode):
        raise CopyTrouble("special_file", f"{location} is no regular file; remove it, or move the checkpoint by hand")
    if not _is_text(relative):
        raise CopyTrouble("special_file", f"the name {relative!r} is no text; rename the file, then scan the tier")
    mode = stat.S_IMODE(seen.st_mode) & 0o777
    return CopiedFile(path=relative, size_bytes=seen.st_size, mtime_ns=seen.st_mtime_ns, mode=mode, is_link=is_link)


def _followed(location: str, root: str) -> os.stat_result:
    real = os.path.realpath(location)
    if not real.startswith(os.path.realpath(root).rstrip("/") + "/"):
        raise CopyTrouble("links", f"{location} is a link to {real}, outside its tier; copy that file into the folder")
    seen = os.stat(location)
    if stat.S_ISDIR(seen.st_mode):
        raise CopyTrouble("links", f"{location} is a link to a folder; replace it by the folder")
    return seen


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
