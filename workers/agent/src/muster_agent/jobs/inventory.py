"""The inventory job: what lies under a root, with the manifests that lie beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.names import family_folder
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.walk import Inventory, RootUnreadable, inventory
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.root_mark import root_mark
from muster_agent.jobs.scan_cache import ScanCache
from muster_agent.manifest.beside import ManifestUnreadable, read_beside
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import InventoryBody, InventoryParams
from muster_agent.storage.small_files import POSIX_FILES, BucketFiles, SmallFiles

BUCKET_READERS = 8

_T = TypeVar("_T")


def run_inventory(
    params: InventoryParams,
    control: JobControl | None = None,
    *,
    cache_file: str | os.PathLike[str] | None = None,
    store: ObjectStore | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> InventoryBody:
    """Every checkpoint under the root, without tensors.

    With `cache_file`, a checkpoint that lies as an earlier scan left it costs the listing of its folders only, and a
    scan that was stopped goes on where it was; nobody but Muster writes that file. `note` gets a line now and then on
    how the scan goes, and on a cache that could not be used. `store` is the client of a root in a bucket.
    Raises RootUnreadable where the root cannot be listed, or turns into another folder meanwhile.
    """
    control, began_at = control or JobControl(), time.monotonic()
    mark = None if store is not None else root_mark(params.root)
    with ExitStack() as stack:
        cache = None
        if cache_file is not None:
            cache = stack.enter_context(ScanCache(cache_file, params.root, recalls=params.known, replace_damaged=True))
        found = inventory(
            params.root, settle_seconds=params.settle_seconds, control=control, memory=cache, note=note, store=store
        )
        files: SmallFiles = POSIX_FILES if store is None else BucketFiles(store)
        manifests, problems = read_manifests(sealed_ones(found), control, files)
        if store is None and root_mark(params.root) != mark:
            hint = "check the mount; nothing is taken from this scan"
            raise RootUnreadable(params.root, "it became another folder during the scan", hint)
        if cache is not None:
            cache.finish()
            note(cache.trouble or f"{found.unchanged} of {len(found.checkpoints)} checkpoints lay as they were known")
    return InventoryBody(
        root=params.root,
        checkpoints=found.checkpoints,
        manifests=manifests,
        findings=(*found.findings, *problems),
        pointers=found.pointers,
        root_mark=mark,
        entries=found.entries,
        unchanged=found.unchanged,
        seconds=time.monotonic() - began_at,
        clock=found.clock,
    )


def sealed_ones(found: Inventory) -> list[ShardMap]:
    """Those beside which the listing showed files of Muster's own, so that the others cost no look."""
    return [one for one in found.checkpoints if not found.sealed.isdisjoint((one.path, _folder_of(one.path)))]


def _folder_of(path: str) -> str:
    return family_folder(path) or os.path.dirname(path)


def read_manifests(
    shard_maps: Iterable[ShardMap], control: JobControl, files: SmallFiles = POSIX_FILES
) -> tuple[dict[str, Manifest], tuple[Finding, ...]]:
    """Manifests beside the checkpoints, by checkpoint path, and what is wrong with those that cannot be relied on."""
    manifests: dict[str, Manifest] = {}
    problems: list[Finding] = []

    def read(path: str) -> tuple[str, Manifest | None, Finding | None]:
        control.check()
        try:
            return path, read_beside(path, files), None
        except ManifestUnreadable as unreadable:
            return path, None, unreadable.finding

    for path, manifest, problem in _mapped(read, [one.path for one in shard_maps], files):
        if problem is not None:
            problems.append(problem)
        if manifest is not None:
            manifests[path] = manifest
    return manifests, tuple(problems)


def _mapped(read: Callable[[str], _T], paths: Sequence[str], files: SmallFiles) -> Iterator[_T]:
    """In order; several at a time where each costs a request to a store and the way there."""
    if files is POSIX_FILES or len(paths) < 2:
        yield from map(read, paths)
        return
    with ThreadPoolExecutor(BUCKET_READERS) as pool:
        yield from pool.map(read, paths)
