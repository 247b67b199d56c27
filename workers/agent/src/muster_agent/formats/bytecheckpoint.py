"""ByteCheckpoint: a DCP folder for each of `model` and `optimizer`, and a file per rank in `extra_state`.

Its records are bare tensor bytes. Nothing marks the whole as committed; each component has DCP's `.metadata`. Folders
of plain DCP components (`model/`, `optim/`) are read in the same way, and so is plain DCP with an `extra_state` folder
beside its files; both are called `dcp`.
"""

from __future__ import annotations

import os
import re

import msgspec

from muster_agent.formats import dcp
from muster_agent.formats.base import Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_plan import COMMIT_NAME
from muster_agent.formats.draft import Draft, role_of
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import step_of_name
from muster_agent.formats.nested import list_nested, read_nested
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.torch_archive import add_torch_shard, scalar, tensor_ranges

FORMAT = "bytecheckpoint"
_EXTRA, _LOADER = "extra_state", "loader"
_ROLES = {"model": Role.MODEL, "optimizer": Role.OPTIMIZER, "optim": Role.OPTIMIZER}
_EXTRA_NAME = re.compile(r"extra_state_rank_(\d{1,9})\.pt", re.ASCII)
_RANK_OF_DATA = re.compile(r"__(\d{1,9})_\d{1,9}\.distcp", re.ASCII)
_STEP_NAMES = ("global_step", "step", "iteration")
_MAX_LISTED = 100
_MAX_RANKS = 1 << 20


def claims(folder: Folder) -> bool:
    """One folder called `model` makes no checkpoint: it may be one by itself, in the folder of its run. Where one holds
    weights in another form, each is of a format of its own."""
    found = [name for name in _ROLES if name in folder.folders and dcp.claims(folder.sub(name))]
    others = (folder.sub(name) for name in _ROLES if name in folder.folders and name not in found)
    if any(name.endswith(".safetensors") for other in others for name in other.files):
        return False
    if len(found) > 1 or (found and step_of_name(os.path.basename(folder.path)) is not None):
        return True
    return _EXTRA in folder.folders and any(map(_EXTRA_NAME.fullmatch, folder.sub(_EXTRA).files))


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge the folder of one step."""
    if dcp.claims(folder):
        return _read_dcp_with_extra(folder, with_tensors)
    draft = Draft(dcp.FORMAT, committed=True, roles=set())
    components = [name for name in _ROLES if name in folder.folders]
    raw, world_size = False, 0
    for name in components:
        is_raw, ranks = _read_component(draft, folder, name, with_tensors)
        raw, world_size = raw or is_raw, max(world_size, ranks)
    if raw or _EXTRA in folder.folders:
        draft.format = FORMAT
        world_size = _read_extra(draft, folder, world_size, with_tensors)
        _check_ranks_have_files(draft, folder, components, world_size)
    draft.world_size = world_size or None
    if "model" not in components and "model" not in folder.blocked:
        detail = "there is no model/, so no weights"
        draft.findings.append(finding("metadata_missing", path="model/.metadata", detail=detail))
    for name in folder.blocked & {*_ROLES, _EXTRA}:
        draft.shards.append(ShardEntry(path=f"{name}/{COMMIT_NAME}", size_bytes=None, role=_ROLES.get(name, Role.RNG)))
    for name in folder.folders:
        if name not in (*components, _EXTRA):
            list_nested(draft, folder, name)
    if _LOADER in folder.folders and folder.sub(_LOADER).files and draft.roles is not None:
        draft.roles.add(Role.DATALOADER)
    draft.shards.extend(other_files(folder, []))
    return draft


def _read_dcp_with_extra(folder: Folder, with_tensors: bool) -> Draft:
    draft = dcp.read_dcp(folder, with_tensors)
    draft.world_size = _read_extra(draft, folder, draft.world_size or 0, with_tensors) or None
    for name in folder.folders:
        if name != _EXTRA:
            list_nested(draft, folder, name)
    return draft


# -- components --------------------------------------------------------------------------------------------------------
def _read_component(draft: Draft, folder: Folder, name: str, with_tensors: bool) -> tuple[bool, int]:
    """Take one component in. Whether its records are bare bytes, and the number of ranks that wrote it."""
    raw = False

    def read_as_role(inside: Folder, wanted: bool) -> Draft:
        nonlocal raw
        inner, plan = dcp.read_with_plan(inside, wanted)
        raw = plan is not None and plan.raw_records
        _give_role(inner, _ROLES[name])
        return inner

    inner = read_nested(draft, folder, name, read_as_role, with_tensors=with_tensors)
    draft.committed = draft.committed and inner.committed is not False
    return raw, inner.world_size or 0


def _give_role(draft: Draft, role: Role) -> None:
    """The component says what its state is; names inside it (`state.0.exp_avg`) do not."""
    replace = msgspec.structs.replace
    kept = (Role.METADATA, Role.OTHER)
    draft.shards = [one if one.role in kept else replace(one, role=role) for one in draft.shards]
    draft.tensors = [replace(one, role=role) for one in draft.tensors]
    draft.roles = None if draft.roles is None else {role}


# -- the state of each rank --------------------------------------------------------------------------------------------
def _read_extra(draft: Draft, folder: Folder, world_size: int, with_tensors: bool) -> int:
    """Take `extra_state/` in, where there is one. The number of ranks that it and the data files show."""
    if _EXTRA not in folder.folders:
        return world_size
    inner = read_nested(
        draft, folder, _EXTRA, lambda inside, wanted: _extra(inside, world_size, wanted), with_tensors=with_tensors
    )
    if draft.step is None:
        draft.step = inner.step
    return inner.world_size or world_size


def _extra(folder: Folder, world_size: int, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT, roles=set())
    present = {int(match.group(1)) for match in map(_EXTRA_NAME.fullmatch, folder.files) if match}
    blocked = {int(match.group(1)) for match in map(_EXTRA_NAME.fullmatch, folder.blocked) if match}
    draft.world_size = max(world_size, 1 + max(present | blocked, default=-1))
    steps = {}
    for rank in sorted(present):
        name = f"extra_state_rank_{rank}.pt"
        steps[rank] = _take_rank(draft, folder, name, rank, with_tensors)
    told = sorted({step for step in steps.values() if step is not None})
    if len(told) > 1:
        detail = f"the ranks' extra state is of different steps, {told[0]} to {told[-1]}: two saves are mixed"
        draft.findings.append(finding("step_mismatch", path=".", detail=detail))
    named = step_of_name(os.path.basename(os.path.dirname(folder.path)))
    draft.step = told[0] if len(told) == 1 and named is None else None
    lost = [rank for rank in range(min(draft.world_size, len(present) + _MAX_RANKS)) if rank not in present | blocked]
    for rank in lost[:_MAX_LISTED] if folder.listed else ():
        name = f"extra_state_rank_{rank}.pt"
        detail = f"{len(lost)} of {draft.world_size} ranks left no extra state, rank {rank} is one"
        add_absent(draft, folder, name, detail, rank=rank)
    draft.shards.extend(other_files(folder, [shard.path for shard in draft.shards]))
    return draft


def _take_rank(draft: Draft, folder: Folder, name: str, rank: int, with_tensors: bool) -> int | None:
    """Take one rank's file in; the step that it names."""
    loaded = add_torch_shard(draft, folder, name, rank=rank, role=Role.RNG, values=True)
    if loaded is None or not isinstance(loaded.value, dict):
        return None
    roles = {role_of(key) for key in loaded.value if isinstance(key, str)} - {Role.MODEL}
    draft.roles = (draft.roles or set()) | roles
    if with_tensors:
        ranges = tensor_ranges(loaded, name)
        draft.tensors.extend(msgspec.structs.replace(one, role=Role.RNG) for one in ranges)
    return scalar(loaded.value, *_STEP_NAMES)


def _check_ranks_have_files(draft: Draft, folder: Folder, components: list[str], world_size: int) -> None:
    """ByteCheckpoint's own check wants a file of every rank in each component, an empty one where it had no data."""
    for component in components:
        inside = folder.sub(component)
        promised = {shard.path.rpartition("/")[2] for shard in draft.shards if shard.path.startswith(f"{component}/")}
        names = inside.files.keys() | inside.blocked | promised
        have = {int(match.group(1)) for match in map(_RANK_OF_DATA.fullmatch, names) if match}
        lost = [rank for rank in range(min(world_size, _MAX_RANKS)) if rank not in have]
        for rank in lost[:_MAX_LISTED] if have else ():
            path = f"{component}/__{rank}_0.distcp"
            detail = f"nothing is lost, but ByteCheckpoint itself refuses to load without {path}"
            cure = f"Create it as an empty file: `touch {path}`."
            warning = Severity.WARNING
            draft.findings.append(finding("shard_missing", path=path, detail=detail, cure=cure, severity=warning))
