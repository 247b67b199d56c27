"""A step folder whose parts are checkpoints in folders of their own (`step_8/trainer`, `step_8/orchestrator`), or
deeper (`step_8/policy/weights/iter_0000000`), with files of torch.save beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from muster_agent.formats.base import Role
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.foreign import UNKNOWN_FORMAT
from muster_agent.formats.names import is_temporary, step_of_name
from muster_agent.formats.nested import read_nested
from muster_agent.formats.reader import FolderFormat
from muster_agent.formats.torch_save import is_torch_name, read_level

FORMAT = "parts"
_MAX_PARTS = 64
_MAX_DEPTH = 3
_NOT_PARTS = frozenset({UNKNOWN_FORMAT, "torch_save"})
"""The reader of loose files of `torch.save` takes those in sub-folders too."""
_MODELS = frozenset({"actor", "critic", "policy", "ref", "reward", "value"})
"""The models of one step of reinforcement learning."""
Claim = Callable[[Folder], FolderFormat | None]


def part_names(folder: Folder, claim: Claim) -> list[str]:
    """The sub-folders that are checkpoints, as relative paths, of a folder that is named like a step and holds no
    steps."""
    if step_of_name(os.path.basename(folder.path)) is None or len(folder.folders) > _MAX_PARTS:
        return []
    if any(step_of_name(name) is not None for name in folder.folders):
        return []
    return list(_parts_under(folder, claim, may_name_steps=bool(folder.files), depth=1))


def _parts_under(folder: Folder, claim: Claim, *, may_name_steps: bool, depth: int) -> Iterator[str]:
    """A folder below that holds several steps is that of a run. One step may be how a library names the only save that
    it makes there, if files beside it say that the folder above is the checkpoint."""
    steps = [name for name in folder.folders if step_of_name(name) is not None]
    if len(steps) > 1 or (steps and not may_name_steps) or len(folder.folders) > _MAX_PARTS:
        return
    for name in folder.folders:
        if is_temporary(name) or name in folder.links:
            continue
        inside = folder.sub(name)
        claimed = claim(inside)
        if claimed is not None and claimed.name not in _NOT_PARTS:
            yield name
        elif claimed is None and depth < _MAX_DEPTH:
            deeper = _parts_under(inside, claim, may_name_steps=may_name_steps, depth=depth + 1)
            yield from (f"{name}/{one}" for one in deeper)


def _part(folder: Folder, path: str) -> Folder:
    """The folder at the relative `path`, which `folder.sub` then gives too."""
    inside = folder
    for name in path.split("/"):
        inside = inside.sub(name)
    folder.subs[path] = inside
    return inside


def read(folder: Folder, with_tensors: bool, claim: Claim) -> Draft:
    """Judge each part by its own format; the whole has the format of the part that holds the model."""
    draft = Draft(FORMAT, committed=True)
    drafts = []
    names = part_names(folder, claim)
    for name in names:
        claimed = claim(_part(folder, name))
        assert claimed is not None
        one = read_nested(draft, folder, name, claimed.read, with_tensors=with_tensors)
        if _counts_its_own(name):
            one.step = None
        drafts.append(one)
    main = next((one for one in drafts if one.roles and Role.MODEL in one.roles), drafts[0])
    draft.format, draft.step, draft.world_size = main.format, main.step, main.world_size
    draft.dp, draft.tp, draft.pp, draft.ep, draft.must_match = main.dp, main.tp, main.pp, main.ep, main.must_match
    if any(one.committed is False for one in drafts):
        draft.committed = False
    elif any(one.committed is None for one in drafts):
        draft.committed = None
    _take_loose_files(draft, folder, set(names), with_tensors)
    return draft


def _counts_its_own(part: str) -> bool:
    """Whether the step inside the part need not be that of the whole: a model may be updated often in one step, and
    a save of a number of its own may lie there."""
    first, _, last = part.partition("/")
    return first in _MODELS or step_of_name(last.rpartition("/")[2]) is not None


def _take_loose_files(draft: Draft, folder: Folder, parts: set[str], with_tensors: bool) -> None:
    """The files beside the parts, and in sub-folders of no known format, belong to the step too, and may hold what the
    parts lack: those of torch.save are looked into."""
    loose = _loose(folder, "", parts, with_tensors, _MAX_DEPTH)
    draft.shards.extend(loose.shards)
    draft.tensors.extend(loose.tensors)
    draft.findings.extend(loose.findings)
    draft.undecided = draft.undecided or loose.undecided
    if draft.roles is not None:
        draft.roles |= loose.roles or set()
        may_hold_more = any("/" in shard.path or is_torch_name(shard.path) for shard in loose.shards)
        draft.roles = None if may_hold_more and Role.OPTIMIZER not in draft.roles else draft.roles


def _loose(folder: Folder, under: str, parts: set[str], with_tensors: bool, depth: int) -> Draft:
    level = read_level(folder, with_tensors)
    for name in folder.folders if depth else ():
        path = f"{under}{name}"
        if path not in parts and not is_temporary(name) and name not in folder.links:
            nest(level, _loose(folder.sub(name), f"{path}/", parts, with_tensors, depth - 1), name)
    return level
