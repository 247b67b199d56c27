"""Hugging Face Accelerate's `save_state`: files of state with its own names, and no commit marker at all.

`checkpoint_3` is the fourth save of its job, not step 3; scripts that name the folder themselves usually give the step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from muster_agent.formats import deepspeed, safetensors_folder
from muster_agent.formats.base import Role, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.hf_configuration import configuration_findings
from muster_agent.formats.hf_state import add_fsdp, add_state_files, deepspeed_folders, fsdp_folders, torch_names
from muster_agent.formats.hf_trainer import chosen_tag, copy_layout, note_unfollowed_latest
from muster_agent.formats.hf_weights import add_weights, is_weight_name
from muster_agent.formats.names import is_temporary
from muster_agent.formats.nested import read_nested
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.pickle_machine import Record
from muster_agent.formats.safetensors import add_absent, other_files, read_json
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, scalar, tensor_ranges

FORMAT = "accelerate"
_COUNTED = re.compile(r"checkpoint_(\d{1,9})", re.ASCII)
_OPTIMIZER = "optimizer.bin"
_RANDOM = re.compile(r"random_states_(\d{1,6})\.pkl", re.ASCII)
_RANK_MODEL = re.compile(r"(pytorch_model_fsdp_\d{1,4}|optimizer_\d{1,4})_rank(\d{1,6})\.bin", re.ASCII)
_OWN_TAG = re.compile(r"pytorch_model(?:_\d{1,4})?", re.ASCII)
"""Accelerate asks DeepSpeed for its own tag by name, so that it needs no `latest`."""
_KOHYA = re.compile(r"(?:.*-)?step(\d{1,18})-state|(?:.*-)?state", re.ASCII | re.DOTALL)
"""The folders of kohya's scripts: `lora-step00000200-state`, `lora-000002-state` of an epoch, `lora-state`."""
_KOHYA_NOTE = "train_state.json"
_MAX_NOTE_BYTES = 64 * 1024
_MAX_RANKS = 100_000
_MAX_LISTED = 200


def claims(folder: Folder) -> bool:
    names = folder.files.keys() | folder.blocked
    if any(_RANDOM.fullmatch(name) or _RANK_MODEL.fullmatch(name) for name in names):
        return True
    if _COUNTED.fullmatch(os.path.basename(folder.path)) and _OPTIMIZER in names:
        return True  # also where the random states are lost
    return any(role is Role.MODEL for _, role in fsdp_folders(folder))


def owns(folder: Folder) -> Iterator[str]:
    """The folders of DeepSpeed, where a script names them like steps."""
    return iter(deepspeed_folders(folder))


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge a folder of `save_state`: weights, state, and the files that every rank must have left."""
    draft = Draft(FORMAT)
    used = add_weights(draft, folder, with_tensors=with_tensors)
    fsdp_ranks = add_fsdp(draft, folder, with_tensors=with_tensors)
    tags = deepspeed_folders(folder)
    if tags:
        inner = read_nested(draft, folder, chosen_tag(folder, tags), deepspeed.read, with_tensors=with_tensors)
        copy_layout(draft, inner)
        if not any(map(_OWN_TAG.fullmatch, tags)):
            note_unfollowed_latest(draft, folder, tags)
    _add_models(draft, folder, tags, with_tensors=with_tensors)
    names = folder.files.keys() | folder.blocked
    by_rank = {name for name in names if _RANK_MODEL.fullmatch(name)}
    states = add_state_files(draft, folder, torch_names(folder, used | by_rank), with_tensors=with_tensors)
    _take_rank_models(draft, folder, by_rank, with_tensors=with_tensors)
    if not used and not by_rank and not fsdp_ranks and not _holds_model(draft):
        add_absent(draft, folder, "model.safetensors", "there are no weights in any form, but other state is here")
    _check_random_states(draft, folder, fsdp_ranks)
    _note_counter(draft, folder, states)
    _take_noted_step(draft, folder)
    draft.findings.extend(configuration_findings(folder))
    known = {shard.path for shard in draft.shards} | used
    draft.shards.extend(other_files(folder, known))
    return draft


def _add_models(draft: Draft, folder: Folder, tags: list[str], *, with_tensors: bool) -> None:
    """Scripts that train several models, or one of a pipeline, save each in a folder of its own beside the state."""
    taken = {*tags, *(name for name, _ in fsdp_folders(folder))}
    for name in folder.folders:
        if name not in taken and not is_temporary(name) and any(map(is_weight_name, _names(folder.sub(name)))):
            inner = read_nested(draft, folder, name, safetensors_folder.read_folder, with_tensors=with_tensors)
            draft.committed = False if inner.committed is False else draft.committed


def _names(folder: Folder) -> set[str]:
    return folder.files.keys() | folder.blocked


def _holds_model(draft: Draft) -> bool:
    return any(shard.role is Role.MODEL for shard in draft.shards)


def _check_random_states(draft: Draft, folder: Folder, fsdp_ranks: int | None) -> None:
    """Every rank writes its own."""
    matches = filter(None, map(_RANDOM.fullmatch, folder.files.keys() | folder.blocked))
    ranks = {int(match.group(1)) for match in matches}
    count = max(draft.world_size or 0, fsdp_ranks or 0, max(ranks, default=-1) + 1)
    draft.world_size = count or None
    for rank in sorted(set(range(min(count, _MAX_RANKS))) - ranks)[:_MAX_LISTED] if ranks else ():
        detail = f"rank {rank} of {count} left no random state; on resuming, its random numbers start anew"
        draft.findings.append(finding("rng_missing", path=f"random_states_{rank}.pkl", detail=detail))


def _note_counter(draft: Draft, folder: Folder, states: dict[str, Loaded]) -> None:
    """The counter inside begins anew with every pass over the data, so the number of the save keeps the order."""
    match = _COUNTED.fullmatch(os.path.basename(folder.path))
    if match is None:
        return
    counters = (scalar(loaded.value, "step") for name, loaded in sorted(states.items()) if _RANDOM.fullmatch(name))
    inside = next((counter for counter in counters if counter is not None), None)
    said = f"; its own counter of batches says {inside}" if inside else ""
    detail = f"the {match.group(1)} in its name counts the saves of its job, not steps{said}"
    cure = "Nothing need be done; keep the step among what is saved, to see what a restart would lose."
    draft.findings.append(finding("step_mismatch", path=folder.path, detail=detail, severity=Severity.NOTE, cure=cure))


def _take_noted_step(draft: Draft, folder: Folder) -> None:
    """Scripts of kohya note the step beside the state, and in the folder's name where they save by steps."""
    match = _KOHYA.fullmatch(os.path.basename(folder.path))
    if match is None or draft.step is not None:
        return
    document, found = read_json(folder, _KOHYA_NOTE, _MAX_NOTE_BYTES) if _KOHYA_NOTE in folder.files else (None, None)
    draft.findings.extend([found] if found else [])
    noted = document.get("current_step") if isinstance(document, dict) else None
    named = int(match.group(1)) if match.group(1) else None
    draft.step = noted if type(noted) is int and noted >= 0 else named
    if named is not None and draft.step != named:
        detail = f"the name says step {named}, {_KOHYA_NOTE} says {draft.step}"
        draft.findings.append(finding("step_mismatch", path=folder.path, detail=detail))


# -- FSDP with a file per rank -----------------------------------------------------------------------------------------
def _take_rank_models(draft: Draft, folder: Folder, names: set[str], *, with_tensors: bool) -> None:
    """How many ranks there were follows from the files, and from the device mesh that each of them notes."""
    families: dict[str, dict[int, str]] = {}
    for match in filter(None, map(_RANK_MODEL.fullmatch, names)):
        families.setdefault(match.group(1), {})[int(match.group(2))] = match.group(0)
    for stem, files in sorted(families.items()):
        role = Role.OPTIMIZER if stem.startswith("optimizer") else Role.MODEL
        count, roots = max(files) + 1, {}
        for rank, name in sorted(files.items()):
            values = with_tensors or rank == min(files)
            loaded = add_torch_shard(draft, folder, name, rank=rank, role=role, values=values)
            if loaded is None:
                continue
            count = max(count, _mesh_size(loaded.value))
            roots[name] = loaded.file.root
            if with_tensors:
                ranges = tensor_ranges(loaded, name)
                draft.tensors.extend(msgspec.structs.replace(tensor, role=role) for tensor in ranges)
        for rank in sorted(set(range(min(count, _MAX_RANKS))) - files.keys())[:_MAX_LISTED]:
            name = f"{stem}_rank{rank}.bin"
            add_absent(draft, folder, name, f"rank {rank} of {count}: its part is not there", rank=rank)
        expected = [f"{stem}_rank{rank}.bin" for rank in range(min(count, _MAX_RANKS))]
        draft.findings.extend(misplaced_findings(roots, expected))
        draft.world_size = max(draft.world_size or 0, count)
        if draft.roles is not None:
            draft.roles.add(role)


def _mesh_size(value: Any) -> int:
    """How many ranks the mesh of the first distributed tensor has; 0 where there is none that can be read."""
    for tensor in list(value.values())[:8] if isinstance(value, dict) else ():
        spec = tensor.get("_spec") if isinstance(tensor, Record) else None
        mesh = spec.get("mesh") if isinstance(spec, Record) else None
        ranks = mesh.get("_flatten_rank_map") if isinstance(mesh, Record) else None
        if isinstance(ranks, (tuple, list)) and ranks and all(type(rank) is int for rank in ranks):
            return min(int(max(ranks)) + 1, _MAX_RANKS)
    return 0
