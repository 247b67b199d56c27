"""ColossalAI: the model, the optimizer and the scheduler that its Booster saves side by side.

The scripts write the parts one after the other and `running_states.json` last. The optimizer is in files that an index
maps parameters to. With pipelines each stage has an index in `tmp_index_files` until the first stage joins them.
"""

from __future__ import annotations

from typing import Any

from muster_agent.formats.base import Finding, Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.hf_weights import add_weights, is_weight_name
from muster_agent.formats.names import unsafe_reason
from muster_agent.formats.nested import read_nested
from muster_agent.formats.safetensors import add_absent, add_shard, metadata_entry, other_files, read_json, read_shard
from muster_agent.formats.safetensors_folder import read_folder as read_weights
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, scalar, tensor_ranges
from muster_agent.formats.torch_save import take_roles

FORMAT = "colossalai"
MARKER_NAME = "running_states.json"
_MODELS = ("modeling", "model")
_OPTIMIZER = "optimizer"
_OPTIMIZER_INDEXES = ("pytorch_optim.bin.index.json", "optimizer.safetensors.index.json")
_GROUPS_NAME = "pytorch_optim_group.bin"
_STAGES = "tmp_index_files"
_LOOSE = {"lr_scheduler": Role.SCHEDULER, "sampler": Role.DATALOADER, "ema.pt": Role.MODEL}
_MAX_MARKER_BYTES = 1024 * 1024
_MAX_ABSENT = 200


def claims(folder: Folder) -> bool:
    """By the marker beside an optimizer or a model; by the optimizer's own index where the marker is not there yet."""
    if MARKER_NAME not in folder.files and _OPTIMIZER not in folder.folders:
        return False  # before any name is looked at: nearly every folder of a scan ends here
    has_model = any(name in folder.folders for name in _MODELS) or any(map(is_weight_name, folder.files))
    if MARKER_NAME in folder.files:
        return has_model or _OPTIMIZER in folder.folders or _OPTIMIZER in folder.files
    if not has_model:
        return False
    inside = folder.sub(_OPTIMIZER)
    return _index_of(inside) is not None or _STAGES in inside.folders or _GROUPS_NAME in inside.files


def read(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT, committed=True)
    running = _running_states(draft, folder)
    models = [name for name in _MODELS if name in folder.folders]
    for name in models:
        _take_model(draft, folder, name, with_tensors)
    used = set() if models else add_weights(draft, folder, with_tensors=with_tensors)
    if _OPTIMIZER in folder.folders:
        read_nested(draft, folder, _OPTIMIZER, _read_optimizer, with_tensors=with_tensors)
    loose = {**_LOOSE, _OPTIMIZER: Role.OPTIMIZER}
    there = [name for name in sorted(loose) if name in folder.files]
    loaded = {name: _add_loose(draft, folder, name, loose[name], with_tensors) for name in there}
    if isinstance(running.get("sample_start_index"), int) and draft.roles is not None:
        draft.roles.add(Role.DATALOADER)
    _take_step(draft, running, loaded.get("lr_scheduler"))
    draft.findings = [found for found in draft.findings if found.code != "size_total_mismatch"]  # counted in MiB
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards} | used))
    return draft


# -- the marker --------------------------------------------------------------------------------------------------------
def _running_states(draft: Draft, folder: Folder) -> dict[str, Any]:
    if MARKER_NAME in folder.files:
        draft.shards.append(metadata_entry(MARKER_NAME, folder.files[MARKER_NAME]))
        document, problem = read_json(folder, MARKER_NAME, _MAX_MARKER_BYTES)
        if problem is None and isinstance(document, dict):
            return document
        detail = f"{MARKER_NAME} does not say where training was"
        draft.findings.append(problem or finding("metadata_unreadable", path=MARKER_NAME, detail=detail))
    elif MARKER_NAME not in folder.blocked:
        draft.committed = False
        detail = f"there is no {MARKER_NAME}: it is written last, so the save did not end"
        draft.findings.append(finding("metadata_missing", path=MARKER_NAME, detail=detail))
    return {}


def _take_step(draft: Draft, running: dict[str, Any], scheduler: Loaded | None) -> None:
    """`step` counts within an epoch, so that of a later epoch it is not the step of the training; the scheduler, which
    goes on from epoch to epoch, then tells it."""
    counted = scalar(running, "global_step")
    step, epoch = scalar(running, "step"), scalar(running, "epoch") or 0
    if counted is None and step is not None and not epoch:
        counted = step
    if counted is None and scheduler is not None and scheduler.value is not None:
        counted = scalar(scheduler.value, "last_epoch")
    draft.step = counted
    if counted is None and step is not None:
        draft.number_is_no_step = True
        detail = f"its step is not known: {step} counts within epoch {epoch}, and nothing counts all epochs"
        draft.findings.append(_note(detail))


def _note(detail: str) -> Finding:
    cure = "Keep `global_step` among the running states, to see what a restart would lose."
    return finding("step_mismatch", path=MARKER_NAME, detail=detail, cure=cure)


# -- the parts ---------------------------------------------------------------------------------------------------------
def _take_model(draft: Draft, folder: Folder, name: str, with_tensors: bool) -> None:
    inner = read_nested(draft, folder, name, read_weights, with_tensors=with_tensors)
    if _STAGES in folder.sub(name).folders:
        _note_stages(draft, f"{name}/{_STAGES}")
    elif not inner.shards:
        detail = f"{name} is empty: the model is not there"
        draft.findings.append(finding("shard_missing", path=name, detail=detail))


def _note_stages(draft: Draft, path: str) -> None:
    """Each stage's index, which the last step of a save joins and removes."""
    draft.settling = True
    detail = f"{path} holds the indexes of single pipeline stages: the save stopped before they were joined"
    draft.findings.append(finding("temporary_left", path=path, detail=detail))


def _add_loose(draft: Draft, folder: Folder, name: str, role: Role, with_tensors: bool) -> Loaded | None:
    loaded = add_torch_shard(draft, folder, name, values=role is not Role.MODEL or with_tensors)
    if loaded is not None:
        take_roles(draft, loaded, {role})
        if with_tensors:
            draft.tensors.extend(tensor_ranges(loaded, name))
    return loaded


def _index_of(folder: Folder) -> str | None:
    return next((name for name in sorted(folder.files) if name.endswith(_OPTIMIZER_INDEXES)), None)


def _read_optimizer(folder: Folder, with_tensors: bool) -> Draft:
    """The optimizer's folder: the files that its index names, and the one of the parameter groups."""
    draft = Draft(FORMAT, roles={Role.OPTIMIZER})
    index = _index_of(folder)
    if _STAGES in folder.folders:
        _note_stages(draft, _STAGES)
    if index is None:
        if not folder.blocked and _STAGES not in folder.folders:
            detail = "there is no index, which says in which file the state of each parameter lies"
            draft.findings.append(finding("metadata_missing", path=_OPTIMIZER_INDEXES[0], detail=detail))
        names = {name for name in folder.files if name.endswith((".bin", ".pt", ".safetensors"))}
    else:
        draft.shards.append(metadata_entry(index, folder.files[index]))
        names = _indexed(draft, folder, index)
    absent = [name for name in sorted(names) if name not in folder.files]
    for name in sorted(names - set(absent)):
        _add_optimizer_file(draft, folder, name, with_tensors)
    for name in absent[:_MAX_ABSENT]:
        add_absent(draft, folder, name, f"{index} places state in {name}, which is not there")
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _add_optimizer_file(draft: Draft, folder: Folder, name: str, with_tensors: bool) -> None:
    if name.endswith(".safetensors"):
        add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
        return
    _add_loose(draft, folder, name, Role.OPTIMIZER, with_tensors)


def _indexed(draft: Draft, folder: Folder, index: str) -> set[str]:
    document, problem = read_json(folder, index)
    if problem is None and isinstance(document, dict) and isinstance(document.get("weight_map"), dict):
        metadata = document.get("metadata")
        groups = metadata.get("param_groups") if isinstance(metadata, dict) else None
        named = {*document["weight_map"].values(), *([groups] if isinstance(groups, str) else [])}
        for name in named:
            if (reason := unsafe_reason(name)) is not None:
                detail = f"the file name {ascii(str(name)[:200])} {reason}"
                draft.findings.append(finding("path_unsafe", path=index, detail=detail))
        return {name for name in named if unsafe_reason(name) is None and "/" not in name}
    detail = f"{index} does not map parameters to files"
    draft.findings.append(problem or finding("metadata_unreadable", path=index, detail=detail))
    return set()
