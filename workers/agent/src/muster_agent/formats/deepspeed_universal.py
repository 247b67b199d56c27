"""DeepSpeed's universal checkpoints: a folder per parameter, so that any number of ranks can load them.

The conversion writes the parameters first, then `zero/optimizer_state.pt` and copies of the model's files, and removes
its `tmp/` last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from muster_agent.formats.base import Finding, Role, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.deepspeed_facts import Facts, facts_of
from muster_agent.formats.deepspeed_names import Kind, model_name, part_of, zero_name
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.nested import take_folder_findings
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, tensor_ranges
from muster_agent.formats.torch_pickle import TensorValue

FORMAT = "deepspeed_universal"
ZERO_FOLDER = "zero"
TEMPORARY_FOLDER = "tmp"
STATE_NAME = "optimizer_state.pt"
_VALUE_NAME = "fp32.pt"
_STATE_FILE = re.compile(r"[A-Za-z0-9_]{1,64}\.pt", re.ASCII)
_MAX_LISTED = 200
_MAX_RANKS = 1 << 17
_CONVERT = "Convert the checkpoint again, into an empty folder; the one it was made from is not touched by that."
_COPY_AGAIN = "Copy the file from the checkpoint that was converted: it is the same there."


def claims(folder: Folder) -> bool:
    if ZERO_FOLDER not in folder.folders:
        return False
    inside = folder.sub(ZERO_FOLDER)
    if STATE_NAME in inside.files:
        return True
    is_near = _name(folder).endswith("_universal") or any(part_of(name) for name in folder.files)
    return is_near and any(_VALUE_NAME in inside.sub(name).files for name in inside.folders[:3])


def _name(folder: Folder) -> str:
    return folder.path.rstrip("/").rsplit("/", 1)[-1]


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge a converted checkpoint: the copies of the model's files, each parameter that they list, and each state of
    it that the others have too."""
    draft = Draft(FORMAT, committed=True)
    roots: dict[str, str] = {}
    facts = _take_models(draft, folder, roots, with_tensors=with_tensors)
    inner = _zero(folder.sub(ZERO_FOLDER), facts, roots, with_tensors=with_tensors)
    nest(draft, inner, ZERO_FOLDER)
    draft.findings.extend(misplaced_findings(roots))
    _take_lost_models(draft, folder, facts)
    if TEMPORARY_FOLDER in folder.folders:
        detail = "the conversion's working folder is still here: it ended early, or was told to keep it"
        draft.findings.append(finding("temporary_left", path=TEMPORARY_FOLDER, detail=detail))
    draft.step = facts.step
    draft.roles = draft.roles and draft.roles | facts.roles | {Role.RNG, Role.DATALOADER}
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _take_models(draft: Draft, folder: Folder, roots: dict[str, str], *, with_tensors: bool) -> Facts:
    """The copies of the model's files. The conversion makes them at its end: none means that it did not get there."""
    read: list[Loaded] = []
    names = sorted(name for name in folder.files.keys() | folder.blocked if part_of(name) is not None)
    for index, name in enumerate(names):
        loaded = add_torch_shard(
            draft, folder, name, role=Role.MODEL, values=with_tensors or index == 0 or name.startswith("mp_rank_")
        )
        if loaded is not None:
            read.append(loaded)
            roots[name] = loaded.file.root
            draft.tensors.extend(tensor_ranges(loaded, name) if with_tensors else ())
    if not names:
        detail = (
            "there is no copy of the model's files (mp_rank_00_model_states.pt), which the conversion makes at its end"
        )
        draft.committed = False
        draft.findings.append(finding("metadata_missing", path=folder.path, detail=detail, cure=_CONVERT))
    return facts_of(read)


def _take_lost_models(draft: Draft, folder: Folder, facts: Facts) -> None:
    """Copies that there must have been: one for each rank of the converted save where it was of ZeRO stage 3, else one
    for each model-parallel rank."""
    there = folder.files.keys() | folder.blocked
    kinds = {part.kind for name in there if (part := part_of(name)) is not None}
    ranks, dp = range(facts.mp or 0), range(facts.dp or 0)
    names = [model_name(mp) for mp in ranks] if Kind.MODEL in kinds else []
    if Kind.ZERO_MODEL in kinds and len(ranks) * len(dp) <= _MAX_RANKS:
        names += [zero_name(Kind.ZERO_MODEL, rank, mp, "") for mp in ranks for rank in dp]
    for name in [name for name in names[:_MAX_RANKS] if name not in there][:_MAX_LISTED]:
        detail = f"{name} was in the checkpoint that was converted, and its copy is not here"
        add_absent(draft, folder, name, detail, cure=_COPY_AGAIN)


def _zero(inside: Folder, facts: Facts, roots: dict[str, str], *, with_tensors: bool) -> Draft:
    """The folder of parameters, as a draft with paths relative to it."""
    draft = Draft(FORMAT)
    if not inside.listed:
        draft.findings.extend(inside.findings)
        draft.roles = None
        return draft
    if STATE_NAME in inside.files or STATE_NAME in inside.blocked:
        loaded = add_torch_shard(draft, inside, STATE_NAME, role=Role.OPTIMIZER, values=True)
        roots.update({f"{ZERO_FOLDER}/{STATE_NAME}": loaded.file.root} if loaded else {})
    else:
        detail = f"there is no {STATE_NAME}, which the conversion writes once all parameters are done"
        draft.findings.append(finding("metadata_missing", path=STATE_NAME, detail=detail, cure=_CONVERT))
    take_folder_findings(draft, inside)
    profiles: dict[str, frozenset[str]] = {}
    for name in inside.folders:
        profiles[name] = _take_parameter(draft, inside.sub(name), name, facts, roots, with_tensors=with_tensors)
    draft.findings.extend(_missing(profiles, facts))
    draft.roles = {Role.MODEL, Role.OPTIMIZER}
    return draft


def _take_parameter(
    draft: Draft, folder: Folder, parameter: str, facts: Facts, roots: dict[str, str], *, with_tensors: bool
) -> frozenset[str]:
    """Take one parameter's files; returns the names that are there or could not be looked at."""
    inner = Draft(FORMAT)
    names = {name for name in folder.files.keys() | folder.blocked if _STATE_FILE.fullmatch(name)}
    held: dict[str, int | None] = {}
    for name in sorted(names):
        role = Role.MODEL if name == _VALUE_NAME else Role.OPTIMIZER
        loaded = add_torch_shard(inner, folder, name, role=role, values=with_tensors)
        if loaded is not None:
            roots[f"{ZERO_FOLDER}/{parameter}/{name}"] = loaded.file.root
            held[name] = _elements(loaded)
            if with_tensors:
                inner.tensors.extend(_ranges(loaded, name, parameter, role))
    inner.findings.extend(_size_findings(held, parameter, facts))
    take_folder_findings(inner, folder)
    nest(draft, inner, parameter)
    return frozenset(names)


def _ranges(loaded: Loaded, name: str, parameter: str, role: Role) -> Iterator[TensorRange]:
    """The file's tensor, called after the parameter and the state."""
    state = name.removesuffix(".pt")
    for tensor in tensor_ranges(loaded, name):
        yield msgspec.structs.replace(tensor, name=f"{parameter}.{state}", role=role)


def _elements(loaded: Loaded) -> int | None:
    """How many elements the one tensor in the file has; None where that was not read, or is not the form expected."""
    value = loaded.value
    tensor = value.get("param") if isinstance(value, dict) else value
    return _volume(tensor.shape) if isinstance(tensor, TensorValue) else None


def _volume(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _size_findings(held: Mapping[str, int | None], parameter: str, facts: Facts) -> list[Finding]:
    """A parameter has the size that the model's file lists; tensor-parallel parts are merged, so then it is larger."""
    shape = facts.shapes.get(parameter)
    if shape is None or facts.mp != 1:
        return []
    found = []
    for name, elements in held.items():
        if name != "step.pt" and elements is not None and elements != _volume(shape) and elements != 1:
            detail = f"{name} holds {elements} elements, the parameter {parameter!r} has {_volume(shape)}"
            found.append(finding("ranges_gap", path=name, detail=detail, tensor=parameter))
    return found


def _missing(profiles: Mapping[str, frozenset[str]], facts: Facts) -> list[Finding]:
    """Parameters that the model's files list and that have no folder; and files that a parameter lacks beside others of
    which it has all but those. Optimizers may differ between parameters, so a set that several share is right."""
    found = []
    for name in sorted(facts.shapes.keys() - profiles.keys()):
        detail = f"the parameter {name!r} of the model has no folder: it was not converted"
        path = f"{name}/{_VALUE_NAME}"
        found.append(finding("shard_missing", path=path, detail=detail, cure=_CONVERT, tensor=name))
    counts = Counter(profiles.values())
    for name, has in sorted(profiles.items()):
        larger = [other for other in counts if has < other and counts[other] >= counts[has]]
        if _VALUE_NAME not in has or (larger and counts[has] == 1):
            full = max(larger, key=lambda other: counts[other], default=frozenset({_VALUE_NAME}))
            for file in sorted(full - has):
                detail = f"the parameter {name!r} has no {file}, as other parameters do"
                found.append(finding("shard_missing", path=f"{name}/{file}", detail=detail, tensor=name))
    return found[:_MAX_LISTED]
