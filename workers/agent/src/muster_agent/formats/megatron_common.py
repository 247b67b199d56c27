"""What all of Megatron's layouts share: the command-line arguments saved inside, folder names, the step."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from muster_agent.formats.base import Finding, Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import step_of_name
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, scalar, tensor_ranges

COMMON_NAME = "common.pt"
MARKER_NAME = "metadata.json"
TRAIN_STATE_NAME = "train_state.pt"
RELEASE = "release"
UNFINISHED_SUFFIX = "-unfinished"
_ITERATION_NAME = re.compile(r"iter_\d{1,18}", re.ASCII)
_CONFIG_LINE = re.compile(
    rb"^\s*(tensor_model_parallel_size|pipeline_model_parallel_size|expert_model_parallel_size):\s*(\d{1,6})\s*$", re.M
)
_UNFINISHED_CURE = (
    "While no job is saving: remove the marker if every rank is known to have finished, which makes the checkpoint "
    "count again; else leave it, and NeMo deletes the checkpoint when it next starts."
)
_MAX_DEGREE = 1 << 24
_MAX_CONFIG_BYTES = 1 << 20
_STEP_BYTES = 8


def is_iteration_name(name: str) -> bool:
    """Whether Megatron gives this name to the folder of a step (or of a model without a step)."""
    return name == RELEASE or _ITERATION_NAME.fullmatch(name) is not None


def folder_name(folder: Folder) -> str:
    return os.path.basename(folder.path)


# -- the arguments -----------------------------------------------------------------------------------------------------
class Layout(NamedTuple):
    """The degrees of parallelism that the saving job was started with; None where they are not told."""

    world_size: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None


def layout_of(value: Any) -> Layout:
    """The layout in the `args` of a common state or of a rank's file."""
    arguments = value.get("args") if isinstance(value, dict) else None
    world_size = _degree(arguments, "world_size")
    tp = _degree(arguments, "tensor_model_parallel_size", "model_parallel_size")
    pp = _degree(arguments, "pipeline_model_parallel_size")
    ep = _degree(arguments, "expert_model_parallel_size")
    dp = _degree(arguments, "data_parallel_size")
    if dp is None and world_size and tp and pp:
        dp, rest = divmod(world_size, tp * pp * (_degree(arguments, "context_parallel_size") or 1))
        dp = None if rest else dp
    return Layout(world_size, tp, pp, ep, dp)


def _degree(arguments: Any, *names: str) -> int | None:
    held = scalar(arguments, *names)
    return held if held is not None and 0 < held <= _MAX_DEGREE else None


def take_state(draft: Draft, folder: Folder, value: Any) -> Layout:
    """Take what a common state says of step, layout and roles into the draft."""
    layout = layout_of(value)
    draft.world_size = layout.world_size or draft.world_size
    draft.tp, draft.pp, draft.ep, draft.dp = layout.tp, layout.pp, layout.ep, layout.dp
    arguments = value.get("args") if isinstance(value, dict) else None
    told = (scalar(value, "iteration", "global_step"), scalar(arguments, "iteration"), draft.step)
    draft.step = next((step for step in told if step is not None), None)
    draft.step_source = COMMON_NAME if draft.step != told[2] or told[0] is not None else draft.step_source
    if folder_name(folder) == RELEASE:
        draft.step = 0
    if draft.roles is not None and isinstance(value, dict):
        draft.roles |= _roles(value, has_position=draft.step is not None)
    return layout


def take_named_step(draft: Draft, folder: Folder) -> None:
    """NeMo's names count a step before it is finished and its state after that, so `step=99` holds step 100. There the
    name's step is kept: it is the one that people and its own links go by."""
    name = folder_name(folder)
    named = step_of_name(name)
    if named is not None and "step=" in name and draft.step in (None, named + 1):
        draft.step = named


def _roles(value: dict[Any, Any], *, has_position: bool) -> set[Role]:
    """The position in the data follows from the iteration: Megatron's samples are a function of it."""
    roles = {Role.DATALOADER} if has_position else set()
    if not value.keys().isdisjoint(("opt_param_scheduler", "lr_scheduler", "lr_schedulers")):
        roles.add(Role.SCHEDULER)
    if not value.keys().isdisjoint(("rng_state", "random_rng_state", "torch_rng_state", "cuda_rng_state")):
        roles.add(Role.RNG)
    return roles


# -- files beside the state --------------------------------------------------------------------------------------------
def take_train_state(draft: Draft, folder: Folder) -> None:
    """`train_state.pt`, which the bridge to other frameworks writes: the step that training really continues at."""
    if TRAIN_STATE_NAME not in folder.files:
        return
    loaded = add_torch_shard(draft, folder, TRAIN_STATE_NAME, role=Role.OTHER, values=True)
    step = step_of(loaded, "step") if loaded else None
    if step is None:
        return
    if draft.step is not None and draft.step != step:
        detail = f"{TRAIN_STATE_NAME} says step {step}, {COMMON_NAME} says {draft.step}"
        draft.findings.append(finding("step_mismatch", path=TRAIN_STATE_NAME, detail=detail))
    draft.step, draft.step_source = step, TRAIN_STATE_NAME
    if draft.roles is not None:
        draft.roles.add(Role.DATALOADER)


def step_of(loaded: Loaded, *names: str) -> int | None:
    """The first of the names that is an integer at the top of a file, plain or as a tensor of one element."""
    plain = scalar(loaded.value, *names)
    if plain is not None:
        return plain
    place = next((one for one in tensor_ranges(loaded, loaded.name) if one.name in names), None)
    if place is None or place.length_bytes > _STEP_BYTES or not place.dtype.startswith("int"):
        return None
    try:
        with loaded.folder.open(loaded.name) as opened:
            raw = opened.pread(place.length_bytes, place.offset_bytes)
    except OSError:
        return None
    step = int.from_bytes(raw, "little", signed=True)
    return step if len(raw) == place.length_bytes and step >= 0 else None


def take_configuration(draft: Draft, folder: Folder) -> None:
    """Degrees of parallelism in `run_config.yaml`, where nothing better told them. Lines are looked at, no more."""
    if "run_config.yaml" not in folder.files or draft.tp is not None:
        return
    try:
        data = folder.read("run_config.yaml", _MAX_CONFIG_BYTES)
    except OSError:
        return
    said = {name.decode(): int(count) for name, count in _CONFIG_LINE.findall(data)}
    draft.tp = said.get("tensor_model_parallel_size")
    draft.pp = said.get("pipeline_model_parallel_size")
    draft.ep = said.get("expert_model_parallel_size")


def take_unfinished(draft: Draft, folder: Folder) -> None:
    """NeMo's marker `NAME-unfinished`, which lies beside a checkpoint while it is written and while it is deleted."""
    name = folder_name(folder)
    beside = Folder(os.path.dirname(folder.path), folder.root, tree=folder.tree)
    beside.tree.take(beside, f"{name}{UNFINISHED_SUFFIX}")
    for marker in beside.files:
        draft.committed = False
        draft.findings.append(unfinished_finding(os.path.join(beside.path, marker)))


def unfinished_finding(path: str) -> Finding:
    detail = f"the marker {os.path.basename(path)} still lies there: a save, or a deletion, did not end"
    return finding("temporary_left", path=path, detail=detail, cure=_UNFINISHED_CURE)
