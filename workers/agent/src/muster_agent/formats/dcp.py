"""PyTorch DCP (torch.distributed.checkpoint): is every promised byte there, and does it lie where the metadata says?

`.metadata` is written last and is the commit marker. Its presence alone proves nothing: a save over an old checkpoint
leaves the old metadata in place until its end, so each referenced file is held against it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache

from muster_agent.formats import node_local, torchtitan
from muster_agent.formats.base import Finding, Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_metadata import MAX_METADATA_BYTES, parse_metadata
from muster_agent.formats.dcp_plan import COMMIT_NAME, MAX_LISTED, Plan, merge
from muster_agent.formats.dcp_records import ranges_of, record_findings, step_inside
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import FileSeen, Folder, reach, trouble
from muster_agent.formats.limits import check_pickle
from muster_agent.formats.names import step_of_name, unsafe_reason
from muster_agent.formats.pickle_reader import PickleRefused
from muster_agent.formats.safetensors import add_absent, metadata_entry, other_files

FORMAT = "dcp"
TEMPORARY_NAME = ".metadata.tmp"
_RANK_METADATA = re.compile(r"__(\d{1,9})\.metadata", re.ASCII)
_DATA_NAME = re.compile(r"__(\d{1,9})_(\d{1,9})\.distcp", re.ASCII)
_PICKLE_END = b"."


def is_own_name(name: str) -> bool:
    return (
        name in (COMMIT_NAME, TEMPORARY_NAME)
        or name.endswith(".distcp")
        or _RANK_METADATA.fullmatch(name.removesuffix(".tmp")) is not None
    )


def claims(folder: Folder) -> bool:
    return any(map(is_own_name, folder.files.keys() | folder.blocked))


def read_dcp(folder: Folder, with_tensors: bool) -> Draft:
    """Judge a DCP folder. With `with_tensors`, each tensor's bytes are located too, which reads every record's end."""
    return read_with_plan(folder, with_tensors)[0]


def read_with_plan(folder: Folder, with_tensors: bool) -> tuple[Draft, Plan | None]:
    """As read_dcp, with the plan that the metadata gave for formats that build on DCP; None where there is none."""
    draft = Draft(FORMAT, roles=None)
    plan = _plan(draft, folder)
    if plan is None or not _paths_are_safe(draft, plan):
        _list_data(draft, folder)
        return draft, None
    draft.roles = set(plan.roles)
    draft.findings.extend(plan.uncovered)
    _check_files(draft, folder, plan)
    _note_unused(draft, folder, plan.files.keys())
    draft.world_size = _world_size(folder, plan)
    torchtitan.take_loader(draft, folder, plan)
    if torchtitan.is_own(plan):
        draft.format = torchtitan.FORMAT
    draft.findings.extend(record_findings(folder, plan, every_file=with_tensors))
    draft.step, draft.step_source = step_inside(folder, plan)
    if with_tensors:
        draft.tensors.extend(ranges_of(folder, plan))
    data = [name for name in folder.files if name.endswith(".distcp")]
    draft.shards.extend(other_files(folder, [*data, *(shard.path for shard in draft.shards)]))
    return draft, plan


# -- the metadata ------------------------------------------------------------------------------------------------------
def _plan(draft: Draft, folder: Folder) -> Plan | None:
    """The plan of the commit file, of the ranks' own files, or of a commit file that was never renamed."""
    if COMMIT_NAME in folder.files:
        draft.committed = True
        if TEMPORARY_NAME in folder.files:
            draft.findings.append(_temporary(TEMPORARY_NAME, committed=True))
        return _parse(draft, folder, COMMIT_NAME)
    by_rank = sorted(filter(_RANK_METADATA.fullmatch, folder.files))
    if by_rank:
        return _ranks_plan(draft, folder, by_rank)
    if COMMIT_NAME in folder.blocked:
        return None
    draft.committed, draft.marker = False, COMMIT_NAME
    if TEMPORARY_NAME in folder.files:
        draft.findings.append(_temporary(TEMPORARY_NAME, committed=False))
        return _parse(draft, folder, TEMPORARY_NAME)
    detail = "there is no .metadata: it is written last, so the save did not end"
    here = {rank for rank in map(_rank, folder.files) if rank is not None}
    elsewhere = bool(here) and 0 not in here
    draft.findings.append(
        finding(
            "metadata_missing",
            path=folder.path,
            detail=f"{detail}{node_local.said(here) if elsewhere else ''}",
            cure=node_local.CURE if elsewhere else None,
        )
    )
    return None


def _temporary(name: str, *, committed: bool) -> Finding:
    detail = f"{name} was written, but never renamed to .metadata: the save stopped just before its end"
    keep = f"Keep {name} while the checkpoint may be needed: renaming it to .metadata is the last act of a save."
    return finding("temporary_left", path=name, detail=detail, cure=None if committed else keep)


def _ranks_plan(draft: Draft, folder: Folder, names: list[str]) -> Plan | None:
    """Each rank wrote its own metadata, and there is no marker that all did: a rank that wrote data must have one."""
    check_pickle(sum(folder.files[name].size_bytes for name in names))
    plans = [_parse(draft, folder, name) for name in names]
    have = {int(match.group(1)) for match in map(_RANK_METADATA.fullmatch, names) if match}
    wrote = {int(match.group(1)) for match in map(_DATA_NAME.fullmatch, folder.files) if match}
    expected = wrote | set(range(max(have) + 1)) if max(have) < 100_000 else wrote
    for rank in sorted(expected - have)[:MAX_LISTED]:
        detail = f"rank {rank} left no __{rank}.metadata, so its part of the state is not described"
        draft.findings.append(finding("metadata_missing", path=f"__{rank}.metadata", detail=detail))
    draft.findings.extend(_exchanged(names, plans))
    known = [plan for plan in plans if plan is not None]
    return merge(known) if len(known) == len(plans) else None


def _exchanged(names: list[str], plans: list[Plan | None]) -> Iterator[Finding]:
    """Each rank describes the files that it wrote itself, and loads by its own description only."""
    for name, plan in zip(names, plans, strict=True):
        match = _RANK_METADATA.fullmatch(name)
        ranks = set(map(_rank, plan.files)) if plan is not None else set()
        if match and ranks and int(match[1]) not in ranks:
            wrote = ", ".join(sorted(map(str, ranks))[:5])
            detail = f"{name} describes what rank {wrote} wrote: it was exchanged for another rank's"
            yield finding("ranges_gap", path=name, detail=detail)


def _parse(draft: Draft, folder: Folder, name: str) -> Plan | None:
    seen = folder.files[name]
    draft.shards.append(metadata_entry(name, seen))
    if seen.size_bytes == 0:
        draft.findings.append(finding("metadata_unreadable", path=name, detail=f"{name} has 0 bytes"))
        return None
    if seen.size_bytes > MAX_METADATA_BYTES:
        draft.undecided = f"{name} is larger than this version reads ({MAX_METADATA_BYTES} bytes)"
        return None
    check_pickle(seen.size_bytes)
    path = os.path.join(folder.path, name)
    try:
        data = folder.read(name, MAX_METADATA_BYTES)
        plan, saved_as = parse_metadata(data)
        draft.findings.extend(_of_another_step(folder.path, name, saved_as))
        if not data.endswith(_PICKLE_END):
            detail = f"bytes lie behind the end of the metadata in {name}; loading ignores them"
            draft.findings.append(finding("shard_oversized", path=name, detail=detail, severity=Severity.WARNING))
        return plan
    except OSError as error:
        detail = f"{name} could not be read: {error.strerror}"
        draft.findings.append(finding(trouble(error, path).code, path=name, detail=detail))
    except PickleRefused as refused:
        _take_refusal(draft, name, refused)
    return None


def _of_another_step(path: str, name: str, saved_as: str | None) -> list[Finding]:
    """Metadata left by the save of another step, or copied from there, places the records of that one."""
    here, there = step_of_name(os.path.basename(path)), step_of_name(saved_as or "")
    if here is None or there is None or here == there:
        return []
    detail = f"{name} was written for a folder called {saved_as!r}, so for step {there}, and this is step {here}"
    return [finding("step_mismatch", path=name, detail=detail, cure=_OF_ANOTHER)]


_OF_ANOTHER = (
    "If the folder was not renamed on purpose, find out where the file came from, and do not resume from here."
)


def _take_refusal(draft: Draft, name: str, refused: PickleRefused) -> None:
    if refused.too_large:
        draft.undecided = f"{name} is larger than this version reads: {refused.reason}"
        return
    draft.withheld = draft.withheld or refused.unsafe
    code = "metadata_unsafe" if refused.unsafe else "metadata_unreadable"
    draft.findings.append(finding(code, path=name, detail=f"{name} was refused: {refused.reason}"))


def _paths_are_safe(draft: Draft, plan: Plan) -> bool:
    for name in plan.files:
        reason = None if _rank(name) is not None and "/" not in name else unsafe_reason(name)
        if reason:
            detail = f"the file name {ascii(name[:200])} {reason}"
            draft.findings.append(finding("path_unsafe", path=COMMIT_NAME, detail=detail))
            return False
    return True


# -- files -------------------------------------------------------------------------------------------------------------
def _check_files(draft: Draft, folder: Folder, plan: Plan) -> None:
    newer = _newer_than_metadata(folder, plan.files)
    told_by = f"the metadata ({COMMIT_NAME})" if COMMIT_NAME in folder.files else "the metadata"
    for name in plan.files:
        if "/" in name:
            reach(folder, name)
    whole = plan.files.keys() <= folder.files.keys()
    hint, cure = ("", None) if whole else _elsewhere(folder, plan.files)
    for name, promised in plan.files.items():
        seen = folder.files.get(name)
        if seen is None:
            detail = f"{told_by} places {len(promised.records)} records in {name}, which is not there{hint}"
            add_absent(draft, folder, name, detail, rank=_rank(name), promised=promised.end_byte, cure=cure)
            continue
        draft.shards.append(_data_entry(name, seen, promised.role, promised.end_byte))
        if seen.size_bytes != promised.end_byte:
            draft.findings.append(_size_finding(name, seen.size_bytes, promised.end_byte, told_by, newer))
        draft.findings.extend(promised.faults)


def _elsewhere(folder: Folder, names: Iterable[str]) -> tuple[str, str | None]:
    """What to add to the findings of missing files where they seem to lie on the disks of other nodes."""
    ranks = {name: rank for name in names if (rank := _rank(name)) is not None}
    here = {rank for name, rank in ranks.items() if name in folder.files}
    lost = {rank for name, rank in ranks.items() if name not in folder.files}
    return (node_local.said(here), node_local.CURE) if node_local.looks_node_local(here, lost) else ("", None)


def _newer_than_metadata(folder: Folder, names: Iterable[str]) -> bool:
    """Whether a data file changed after the metadata: a save over this checkpoint began, and never ended."""
    marker = folder.files.get(COMMIT_NAME)
    if marker is None:
        return False
    newest = max([seen.mtime_ns for name in names if (seen := folder.files.get(name)) is not None], default=0)
    return newest > marker.mtime_ns


def _size_finding(name: str, size_bytes: int, promised: int, told_by: str, newer: bool) -> Finding:
    stale = "; files here are newer than .metadata, as after a save over an old checkpoint that did not end"
    detail = f"{name} has {size_bytes} bytes, {told_by} says {promised}{stale if newer else ''}"
    first, last = sorted((size_bytes, promised))
    code = "shard_oversized" if size_bytes > promised else "shard_truncated" if size_bytes else "shard_empty"
    return finding(code, path=name, detail=detail, begin_byte=first, end_byte=last)


@lru_cache(maxsize=1 << 14)
def _rank(name: str) -> int | None:
    match = _DATA_NAME.fullmatch(name.rsplit("/", 1)[-1])
    return int(match.group(1)) if match else None


def _world_size(folder: Folder, plan: Plan) -> int | None:
    """Exact where the metadata holds every rank's plan, else the lowest number of ranks that the files allow. An empty
    file that no record uses counts: a rank without data of its own wrote it."""
    empty = [name for name, seen in folder.files.items() if seen.size_bytes == 0 and name.endswith(".distcp")]
    ranks = [rank for rank in map(_rank, (*plan.files, *empty)) if rank is not None]
    return plan.writers or (max(ranks) + 1 if ranks else None)


def _note_unused(draft: Draft, folder: Folder, used: Set[str]) -> None:
    """Data files that the metadata does not use: left by another save, unless empty, as a rank without data writes."""
    for name in sorted(folder.files.keys() - used):
        if not name.endswith(".distcp"):
            continue
        seen = folder.files[name]
        if seen.size_bytes == 0:
            draft.shards.append(_data_entry(name, seen, Role.OTHER))
        else:
            detail = f"{name} ({seen.size_bytes} bytes) is not used by the metadata"
            draft.findings.append(finding("shard_orphaned", path=name, detail=detail))


def _list_data(draft: Draft, folder: Folder) -> None:
    """The data files as they lie, where no metadata could be read."""
    listed = {shard.path for shard in draft.shards}
    names = [name for name in sorted(folder.files) if name.endswith(".distcp") and name not in listed]
    draft.shards.extend(_data_entry(name, folder.files[name], Role.MODEL) for name in names)
    draft.shards.extend(other_files(folder, [*listed, *names]))


def _data_entry(name: str, seen: FileSeen, role: Role, promised: int | None = None) -> ShardEntry:
    return ShardEntry(
        path=name,
        size_bytes=seen.size_bytes,
        promised_bytes=promised,
        rank=_rank(name),
        role=role,
        mtime_ns=seen.mtime_ns,
    )
