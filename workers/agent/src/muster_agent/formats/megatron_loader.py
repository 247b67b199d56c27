"""Data-loader state that Megatron's data-parallel ranks save in files of their own, `train_dataloader_dprank003.pt`.

An iteration that is saved again by fewer ranks keeps the files of the higher ones: they are of another generation, and
a job with the old number of ranks would mix them with the new.
"""

from __future__ import annotations

import re

from muster_agent.formats.base import Finding, Role, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.megatron_common import step_of
from muster_agent.formats.nested import read_nested
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.torch_archive import add_torch_shard

_NAME = re.compile(r"train_dataloader_dprank(\d{1,9})\.pt", re.ASCII)
_GENERATION_NS = 600 * 1_000_000_000
"""Files of one save are closer in time than this."""
_MAX_LISTED = 50
_CURE = "Move the files of the older save away before resuming, so that no rank continues from another step's data."


def is_loader_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def take_loader_files(draft: Draft, folder: Folder) -> None:
    """Take the loader files in `folder`, and in those of its `mp_rank_` sub-folders, into the draft of the checkpoint
    that it is. Where there are any, a resuming job needs as many data-parallel ranks."""
    oldest = min((seen.mtime_ns for name, seen in folder.files.items() if not is_loader_name(name)), default=None)
    count = _take(draft, folder, oldest)
    for name in folder.folders:
        if name.startswith("mp_rank_") and any(map(is_loader_name, folder.sub(name).files)):
            inner = read_nested(draft, folder, name, lambda inside, _: _read(inside, draft, oldest), with_tensors=False)
            count = max(count, len(inner.shards))
    if count:
        draft.must_match = tuple(dict.fromkeys((*draft.must_match, "dp")))
        draft.dp = draft.dp or count


def _take(draft: Draft, folder: Folder, oldest_ns: int | None) -> int:
    inner = _read(folder, draft, oldest_ns)
    draft.shards.extend(inner.shards)
    draft.findings.extend(inner.findings)
    if draft.roles is not None and inner.roles:
        draft.roles |= inner.roles
    return len(inner.shards)


def _read(folder: Folder, whole: Draft, oldest_ns: int | None) -> Draft:
    """The loader files of one folder, held against what is known of the whole checkpoint."""
    draft = Draft(whole.format, roles=set())
    names = {int(match.group(1)): match.group(0) for match in map(_NAME.fullmatch, folder.files) if match}
    steps: dict[int, int] = {}
    roots: dict[str, str] = {}
    for rank, name in sorted(names.items()):
        loaded = add_torch_shard(draft, folder, name, rank=rank, role=Role.DATALOADER, values=True)
        roots.update({name: loaded.file.root} if loaded else {})
        step = step_of(loaded, "iteration", "global_step", "step") if loaded else None
        if step is not None:
            steps[rank] = step
    draft.findings.extend(misplaced_findings(roots))
    if names:
        draft.roles = {Role.DATALOADER}
        draft.findings.extend(_of_other_saves(folder, names, steps, whole, oldest_ns)[:_MAX_LISTED])
        draft.findings.extend(_absent(names, whole.dp)[:_MAX_LISTED])
    return draft


def _of_other_saves(
    folder: Folder, names: dict[int, str], steps: dict[int, int], whole: Draft, oldest_ns: int | None
) -> list[Finding]:
    """Files of more ranks than saved, of another step, or older than everything else here."""
    own = whole.step if whole.step is not None else steps.get(0)
    found = []
    for rank, name in sorted(names.items()):
        old = oldest_ns is not None and folder.files[name].mtime_ns < oldest_ns - _GENERATION_NS
        if whole.dp is not None and rank >= whole.dp:
            found.append(_mixed(name, f"{whole.dp} data-parallel ranks saved, so {name} was left by an older save"))
        elif rank in steps and own is not None and steps[rank] != own:
            detail = f"{name} is of step {steps[rank]}, the checkpoint of step {own}: two saves are mixed here"
            warning = Severity.WARNING
            found.append(finding("step_mismatch", path=name, detail=detail, cure=_CURE, severity=warning))
        elif old and rank not in steps:
            found.append(_mixed(name, f"{name} is older than all other files here, as if an older save had left it"))
    return found


def _mixed(name: str, detail: str) -> Finding:
    return finding("world_size_mismatch", path=name, detail=detail, cure=_CURE, severity=Severity.WARNING)


def _absent(names: dict[int, str], dp: int | None) -> list[Finding]:
    expected = min(dp if dp is not None else max(names) + 1, len(names) + _MAX_LISTED)
    width = len(next(iter(names.values()))) - len("train_dataloader_dprank.pt")
    found = []
    for rank in range(expected):
        if rank not in names:
            name = f"train_dataloader_dprank{rank:0{width}d}.pt"
            detail = f"data-parallel rank {rank} left no state of its data loader, {len(names)} others did"
            found.append(finding("dataloader_missing", path=name, detail=detail))
    return found
