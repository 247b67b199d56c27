"""The inventory of a place: one checkpoint, one run's folder, or a folder of runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from muster_agent.decide.model import Pointer
from muster_agent.formats import siblings
from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.checkpoint import GRACE_SECONDS
from muster_agent.formats.child import Children
from muster_agent.formats.evidence import Memory
from muster_agent.formats.finder import Finder
from muster_agent.formats.folder import PosixTree
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import is_bucket, resolved
from muster_agent.formats.pointer_findings import pointer_findings
from muster_agent.formats.root import RootUnreadable, check_folder, check_holds_files, check_mount, root_place
from muster_agent.formats.rules import Rule, judged, rules_at
from muster_agent.formats.s3_tree import S3Tree
from muster_agent.formats.scan_progress import ScanProgress
from muster_agent.formats.scan_reading import Counts, Enough, Reading
from muster_agent.formats.sibling_parts import with_a_second, without_parts
from muster_agent.formats.storage_clock import LOCAL, Clock, storage_clock
from muster_agent.formats.target_space import target_findings
from muster_agent.formats.verdict import LEAST_GRACE_SECONDS, AgeLimit
from muster_agent.jobs.control import JobControl
from muster_agent.probes.filesystem import read_file_system
from muster_agent.probes.lustre_space import read_target_spaces

__all__ = ["Enough", "Inventory", "RootUnreadable", "inventory"]


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """`checkpoints` newest step first, without tensors. `findings` are about the place itself."""

    checkpoints: tuple[ShardMap, ...]
    pointers: tuple[Pointer, ...] = ()
    findings: tuple[Finding, ...] = ()
    entries: int = 0
    """Names seen in all folders that were listed."""
    unchanged: int = 0
    """Checkpoints that were as an earlier scan left them, so that only their folders were listed."""
    sealed: frozenset[str] = frozenset()
    """Paths of folders in which the listing showed files of Muster's own, as a manifest is."""
    clock: str = LOCAL
    """Whose clock ages were judged by: `storage`, or `local` where the storage does not tell its own."""


def inventory(  # noqa: PLR0913 - each is a choice of its own, and all are named
    root: str | os.PathLike[str],
    *,
    grace_seconds: float = GRACE_SECONDS,
    now_unix_seconds: float | None = None,
    settle_seconds: float = 0.0,
    control: JobControl | None = None,
    enough: Enough | None = None,
    memory: Memory | None = None,
    rules: Sequence[Rule] = (),
    note: Callable[[str], None] = lambda _text: None,
    store: ObjectStore | None = None,
) -> Inventory:
    """Every checkpoint under `root`, whole or broken, with what the framework's own pointers say.

    With `enough`, steps older than one that is enough are left out (see `Reading.until`): a restart need not read a
    thousand headers to learn that the newest checkpoint is good.
    Path rules are `rules` and then those in the file of rules at the root.
    With `settle_seconds`, what looks unfinished and may be being written is looked at twice, so far apart.
    A `root` in a bucket (`s3://bucket/prefix`) is read through `store`.
    Raises RootUnreadable when `root` itself is not there or cannot be listed, and Cancelled when `control` says so.
    """
    place, control = root_place(root), control or JobControl()
    tree = _tree(place, control, store)
    is_remote = isinstance(tree, S3Tree) or read_file_system(place).is_remote
    clock = Clock(now_unix_seconds, LOCAL) if now_unix_seconds is not None else _clock(tree, place)
    may_learn = now_unix_seconds is None and clock.source == LOCAL
    age_limit = AgeLimit(clock.unix_seconds, grace_seconds, may_learn=may_learn)
    counts = Counts()
    with Children() as children:
        reading = Reading(memory, age_limit, control, counts, children, may_lag=settle_seconds > 0 and is_remote)
        if isinstance(tree, S3Tree):
            reading.may_fork, reading.changed_since, reading.before_second_looks = (
                False,
                tree.changed_since,
                tree.forget,
            )
        walk = Finder(place, reading, tree, ScanProgress(counts, control, note))
        own_rules, rule_findings = rules_at(walk.tree, place)
        walk.findings.extend(rule_findings)
        judge = partial(judged, rules=(*rules, *own_rules), look=walk.look, age_limit=age_limit)
        wanted = None if enough is None else _judged_first(with_a_second(enough), judge)
        walk.begin(place)
        read = reading.settle(walk.run_tasks(wanted), settle_seconds)
        if grace_seconds >= LEAST_GRACE_SECONDS:
            read = reading.reconsider(read, siblings.grace_seconds_by_folder(read))
    checkpoints = siblings.compare(without_parts(map(judge, read), age_limit))
    if not checkpoints and not is_bucket(place):
        check_mount(place)
    checkpoints.sort(key=_newest_first)
    return Inventory(
        checkpoints=tuple(checkpoints),
        pointers=tuple(walk.pointers),
        findings=(
            *_bucket_findings(tree),
            *walk.findings,
            *pointer_findings(walk.pointers, checkpoints, place),
            *_space_findings(place, checkpoints),
        ),
        entries=reading.counts.entries,
        unchanged=reading.counts.unchanged,
        sealed=frozenset(reading.sealed),
        clock=clock.source,
    )


def _judged_first(enough: Enough, judge: Callable[[ShardMap], ShardMap]) -> Enough:
    return lambda found, pointers: enough(judge(found), pointers)


def _tree(place: str, control: JobControl, store: ObjectStore | None) -> PosixTree | S3Tree:
    """What stands behind the place. Raises RootUnreadable."""
    if not is_bucket(place):
        check_folder(place)
        check_holds_files(place)
        return PosixTree(control.check)
    if store is None:
        hint = "use `muster inventory`, `explain` or `resume-point` on the bucket, or the folder where it is mounted"
        raise RootUnreadable(place, "it lies in a bucket, which is not read from here yet", hint)
    tree = S3Tree(store, place, control.check)
    tree.begin()
    return tree


def _clock(tree: PosixTree | S3Tree, place: str) -> Clock:
    return tree.clock() if isinstance(tree, S3Tree) else storage_clock(place)


def _bucket_findings(tree: PosixTree | S3Tree) -> Sequence[Finding]:
    return tree.findings if isinstance(tree, S3Tree) else ()


def _space_findings(place: str, checkpoints: Sequence[ShardMap]) -> Sequence[Finding]:
    return () if is_bucket(place) else target_findings(place, checkpoints, read_target_spaces(resolved(place)))


def _newest_first(shard_map: ShardMap) -> tuple[int, str, str]:
    return 1 if shard_map.step is None else -shard_map.step, shard_map.run, shard_map.path
