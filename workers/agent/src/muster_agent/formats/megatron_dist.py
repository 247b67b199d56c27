"""Megatron-Core's distributed checkpoints (`torch_dist`, `torch_dcp`, `fsdp_dtensor`): DCP with Megatron's rules.

`metadata.json` is written after DCP's own `.metadata` and is the commit marker; the layouts of plain DCP have none. The
state that all ranks share lies in `common.pt`, or in newer versions as an object among the others.
"""

from __future__ import annotations

from typing import Any

from muster_agent.formats import dcp
from muster_agent.formats.base import Role, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_plan import COMMIT_NAME, Plan
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.integrity import take_integrity
from muster_agent.formats.megatron_common import (
    COMMON_NAME,
    MARKER_NAME,
    folder_name,
    is_iteration_name,
    take_configuration,
    take_named_step,
    take_state,
    take_train_state,
    take_unfinished,
)
from muster_agent.formats.megatron_loader import take_loader_files
from muster_agent.formats.nested import list_nested, read_nested
from muster_agent.formats.pickle_machine import PickleRefused
from muster_agent.formats.safetensors import metadata_entry, read_json
from muster_agent.formats.sharded_objects import group_findings, part_of
from muster_agent.formats.torch_archive import add_torch_shard
from muster_agent.formats.torch_names import shortened
from muster_agent.formats.torch_pickle import TorchPickle, read_torch_pickle
from muster_agent.formats.zip_directory import ZipRefused, payload_begin, read_archive

FORMAT = "megatron_dist"
_BACKENDS = frozenset({"torch_dist", "fsdp_dtensor", "torch_dcp"})
_MAX_MARKER_BYTES = 64 * 1024
_MAX_COMMON_BYTES = 64 * 1024 * 1024
_COMMON_KEY = "common_state"
_MODELOPT = "modelopt_state"


def claims(folder: Folder) -> bool:
    if MARKER_NAME in folder.files and backend_of(folder) in _BACKENDS:
        return True
    if COMMON_NAME in folder.files or COMMON_NAME in folder.blocked:
        return True
    return is_iteration_name(folder_name(folder)) and dcp.claims(folder)


def backend_of(folder: Folder) -> str | None:
    """The backend that a readable `metadata.json` names; None for a file of that name that is not Megatron's."""
    document, _ = read_json(folder, MARKER_NAME, _MAX_MARKER_BYTES)
    backend = document.get("sharded_backend") if isinstance(document, dict) else None
    return backend if isinstance(backend, str) else None


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge the folder of one iteration, with the parts that lie in folders of their own."""
    draft = _read_part(folder, with_tensors)
    take_unfinished(draft, folder)
    take_named_step(draft, folder)
    take_train_state(draft, folder)
    take_configuration(draft, folder)
    take_loader_files(draft, folder)
    for name in folder.folders:
        if name == _MODELOPT:
            inner = read_nested(draft, folder, name, _read_part, with_tensors=with_tensors)
            draft.committed = draft.committed and inner.committed
        elif not name.startswith("mp_rank_"):
            list_nested(draft, folder, name)
    draft.shards = list({shard.path: shard for shard in draft.shards}.values())
    return draft


def _read_part(folder: Folder, with_tensors: bool) -> Draft:
    draft, plan = dcp.read_with_plan(folder, with_tensors)
    draft.format = FORMAT
    has_rule = COMMON_NAME in folder.files or (plan is not None and _is_torch_dist(plan))
    take_marker(draft, folder, is_needed=has_rule)
    if plan is not None:
        draft.findings.extend(group_findings(plan.objects, COMMIT_NAME))
    take_state(draft, folder, _common(draft, folder, plan))
    take_integrity(draft, folder)
    return draft


def _is_torch_dist(plan: Plan) -> bool:
    """Whether Megatron's own strategy saved it, as its plans and its objects in parts tell."""
    return plan.writers is not None or any(part_of(name) for name in plan.objects)


# -- the marker --------------------------------------------------------------------------------------------------------
def take_marker(draft: Draft, folder: Folder, *, is_needed: bool) -> None:
    """Take Megatron's marker into the draft. Where none is needed, a file of its name may be anybody's."""
    if MARKER_NAME in folder.blocked:
        return
    if MARKER_NAME not in folder.files:
        draft.committed = False if is_needed else draft.committed
        draft.marker = MARKER_NAME if is_needed else draft.marker
        return
    document, problem = read_json(folder, MARKER_NAME, _MAX_MARKER_BYTES)
    is_marker = isinstance(document, dict) and isinstance(document.get("sharded_backend"), str)
    if not is_marker and not is_needed:
        return
    draft.shards.append(metadata_entry(MARKER_NAME, folder.files[MARKER_NAME]))
    if not is_marker:
        detail = f"{MARKER_NAME} does not name a backend, as Megatron's does"
        draft.committed = None if problem is not None and problem.code == "archived" else False
        draft.findings.append(problem or finding("metadata_unreadable", path=MARKER_NAME, detail=detail))


# -- the common state --------------------------------------------------------------------------------------------------
def _common(draft: Draft, folder: Folder, plan: Plan | None) -> Any:
    """The state that all ranks share: from its file, from the object of newer versions, or from plain DCP's objects."""
    if COMMON_NAME in folder.files:
        loaded = add_torch_shard(draft, folder, COMMON_NAME, role=Role.SCHEDULER, values=True)
        return loaded.value if loaded else None
    if plan is None or COMMON_NAME in folder.blocked:
        return None
    inside = next((name for name in plan.objects if name.split("/", 1)[0] == _COMMON_KEY), None)
    if inside is not None:
        return _common_object(draft, folder, plan, inside)
    if _is_torch_dist(plan):
        draft.shards.append(ShardEntry(path=COMMON_NAME, size_bytes=None, role=Role.SCHEDULER))
        detail = f"{COMMON_NAME}, the state that all ranks share, is not there"
        draft.findings.append(finding("shard_missing", path=COMMON_NAME, detail=detail))
        return None
    read = {name: _object(folder, plan, name) for name in ("args", "iteration") if name in plan.objects}
    return {name: pickle.value for name, pickle in read.items() if pickle is not None}


def _common_object(draft: Draft, folder: Folder, plan: Plan, name: str) -> Any:
    """The common state among the records. Its loss is damage; where its whole file is missing, that is said already."""
    pickle = _object(folder, plan, name)
    record = plan.stored.get((name, None))
    if record is None or record.file not in folder.files:
        return None
    if pickle is None:
        detail = f"{name!r}, the state that all ranks share, cannot be read from {record.file}"
        end = record.offset + record.length
        draft.findings.append(
            finding("metadata_unreadable", path=record.file, detail=detail, begin_byte=record.offset, end_byte=end)
        )
        return None
    if pickle.unsafe:
        draft.structure_known = True
        detail = f"{name!r} in {record.file} names {shortened(pickle.unsafe)}; nothing was run"
        draft.findings.append(finding("metadata_unsafe", path=record.file, detail=detail))
    return pickle.value


def _object(folder: Folder, plan: Plan, name: str) -> TorchPickle | None:
    """A pickled object among the records; None where it cannot be read."""
    record = plan.stored.get((name, None))
    if record is None or record.file not in folder.files or not 0 < record.length <= _MAX_COMMON_BYTES:
        return None
    try:
        with folder.open(record.file) as opened:
            archive = read_archive(opened, record.offset, record.offset + record.length)
            members = archive.members if archive else ()
            member = next((one for one in members if one.name.endswith("/data.pkl") and one.stored), None)
            begin = payload_begin(opened, member) if member else None
            if member is None or begin is None:
                return None
            return read_torch_pickle(opened.pread(member.size_bytes, begin))
    except (OSError, ZipRefused, PickleRefused):
        return None
