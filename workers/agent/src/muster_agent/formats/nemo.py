"""NeMo 2: `weights/` is a Megatron distributed checkpoint, `context/` what is needed to build the model again.

There is no marker inside: while it is written, and while it is deleted, `NAME-unfinished` lies beside the folder.
"""

from __future__ import annotations

from muster_agent.formats import dcp, megatron_dist, megatron_zarr
from muster_agent.formats.base import Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.megatron_common import folder_name, take_named_step, take_unfinished
from muster_agent.formats.names import step_of_name
from muster_agent.formats.nested import list_nested, read_nested
from muster_agent.formats.reader import FolderFormat
from muster_agent.formats.safetensors import other_files

FORMAT = "nemo"
_WEIGHTS, _CONTEXT = "weights", "context"
_INNER = (
    FolderFormat(megatron_zarr.FORMAT, megatron_zarr.claims, megatron_zarr.read),
    FolderFormat(megatron_dist.FORMAT, megatron_dist.claims, megatron_dist.read),
    FolderFormat(dcp.FORMAT, dcp.claims, dcp.read_dcp),
)


def claims(folder: Folder) -> bool:
    if _WEIGHTS not in folder.folders:
        return False
    inside = folder.sub(_WEIGHTS)
    begun = not inside.files and (_CONTEXT in folder.folders or step_of_name(folder_name(folder)) is not None)
    return begun or (_CONTEXT in folder.folders and dcp.claims(inside)) or _megatron(inside)


def _megatron(folder: Folder) -> bool:
    return megatron_zarr.claims(folder) or megatron_dist.claims(folder)


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge the folder of one step."""
    draft = Draft(FORMAT, roles=set())
    _read_weights(draft, folder, with_tensors)
    take_named_step(draft, folder)
    take_unfinished(draft, folder)
    for name in folder.folders:
        if name != _WEIGHTS:
            list_nested(draft, folder, name)
    if _CONTEXT not in folder.folders:
        detail = f"there is no {_CONTEXT}/: training scripts resume without it, but nothing else can build the model"
        draft.findings.append(finding("metadata_missing", path=_CONTEXT, detail=detail, severity=Severity.WARNING))
    draft.shards.extend(other_files(folder, []))
    return draft


def _read_weights(draft: Draft, folder: Folder, with_tensors: bool) -> None:
    inside = folder.sub(_WEIGHTS)
    reader = next((one for one in _INNER if one.claims(inside)), None)
    if reader is None:
        detail = f"{_WEIGHTS}/ holds no checkpoint yet"
        draft.committed, draft.roles = False, None
        draft.findings.extend(found for found in inside.findings if not inside.listed)
        if inside.listed:
            draft.findings.append(finding("metadata_missing", path=_WEIGHTS, detail=detail))
        return
    inner = read_nested(draft, folder, _WEIGHTS, reader.read, with_tensors=with_tensors)
    draft.committed, draft.step, draft.world_size = inner.committed, inner.step, inner.world_size
    draft.tp, draft.pp, draft.ep, draft.dp, draft.must_match = (
        inner.tp,
        inner.pp,
        inner.ep,
        inner.dp,
        inner.must_match,
    )
