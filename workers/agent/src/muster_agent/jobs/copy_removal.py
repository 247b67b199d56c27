"""The part of a removal that looks at the storage: a verified colder copy lies there now, the files are those that may
go, and only then are they removed. The caller has asked every rule that rows can answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from muster_agent.formats.fingerprint import fingerprint
from muster_agent.formats.places import is_bucket
from muster_agent.jobs.copy_names import require_inside, require_tag
from muster_agent.jobs.copy_posix import same_mark
from muster_agent.jobs.copy_retire import is_under_way, known_files, retire_folder
from muster_agent.jobs.copy_retire_objects import begin_removal, removal_began, remove_objects
from muster_agent.jobs.copy_source import files_at, place_for
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.protocol.copies import ColderCopy, Known, RemovalOrder
from muster_agent.protocol.stores import StoreAt
from muster_agent.storage.s3_writer import S3Writer

Stores = Callable[[str, StoreAt], S3Writer | None]
"""The client for what lies at a path; None for a mounted file system. Raises CopyTrouble."""


class Stays(Exception):
    """The copy must not be removed; the message says why."""


def remove(order: RemovalOrder, stores: Stores, check: Callable[[], None]) -> None:
    """Remove it. Repeating it is harmless, and finishes what was under way without asking again: nobody can read that
    any more. Raises Stays where something speaks against it, CopyTrouble where the storage does."""
    require_tag(order.tag)
    require_inside(order.source, (path for path, _size, _mtime in order.known or ()))
    if is_bucket(order.source):
        _remove_objects(order, stores, check)
        return
    same_mark(order.source_root, list(order.source_mark), "source_unreachable")
    is_whole = os.path.lexists(order.source) and not is_under_way(order.source, order.tag)
    known = _known(order, stores) if is_whole else None
    retire_folder(order.source, order.source_root, order.tag, known, check)


def _remove_objects(order: RemovalOrder, stores: Stores, check: Callable[[], None]) -> None:
    store = stores(order.source, order.source_store)
    assert store is not None
    if not removal_began(store, order.source, order.tag):
        begin_removal(store, order.source, order.tag, _known(order, stores))
    remove_objects(store, order.source, order.tag, check)


def _known(order: RemovalOrder, stores: Stores) -> Sequence[Known]:
    """The files that may go."""
    if order.stays:
        raise Stays(order.stays)
    if order.colder is not None:
        _look_at_one(order, order.colder, stores)
    if order.known is not None:
        return order.known
    files = known_files(files_at(order.source, order.source_root, stores(order.source, order.source_store))[0])
    if fingerprint(one for one in files if one[0] in order.recorded) != order.fingerprint:
        raise Stays("its files are not those of the last scan; scan its tier")
    return files


def _look_at_one(order: RemovalOrder, colder: Sequence[ColderCopy], stores: Stores) -> None:
    """At least one verified colder copy must lie there now, every file with its size and time."""
    told = []
    for one in colder:
        why = _why_not_there(order, one, stores)
        if not why:
            return
        told.append(f"its copy on {one.tier} {why}")
    raise Stays("; ".join(told) or "there is no copy of it on a colder tier")


def _why_not_there(order: RemovalOrder, colder: ColderCopy, stores: Stores) -> str:
    if not is_bucket(colder.path):
        same_mark(colder.root, [], "target_unreachable")
    there = place_for(colder.path, stores(colder.path, colder.store)).stat_all(
        [path for path, _size, _mtime in colder.files]
    )
    for (path, size_bytes, mtime_ns), seen in zip(colder.files, there, strict=True):
        if isinstance(seen.error, FileNotFoundError):
            return f"lacks {path} ({seen.error.strerror})"
        if seen.error is not None:
            raise CopyTrouble("target_unreachable", f"{seen.location or colder.path}: {seen.error.strerror}")
        if (seen.size_bytes, seen.mtime_ns) != (size_bytes, mtime_ns):
            return f"has another {path} than was proven"
    return _what_it_lacks(order, colder, stores) if order.lacks_nothing else ""


def _what_it_lacks(order: RemovalOrder, colder: ColderCopy, stores: Stores) -> str:
    """Files that belong to no shard are no part of what was verified, but they must not be lost either."""
    there = {
        (one.path, one.size_bytes) for one in files_at(colder.path, colder.root, stores(colder.path, colder.store))[0]
    }
    for one in files_at(order.source, order.source_root, stores(order.source, order.source_store))[0]:
        if (one.path, one.size_bytes) not in there and len(there) > 1:
            return f"lacks {one.path}"
    return ""
