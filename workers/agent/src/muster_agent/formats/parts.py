"""A step folder whose parts are checkpoints in folders of their own (`step_8/trainer`, `step_8/orchestrator`)."""

from __future__ import annotations

import os
from collections.abc import Callable

from muster_agent.formats.base import Role
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.foreign import UNKNOWN_FORMAT
from muster_agent.formats.names import is_temporary, step_of_name
from muster_agent.formats.nested import read_nested
from muster_agent.formats.reader import FolderFormat
from muster_agent.formats.safetensors import other_files

FORMAT = "parts"
_MAX_PARTS = 64
_STATE_SUFFIXES = (".pt", ".pth", ".bin", ".pkl", ".ckpt", ".safetensors", ".distcp")
"""Files beside the folders that may hold state which no part's reader would see."""
_NOT_PARTS = frozenset({UNKNOWN_FORMAT, "torch_save"})
"""The reader of loose files of `torch.save` takes those in sub-folders too."""
Claim = Callable[[Folder], FolderFormat | None]


def part_names(folder: Folder, claim: Claim) -> list[str]:
    """The sub-folders that are checkpoints, of a folder that is named like a step and holds no steps."""
    if step_of_name(os.path.basename(folder.path)) is None or len(folder.folders) > _MAX_PARTS:
        return []
    if any(step_of_name(name) is not None for name in folder.folders):
        return []
    if any(name.endswith(_STATE_SUFFIXES) for name in folder.files):
        return []
    return [name for name in folder.folders if not is_temporary(name) and _is_part(claim(folder.sub(name)))]


def _is_part(claimed: FolderFormat | None) -> bool:
    return claimed is not None and claimed.name not in _NOT_PARTS


def read(folder: Folder, with_tensors: bool, claim: Claim) -> Draft:
    """Judge each part by its own format; the whole has the format of the part that holds the model."""
    draft = Draft(FORMAT, committed=True)
    drafts = []
    for name in part_names(folder, claim):
        claimed = claim(folder.sub(name))
        assert claimed is not None
        drafts.append(read_nested(draft, folder, name, claimed.read, with_tensors=with_tensors))
    main = next((one for one in drafts if one.roles and Role.MODEL in one.roles), drafts[0])
    draft.format, draft.step, draft.world_size = main.format, main.step, main.world_size
    draft.dp, draft.tp, draft.pp, draft.ep, draft.must_match = main.dp, main.tp, main.pp, main.ep, main.must_match
    if any(one.committed is False for one in drafts):
        draft.committed = False
    elif any(one.committed is None for one in drafts):
        draft.committed = None
    draft.shards.extend(other_files(folder, []))
    _take_plain_parts(draft, folder, claim)
    return draft


def _take_plain_parts(draft: Draft, folder: Folder, claim: Claim) -> None:
    """The files of sub-folders of no known format belong to the step too, and may hold what the others lack."""
    known = set(part_names(folder, claim))
    for name in folder.folders:
        if name not in known and not is_temporary(name):
            inner = Draft(FORMAT, shards=other_files(folder.sub(name), []))
            nest(draft, inner, name)
            if inner.shards and draft.roles is not None and Role.OPTIMIZER not in draft.roles:
                draft.roles = None
