"""Training state beside weights, as Hugging Face's Trainer and Accelerate write it: one torch file for each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from muster_agent.formats import dcp, deepspeed
from muster_agent.formats.base import Role
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import is_temporary
from muster_agent.formats.nested import read_nested
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, tensor_ranges

SMALL_BYTES = 4 * 1024 * 1024
"""Files up to this size have their values read in every scan; larger ones only where tensors are asked for."""
TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
_RANK = re.compile(r"(?:rng_state|random_states|rank)_?(\d{1,6})\.", re.ASCII)
_ROLES = (
    (re.compile(r"(?:rng|random)[-_]?states?\b|(?:rng|random)[-_]states?_\d|rng\b", re.ASCII), Role.RNG),
    (re.compile(r"optim(?:izers?)?(?:[-_.]|$)", re.ASCII), Role.OPTIMIZER),
    (re.compile(r"(?:lr_)?sched(?:uler)?(?:[-_.]|$)", re.ASCII), Role.SCHEDULER),
    (re.compile(r"(?:sampler|dl_state_dict|data_?loader|loader)(?:[-_.]|$)", re.ASCII), Role.DATALOADER),
    (re.compile(r"(?:training_args|scaler|custom_checkpoint_\d+|train(?:er|ing)_state)\b", re.ASCII), Role.OTHER),
)
_COMPANIONS = frozenset({"training_args.bin", "scheduler.pt", "scaler.pt"})
_RECORDS = re.compile(
    r"(?:.*[-_.])?(?:metadata|dataset|config|hparams|hyper_?parameters|args|arguments|history)(?:[-_.]?\d{1,18})?\.pkl",
    re.ASCII | re.IGNORECASE,
)
"""Pickled notes that scripts keep beside checkpoints: EasyLM's `metadata_1000.pkl`, `dataset_1000.pkl`."""
_FSDP_FOLDERS = (
    (re.compile(r"pytorch_model_fsdp_\d{1,4}", re.ASCII), Role.MODEL),
    (re.compile(r"optimizer_\d{1,4}", re.ASCII), Role.OPTIMIZER),
)


def state_role(name: str) -> Role | None:
    """The role of a file of training state by its name; None for a name that says nothing."""
    return next((role for pattern, role in _ROLES if pattern.match(name)), None)


def is_companion_name(name: str) -> bool:
    """Whether the file belongs to a checkpoint or a run, and is none by itself."""
    return name in _COMPANIONS or state_role(name) is Role.RNG or _RECORDS.fullmatch(name) is not None


def rank_of(name: str) -> int | None:
    match = _RANK.search(name)
    return int(match.group(1)) if match else None


def add_state_files(draft: Draft, folder: Folder, names: Iterable[str], *, with_tensors: bool) -> dict[str, Loaded]:
    """Take the torch files `names`, some of which may be there only by name, into the draft with the roles that their
    names give. Files that were swapped show here. Returns what was read of each."""
    read: dict[str, Loaded] = {}
    for name in sorted(names):
        seen = folder.files.get(name)
        role = state_role(name) or Role.OTHER
        values = with_tensors or (seen is not None and seen.size_bytes <= SMALL_BYTES)
        loaded = add_torch_shard(draft, folder, name, rank=rank_of(name), role=role, values=values)
        if draft.roles is not None and role is not Role.OTHER:
            draft.roles.add(role)
        if loaded is None:
            continue
        read[name] = loaded
        if with_tensors:
            ranges = (msgspec.structs.replace(tensor, role=role) for tensor in tensor_ranges(loaded, name))
            draft.tensors.extend(ranges)
    roots = {name: loaded.file.root for name, loaded in read.items()}
    draft.findings.extend(misplaced_findings(roots))
    return read


def is_torch_name(name: str) -> bool:
    """Whether a file of this name should be one of `torch.save`; Accelerate gives its random states another ending."""
    return name.endswith(TORCH_SUFFIXES) or (name.endswith(".pkl") and name.startswith(("random_states_", "custom_")))


def torch_names(folder: Folder, taken: Iterable[str]) -> set[str]:
    """The folder's torch files by name, also those that could not be looked at, without the ones already taken."""
    names = (folder.files.keys() | folder.blocked) - set(taken)
    return {name for name in names if is_torch_name(name) and not is_temporary(name)}


# -- FSDP --------------------------------------------------------------------------------------------------------------
def fsdp_folders(folder: Folder) -> list[tuple[str, Role]]:
    """The sub-folders in which FSDP saves sharded state with PyTorch DCP, and what each holds."""
    found = []
    for name in folder.folders:
        role = next((role for pattern, role in _FSDP_FOLDERS if pattern.fullmatch(name)), None)
        if role is not None:
            found.append((name, role))
    return found


def add_fsdp(draft: Draft, folder: Folder, *, with_tensors: bool) -> int | None:
    """Take the sub-folders of FSDP into the draft; a part without its commit marker makes the whole uncommitted.
    Returns the number of ranks that wrote them, as far as that is known."""
    worlds = []
    for name, role in fsdp_folders(folder):
        inner = read_nested(draft, folder, name, _reader(role), with_tensors=with_tensors)
        draft.committed = False if inner.committed is False else draft.committed
        draft.settling = draft.settling or inner.settling
        worlds.append(inner.world_size or 0)
    return max(worlds, default=0) or None


def _reader(role: Role) -> Callable[[Folder, bool], Draft]:
    def read(folder: Folder, with_tensors: bool) -> Draft:
        """All of the folder's data has the role that its name gives, whatever its tensors are called."""
        if not folder.listed:
            return Draft(dcp.FORMAT, roles=None)
        inner = dcp.read_dcp(folder, with_tensors)
        replace = msgspec.structs.replace
        inner.shards = [
            shard if shard.role in (Role.METADATA, Role.OTHER) else replace(shard, role=role) for shard in inner.shards
        ]
        inner.tensors = [replace(tensor, role=role) for tensor in inner.tensors]
        inner.roles = {role} if inner.roles is not None else None
        return inner

    return read


def deepspeed_folders(folder: Folder) -> list[str]:
    """The sub-folders that are DeepSpeed's, which may be named like steps."""
    fsdp = {name for name, _ in fsdp_folders(folder)}
    return [name for name in folder.folders if name not in fsdp and deepspeed.claims(folder.sub(name))]
