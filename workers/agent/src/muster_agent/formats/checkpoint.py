"""Reading one checkpoint: look at its place, let the format's reader state facts, and conclude."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable

import msgspec

from muster_agent.formats import registry
from muster_agent.formats.base import Finding, Role, Severity, ShardEntry, ShardMap
from muster_agent.formats.child import Children, Reading, request_of
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import FileSeen, Folder, look, trouble
from muster_agent.formats.foreign import UNKNOWN_FORMAT
from muster_agent.formats.hub_cache import root_of
from muster_agent.formats.limits import NeedsChild
from muster_agent.formats.names import (
    counts_epochs_or_saves,
    family_folder,
    is_temporary,
    run_of_path,
    step_of_file,
    step_of_name,
    step_of_unfinished,
)
from muster_agent.formats.nested import take_folder_findings
from muster_agent.formats.places import lies_in
from muster_agent.formats.reader import Family, FamilyFormat
from muster_agent.formats.unread import take_unread
from muster_agent.formats.verdict import AgeLimit, conclude

GRACE_SECONDS = 600.0


def read_checkpoint(
    path: str | os.PathLike[str],
    *,
    grace_seconds: float = GRACE_SECONDS,
    now_unix_seconds: float | None = None,
    format: str | None = None,
    with_tensors: bool = True,
) -> ShardMap:
    """Everything that can be known about the one checkpoint at `path` (a folder or a file) without trusting it.

    Any path gives a ShardMap; trouble shows as status `unknown` or `unreadable` with findings. A save whose newest
    change is younger than `grace_seconds` may still be running. `format` refuses any other format as unknown. Without
    `with_tensors` only as much is opened as a scan opens, which of many files is far less.
    """
    place = os.path.abspath(os.fspath(path))
    age_limit = AgeLimit(time.time() if now_unix_seconds is None else now_unix_seconds, grace_seconds)
    together = family_folder(place)
    if together is not None and not os.path.lexists(place):
        folder = look(together, os.path.realpath(together))
        return _read_family_at(place, folder, age_limit, with_tensors=with_tensors)
    root = os.path.realpath(os.path.dirname(place))
    shard_map = read_place(place, root=root, age_limit=age_limit, with_tensors=with_tensors)
    if format is not None and shard_map.format not in (format, UNKNOWN_FORMAT):
        draft = Draft(shard_map.format, roles=None, undecided=f"it is a {shard_map.format} checkpoint, not {format}")
        return _conclude(draft, place, Folder(place, place), age_limit)
    return shard_map


def read_place(place: str, *, root: str, age_limit: AgeLimit, with_tensors: bool) -> ShardMap:
    """As read_checkpoint, for an absolute path whose links may not lead out of the resolved folder `root`."""
    try:
        seen = os.stat(place)
    except OSError as error:
        return could_not_look(place, trouble(error, place), age_limit)
    if stat.S_ISDIR(seen.st_mode):
        real = os.path.realpath(place)
        inside = root if lies_in(real, root) else real
        cache = root_of(real)
        inside = cache if lies_in(inside, cache) else inside
        return read_folder(look(place, inside), age_limit=age_limit, with_tensors=with_tensors)
    if not stat.S_ISREG(seen.st_mode):
        draft = Draft(UNKNOWN_FORMAT, roles=None, undecided="it is neither a file nor a folder")
        return _conclude(draft, place, Folder(place, root), age_limit)
    folder = Folder(os.path.dirname(place), root)
    folder.files[os.path.basename(place)] = FileSeen(seen.st_size, seen.st_mtime_ns)
    return read_single_file(folder, os.path.basename(place), age_limit=age_limit, with_tensors=with_tensors)


class Later:
    """A checkpoint that a child process is reading; `result()` waits for it."""

    def __init__(self, reading: Reading, path: str, finish: Callable[[Draft], ShardMap]) -> None:
        self._reading, self._path, self._finish = reading, path, finish

    def wait(self, seconds: float) -> bool:
        """Whether `result` answers at once, waited for that long at most."""
        return self._reading.wait(seconds)

    def result(self) -> ShardMap:
        return self._finish(_guarded(self._reading.result, self._path))


def now(begun: ShardMap | Later) -> ShardMap:
    """The checkpoint, waited for where a child process reads it."""
    return begun.result() if isinstance(begun, Later) else begun


def read_folder(folder: Folder, *, age_limit: AgeLimit, with_tensors: bool) -> ShardMap:
    """The checkpoint that the folder is, whatever its name."""
    with Children() as children:
        return now(begin_folder(folder, children, age_limit=age_limit, with_tensors=with_tensors))


def begin_folder(folder: Folder, children: Children, *, age_limit: AgeLimit, with_tensors: bool) -> ShardMap | Later:
    """As read_folder, but where the metadata is large a child begins to read it, and the caller may go on."""
    if not folder.listed:
        return could_not_look(folder.path, folder.findings[-1], age_limit)
    reader = registry.format_of_checkpoint(folder)

    def finish(draft: Draft) -> ShardMap:
        draft.number_is_no_step = draft.number_is_no_step or registry.is_numbered_run(folder)
        take_unread(draft, folder)
        take_folder_findings(draft, folder)
        return _conclude(draft, folder.path, folder, age_limit)

    try:
        return finish(_guarded(lambda: reader.read(folder, with_tensors), folder.path))
    except NeedsChild:
        request = request_of(folder, reader.name, with_tensors=with_tensors)
        return Later(children.start(request, folder), folder.path, finish)


def read_single_file(folder: Folder, name: str, *, age_limit: AgeLimit, with_tensors: bool) -> ShardMap:
    """The checkpoint that the file `name` of `folder` is by itself."""
    with Children() as children:
        return now(begin_single_file(folder, name, children, age_limit=age_limit, with_tensors=with_tensors))


def begin_single_file(
    folder: Folder, name: str, children: Children, *, age_limit: AgeLimit, with_tensors: bool
) -> ShardMap | Later:
    """As read_single_file; see begin_folder."""
    path = os.path.join(folder.path, name)

    def finish(draft: Draft) -> ShardMap:
        only = Folder(path, folder.root, files={name: folder.files[name]}, archived=folder.archived & {name})
        return _conclude(draft, path, only, age_limit)

    try:
        return finish(_guarded(lambda: registry.read_file(folder, name, with_tensors), path))
    except NeedsChild:
        request = request_of(folder, UNKNOWN_FORMAT, name=name, with_tensors=with_tensors)
        return Later(children.start(request, folder), path, finish)


def read_family(
    folder: Folder, family_format: FamilyFormat, family: Family, *, age_limit: AgeLimit, with_tensors: bool
) -> ShardMap:
    """The checkpoint whose files share `folder` with others."""
    with Children() as children:
        begun = begin_family(folder, family_format, family, children, age_limit=age_limit, with_tensors=with_tensors)
        return now(begun)


def begin_family(
    folder: Folder,
    family_format: FamilyFormat,
    family: Family,
    children: Children,
    *,
    age_limit: AgeLimit,
    with_tensors: bool,
) -> ShardMap | Later:
    """As read_family; see begin_folder."""
    path = os.path.join(folder.path, family.pattern)

    def finish(draft: Draft) -> ShardMap:
        draft.step = family.step if draft.step is None else draft.step
        files = {name: seen for name, seen in folder.files.items() if name in family.files}
        own = Folder(path, folder.root, files=files, archived=folder.archived)
        times = [shard.mtime_ns for shard in draft.shards if shard.mtime_ns is not None]
        own.mtime_ns = max(times, default=None)
        return _conclude(draft, path, own, age_limit)

    try:
        return finish(_guarded(lambda: family_format.read(folder, family, with_tensors), path))
    except NeedsChild:
        request = request_of(folder, family_format.name, family=family, with_tensors=with_tensors)
        return Later(children.start(request, folder), path, finish)


def is_family(path: str) -> bool:
    """Whether files that share a folder with others make up a checkpoint of this path: `run/ep0-ba10-rank{rank}.pt`."""
    together = family_folder(path)
    if together is None or not os.path.isdir(together):
        return False
    folder = look(together, os.path.realpath(together))
    return any(os.path.join(together, family.pattern) == path for _, family in registry.families_of(folder))


def _read_family_at(place: str, folder: Folder, age_limit: AgeLimit, *, with_tensors: bool) -> ShardMap:
    if not folder.listed:
        return could_not_look(place, folder.findings[-1], age_limit)
    for family_format, family in registry.families_of(folder):
        if os.path.join(folder.path, family.pattern) == place:
            return read_family(folder, family_format, family, age_limit=age_limit, with_tensors=with_tensors)
    detail = f"no files in {folder.path} are named like that"
    return could_not_look(place, finding("listing_failed", path=place, detail=detail), age_limit)


def _guarded(read: object, path: str) -> Draft:
    """A fault in a reader must not hide the other checkpoints of an inventory, so it becomes this one's finding."""
    assert callable(read)
    try:
        draft = read()
        assert isinstance(draft, Draft)
        return draft
    except NeedsChild:
        raise
    except Exception as error:
        detail = f"Muster's reader failed on it ({type(error).__name__}); please report this with the file"
        draft = Draft(UNKNOWN_FORMAT, roles=None, undecided="it could not be understood")
        cure = "Report it with the file; until then, check it with the framework that wrote it."
        draft.findings.append(
            finding("metadata_unreadable", path=path, detail=detail, severity=Severity.WARNING, cure=cure)
        )
        return draft


def could_not_look(place: str, found: Finding, age_limit: AgeLimit) -> ShardMap:
    """What can be said of a checkpoint of which only its name is known; `found` says why."""
    draft = Draft(UNKNOWN_FORMAT, roles=None, findings=[found])
    return _conclude(draft, place, Folder(place, place), age_limit)


def _conclude(draft: Draft, path: str, folder: Folder, age_limit: AgeLimit) -> ShardMap:
    named = step_of_name(os.path.basename(path))
    if named is None and (os.path.basename(path) in folder.files or not folder.files):
        named = step_of_file(os.path.basename(path))
    if is_temporary(os.path.basename(path)):
        draft.settling, named = True, step_of_unfinished(os.path.basename(path))
    if draft.number_is_no_step or (draft.step is not None and counts_epochs_or_saves(os.path.basename(path))):
        named = None
    if _may_share_files(folder):
        draft.shards = [_with_shared_file(shard, folder) for shard in draft.shards]
    left = [folder.seen(found.path) for found in draft.findings if found.code == "temporary_left"]
    draft.temporary_is_recent = any(seen is not None and age_limit.is_recent(seen.mtime_ns) for seen in left)
    _note_archived(draft, folder)
    draft.settling = draft.settling or any(s.size_bytes is None and s.path in folder.uploads for s in draft.shards)
    return conclude(
        draft,
        path=path,
        run=run_of_path(path),
        named_step=named,
        newest_mtime_ns=_newest_mtime_ns(draft, folder),
        age_limit=age_limit,
    )


def _may_share_files(folder: Folder) -> bool:
    """Whether any file has several names, which few have: asking each shard costs more than asking the folder first."""
    if folder.links or folder.subs or folder.reached:
        return True
    return any([seen.link_count > 1 for seen in folder.files.values()])


def _with_shared_file(shard: ShardEntry, folder: Folder) -> ShardEntry:
    seen = folder.files.get(shard.path) or folder.seen(shard.path)
    if seen is None or not seen.inode or (seen.link_count < 2 and shard.path not in folder.links):
        return shard
    return msgspec.structs.replace(shard, shared_file=f"{seen.device}:{seen.inode}")


def _note_archived(draft: Draft, folder: Folder) -> None:
    """What could not be opened says nothing of what is inside."""
    may_be = bool(folder.archived or folder.subs)
    lie = [shard.path for shard in draft.shards if folder.is_archived(shard.path)] if may_be else []
    if lie and not any(found.code == "archived" for found in draft.findings):
        detail = f"{len(lie)} of its files lie in an archive class, {lie[0]} is one"
        draft.findings.append(finding("archived", path=lie[0], detail=detail))
    if any(found.code == "archived" for found in draft.findings):
        draft.roles = None


def _newest_mtime_ns(draft: Draft, folder: Folder) -> int | None:
    """Of the folder's files and of the shards, which may lie deeper; of the folder itself where there are none."""
    inside = [shard.mtime_ns for shard in draft.shards if shard.mtime_ns is not None and "/" in shard.path]
    files = [seen.mtime_ns for seen in folder.files.values()]
    return max((*inside, *files, *folder.uploads.values()), default=folder.mtime_ns)


def files_of(shard_map: ShardMap) -> list[tuple[str, int, int]]:
    """(relative path, size in bytes, mtime in ns) of the shards that are there, as `fingerprint()` takes them."""
    return [
        (shard.path, shard.size_bytes, shard.mtime_ns)
        for shard in shard_map.shards
        if shard.size_bytes is not None and shard.mtime_ns is not None
    ]


def absolute_path(shard_map: ShardMap, shard_path: str) -> str:
    """Where a shard of the map lies. Raises ValueError for a path that is not one of the map's shards, so that no name
    from elsewhere is ever joined to the checkpoint's folder."""
    if all(shard.path != shard_path for shard in shard_map.shards):
        raise ValueError(f"{shard_path!r} is not a shard of {shard_map.path}")
    together = family_folder(shard_map.path)
    if together is not None and not os.path.lexists(shard_map.path):
        return os.path.join(together, shard_path)
    if len(shard_map.shards) == 1 and os.path.basename(shard_map.path) == shard_path and not _is_folder(shard_map):
        return shard_map.path
    return os.path.join(shard_map.path, shard_path)


def _is_folder(shard_map: ShardMap) -> bool:
    return os.path.isdir(shard_map.path)


def state_shards(shard_map: ShardMap) -> int:
    """How many shards hold state, as against metadata and files that lie beside it."""
    return sum(shard.role is not Role.METADATA and shard.role is not Role.OTHER for shard in shard_map.shards)
