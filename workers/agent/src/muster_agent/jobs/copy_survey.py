"""What belongs to a copy of a checkpoint: every file in its folder, so that nothing is lost when the source goes."""

from __future__ import annotations

import os
import stat

from muster_agent.formats.base import ShardMap, Status
from muster_agent.formats.checkpoint import is_family
from muster_agent.formats.detect import read_checkpoint
from muster_agent.formats.names import is_ours
from muster_agent.jobs.copy_model import CopiedFile, CopyOrder, CopyTrouble, source_trouble
from muster_agent.manifest.model import Manifest

MAX_FILES = 200_000
_LEFT_ALONE = frozenset({".snapshot", "lost+found"})
Listing = tuple[list[CopiedFile], list[str]]


def require_whole(path: str) -> ShardMap:
    """What the checkpoint at `path` is. Raises CopyTrouble unless it is complete."""
    shard_map = read_checkpoint(path)
    if shard_map.status is Status.COMPLETE:
        return shard_map
    told = "; ".join(found.detail for found in shard_map.findings[:3]) or "nothing more is known"
    code = "source_unreachable" if shard_map.status is Status.UNREADABLE else "source_incomplete"
    raise CopyTrouble(
        code,
        f"{path} is {shard_map.status.value}, and only what is complete is copied: {told}",
        findings=shard_map.findings,
    )


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


def survey(order: CopyOrder) -> tuple[list[CopiedFile], list[CopiedFile], list[str]]:
    """The files to copy, each with what the seal and the metadata know of it; those that are left out; the folders.
    Raises CopyTrouble where the source is
    not complete, changed since it was sealed, or cannot be copied as it is."""
    files, folders = list_files(order.source, order.source_root)
    shard_map = require_whole(order.source)
    by_path = {shard.path: shard for shard in shard_map.shards}
    for one in files:
        shard = by_path.get(one.path)
        if shard is not None:
            one.rank, one.role, one.is_shard = shard.rank, shard.role.value, True
    if order.manifest is not None:
        _take_seal(order.manifest, files, order.source)
    left_out = [one for one in files if one.role in order.leave_out_roles]
    return [one for one in files if one.role not in order.leave_out_roles], left_out, folders


def _take_seal(manifest: Manifest, files: list[CopiedFile], source: str) -> None:
    """Note whose digests are known. Times are not compared: the bytes are, on the way."""
    present = {one.path: one for one in files}
    for shard in manifest.shards:
        one = present.get(shard.path)
        if one is None or one.size_bytes != shard.size_bytes:
            told = "is gone" if one is None else f"has {one.size_bytes} bytes and not {shard.size_bytes}"
            raise CopyTrouble(
                "source_changed", f"{source}/{shard.path} {told}: it is not what was sealed; scan its tier"
            )
        one.is_sealed, one.xxh3_128 = True, shard.xxh3_128
        one.rank, one.role = shard.rank, shard.role
    unsealed = next((one for one in files if one.is_shard and not one.is_sealed), None)
    if unsealed is not None:
        raise CopyTrouble(
            "source_changed", f"{source}/{unsealed.path} is not in its manifest; seal the checkpoint again"
        )
