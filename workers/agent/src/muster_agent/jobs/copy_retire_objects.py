"""Removing a copy in a bucket that is not needed any more. A bucket renames nothing, so a note beside it says that its
removal is under way; the note goes last. The caller has made sure that it may go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import msgspec

from muster_agent.formats.names import beside, is_ours
from muster_agent.formats.places import bucket_and_prefix
from muster_agent.jobs.copy_retire import known_files
from muster_agent.jobs.copy_source import files_at
from muster_agent.jobs.copy_trouble import CopyTrouble, target_trouble
from muster_agent.jobs.failpoints import failpoint
from muster_agent.manifest.model import FILE_MANIFEST_SUFFIX, VERDICT_NAME
from muster_agent.protocol.copies import Known
from muster_agent.storage.s3_writer import S3Writer

NOTE_PREFIX = ".muster-retire-"


def removal_began(store: S3Writer, path: str, tag: str) -> bool:
    """Whether an earlier attempt compared its objects and began to remove them."""
    bucket, key = _note(path, tag)
    with _removing(path):
        found = store.first(bucket, key)
    return found is not None and found.key == key


def begin_removal(store: S3Writer, path: str, tag: str, known: Sequence[Known]) -> None:
    """Note that exactly the objects in `known` may go. Raises CopyTrouble `source_changed` where others lie there."""
    there = known_files(files_at(path, path, store)[0])
    if there != sorted(known):
        other = sorted(set(there) ^ set(known))
        name = other[0][0] if other else path
        raise CopyTrouble(
            "source_changed", f"{path} is not what it was ({name} was added, changed or removed); it stays"
        )
    failpoint("retire.checked")
    bucket, key = _note(path, tag)
    with _removing(path):
        store.write(bucket, key, msgspec.json.encode([name for name, _size, _mtime in known]), only_new=False)
    failpoint("retire.aside")


def remove_objects(store: S3Writer, path: str, tag: str, check: Callable[[], None]) -> None:
    """Remove the objects that the note names, the manifest, then the note. May be repeated after a crash. What somebody
    added meanwhile stays: CopyTrouble `source_changed`."""
    bucket, prefix = bucket_and_prefix(path)
    with _removing(path):
        names = _names(store, path, tag)
        for name in names:
            store.delete(bucket, prefix + name)
            failpoint("retire.half")
            check()
        if len(names) == 1:
            for place in (path, beside(path, FILE_MANIFEST_SUFFIX), beside(path, VERDICT_NAME)):
                store.delete(bucket, bucket_and_prefix(place)[1].rstrip("/"))
        for seen in store.objects(bucket, prefix, one_level=False, check=check).objects:
            if not is_ours(seen.key.rpartition("/")[2]):
                told = f"s3://{bucket}/{seen.key} was added while its checkpoint was removed; look at it"
                raise CopyTrouble("source_changed", told)
            store.delete(bucket, seen.key)
        store.delete(*_note(path, tag))
    failpoint("retire.removed")


def _names(store: S3Writer, path: str, tag: str) -> list[str]:
    bucket, key = _note(path, tag)
    seen = store.first(bucket, key)
    if seen is None or seen.key != key:
        return []
    return msgspec.json.decode(store.read(bucket, key, 0, seen.size_bytes, "")[0], type=list[str])


def _note(path: str, tag: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    bucket, prefix = bucket_and_prefix(parent)
    return bucket, f"{prefix}{NOTE_PREFIX}{tag}-{name}"


@contextlib.contextmanager
def _removing(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise target_trouble(error, place) from error
