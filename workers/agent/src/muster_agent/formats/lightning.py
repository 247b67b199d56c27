"""Lightning: one `.ckpt` file of torch.save, or for sharded strategies a folder `X.ckpt/` that holds DCP and `meta.pt`,
or DeepSpeed's files in `checkpoint/`.

The step is `global_step` inside: the name is only what the user's pattern made of it, and `last.ckpt` names none.
"""

from __future__ import annotations

from typing import Any

import msgspec

from muster_agent.formats import dcp, deepspeed
from muster_agent.formats.base import Role
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.nested import read_nested
from muster_agent.formats.safetensors import other_files
from muster_agent.formats.torch_archive import add_torch_shard, scalar, tensor_ranges
from muster_agent.formats.torch_save import claims_file as claims_torch
from muster_agent.formats.torch_save import read_loaded

FORMAT = "lightning"
META_NAME = "meta.pt"
DEEPSPEED_TAG = "checkpoint"
"""The tag under which Lightning has DeepSpeed save."""
_VERSION_KEY = "pytorch-lightning_version"
_OTHER_KEYS = ("epoch", "loops", "callbacks", "hyper_parameters", "hparams_name", "datamodule_hparams_name")


def claims_file(folder: Folder, name: str) -> bool:
    """By its ending; what is inside then tells whether Lightning wrote it."""
    return name.endswith(".ckpt") and claims_torch(folder, name)


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """A `.ckpt` file: Lightning's by the version inside, else one of torch.save like any other."""
    draft, loaded = read_loaded(folder, name, with_tensors)
    if loaded is not None and is_lightning(loaded.value):
        draft.format = FORMAT
        draft.step = scalar(loaded.value, "global_step")
        draft.number_is_no_step = name.startswith("hpc_ckpt_")  # it counts the saves before a job was requeued
        draft.roles = roles_of(loaded.value)
        draft.shards[-1] = msgspec.structs.replace(draft.shards[-1], role=Role.MODEL)
    return draft


def is_lightning(value: Any) -> bool:
    return isinstance(value, dict) and _VERSION_KEY in value


def roles_of(value: dict[Any, Any]) -> set[Role]:
    """With `save_weights_only` there are no optimizer states. The loops hold how far the data loader came; random
    states are kept only by those who add a callback for them."""
    roles = {Role.MODEL} if value.get("state_dict") else set()
    for key, role in (("optimizer_states", Role.OPTIMIZER), ("lr_schedulers", Role.SCHEDULER)):
        if value.get(key):
            roles.add(role)
    if value.get("loops") and Role.OPTIMIZER in roles:
        roles.add(Role.DATALOADER)
    if any("rng" in key.lower() for key in value if isinstance(key, str)):
        roles.add(Role.RNG)
    return roles


# -- sharded -----------------------------------------------------------------------------------------------------------
def claims(folder: Folder) -> bool:
    """`meta.pt` beside DCP's files is Lightning's own test for such a folder."""
    names = folder.files.keys() | folder.blocked
    if META_NAME in names and (folder.path.endswith(".ckpt") or any(map(dcp.is_own_name, names))):
        return True
    return folder.path.endswith(".ckpt") and _is_deepspeed(folder)


def _is_deepspeed(folder: Folder) -> bool:
    return DEEPSPEED_TAG in folder.folders and deepspeed.claims(folder.sub(DEEPSPEED_TAG))


def read_folder(folder: Folder, with_tensors: bool) -> Draft:
    """A sharded checkpoint: DCP's rule for the tensors, and `meta.pt` for step and everything else; or DeepSpeed's rule
    for all."""
    if _is_deepspeed(folder):
        return _read_deepspeed(folder, with_tensors)
    draft = dcp.read_dcp(folder, with_tensors)
    draft.format = FORMAT
    draft.shards = [shard for shard in draft.shards if shard.path != META_NAME]
    loaded = add_torch_shard(draft, folder, META_NAME, role=Role.METADATA, values=True)
    if loaded is None or loaded.pickle is None:
        return draft
    draft.step = scalar(loaded.value, "global_step")
    if draft.roles is not None and isinstance(loaded.value, dict):
        draft.roles |= roles_of(loaded.value)
    if with_tensors:
        draft.tensors.extend(tensor_ranges(loaded, META_NAME))
    return draft


def _read_deepspeed(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT)
    inner = read_nested(draft, folder, DEEPSPEED_TAG, deepspeed.read, with_tensors=with_tensors)
    for fact in ("step", "world_size", "dp", "tp", "pp", "ep", "must_match", "committed"):
        setattr(draft, fact, getattr(inner, fact))
    draft.shards.extend(other_files(folder, []))
    return draft
