"""A Megatron distributed checkpoint in a sub-folder `dist_ckpt`, as verl keeps it beside its other configuration."""

from __future__ import annotations

from muster_agent.formats import megatron_dist, megatron_zarr
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.nested import list_nested, read_nested
from muster_agent.formats.safetensors import other_files

FORMAT = megatron_dist.FORMAT
_INNER = "dist_ckpt"


def claims(folder: Folder) -> bool:
    return _INNER in folder.folders and _is_megatron(folder.sub(_INNER))


def _is_megatron(folder: Folder) -> bool:
    return megatron_dist.claims(folder) or megatron_zarr.claims(folder)


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge the folder by the checkpoint inside; what else is there belongs to it."""
    draft = Draft(FORMAT, roles=set())
    reader = megatron_zarr.read if megatron_zarr.claims(folder.sub(_INNER)) else megatron_dist.read
    inner = read_nested(draft, folder, _INNER, reader, with_tensors=with_tensors)
    draft.format, draft.committed, draft.step = inner.format, inner.committed, inner.step
    draft.world_size, draft.must_match = inner.world_size, inner.must_match
    draft.dp, draft.tp, draft.pp, draft.ep = inner.dp, inner.tp, inner.pp, inner.ep
    for name in folder.folders:
        if name != _INNER:
            list_nested(draft, folder, name)
    draft.shards.extend(other_files(folder, []))
    return draft
