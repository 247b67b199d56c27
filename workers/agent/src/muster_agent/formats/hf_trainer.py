"""Hugging Face Trainer: `checkpoint-N/` with weights in one of many forms, optimizer, scheduler, random state.

Nothing is renamed. `trainer_state.json` is the last file that rank 0 writes, so a folder without it, or with a cut one,
is of a save that did not end; the random states of other ranks may come later still.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from muster_agent.formats import deepspeed
from muster_agent.formats.base import Finding, Role, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, trouble
from muster_agent.formats.hf_configuration import CONFIGURATION_NAMES, configuration_findings
from muster_agent.formats.hf_state import add_fsdp, add_state_files, deepspeed_folders, fsdp_folders, torch_names
from muster_agent.formats.hf_weights import add_weights, is_weight_name
from muster_agent.formats.names import is_temporary
from muster_agent.formats.nested import read_nested
from muster_agent.formats.paddle import add_paddle
from muster_agent.formats.pickle_machine import Record
from muster_agent.formats.safetensors import add_absent, decode_json, metadata_entry, other_files
from muster_agent.formats.torch_archive import Loaded

FORMAT = "hf_trainer"
STATE_NAME = "trainer_state.json"
ARGUMENTS_NAME = "training_args.bin"
_FOLDER_NAME = re.compile(r"checkpoint-\d{1,18}", re.ASCII)
_RNG_NAME = re.compile(r"rng_state(?:_(\d{1,6}))?\.pth", re.ASCII)
_MAX_STATE_BYTES = 256 * 1024 * 1024
"""The log history inside grows with the training."""
_MAX_RANKS = 100_000
_MAX_LISTED = 20
_OPTIMIZER_NAMES = ("optimizer.pt", "optimizer.bin")
_SCHEDULER_NAME = "scheduler.pt"
_ADAPTER_CONFIGURATION = "adapter_config.json"
_MARKS = {STATE_NAME, ARGUMENTS_NAME, "optimizer.pt"}


def claims(folder: Folder) -> bool:
    """By the Trainer's own files; a folder named as its checkpoints are also with fewer of them, as an early end of a
    save leaves it. Weights and configuration alone are a model that was saved, by whatever program."""
    names = folder.files.keys() | folder.blocked
    if _is_named(folder):
        is_left = bool(names) and not folder.folders and names <= CONFIGURATION_NAMES
        is_marked = not names.isdisjoint(_MARKS) or any(map(_RNG_NAME.fullmatch, names))
        return is_left or is_marked or bool(deepspeed_folders(folder))
    # The folder of a whole run may hold a copy of the state beside its checkpoints.
    return STATE_NAME in names and (
        not names.isdisjoint(_OPTIMIZER_NAMES) or any(map(is_weight_name, names)) or bool(fsdp_folders(folder))
    )


def _is_named(folder: Folder) -> bool:
    return _FOLDER_NAME.fullmatch(os.path.basename(folder.path)) is not None


def owns(folder: Folder) -> Iterator[str]:
    """The folders of DeepSpeed, which are named like steps."""
    return iter(deepspeed_folders(folder))


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge a folder of the Trainer: its weights, the state beside them, and whether its last file was written."""
    draft = Draft(FORMAT)
    used = add_weights(draft, folder, with_tensors=with_tensors)
    fsdp_ranks = add_fsdp(draft, folder, with_tensors=with_tensors)
    _add_deepspeed(draft, folder, with_tensors=with_tensors)
    _add_named_adapters(draft, folder, with_tensors=with_tensors)
    states = add_state_files(draft, folder, torch_names(folder, used), with_tensors=with_tensors)
    add_paddle(draft, folder)
    arguments = _arguments(states)
    if not used and not fsdp_ranks and not _holds(draft, Role.MODEL):
        _note_no_weights(draft, folder)
    _check_ranks(draft, folder, _processes(arguments), fsdp_ranks)
    state = _take_trainer_state(draft, folder)
    if state is not None:
        _check_state_files(draft, folder, arguments)
        _check_best(draft, folder, state)
    draft.findings.extend(configuration_findings(folder))
    known = {shard.path for shard in draft.shards} | used
    draft.shards.extend(other_files(folder, known))
    return draft


def _holds(draft: Draft, role: Role) -> bool:
    return any(shard.role is role for shard in draft.shards)


def _note_no_weights(draft: Draft, folder: Folder) -> None:
    is_adapter = _ADAPTER_CONFIGURATION in folder.files
    name = "adapter_model.safetensors" if is_adapter else "model.safetensors"
    add_absent(draft, folder, name, f"there are no weights in any form, neither {name} nor another")


# -- the last file -----------------------------------------------------------------------------------------------------
def _take_trainer_state(draft: Draft, folder: Folder) -> dict[str, Any] | None:
    """What the Trainer noted of its progress; None where it is not there whole. It holds the step, and with it the
    place in the data: the Trainer skips what it has seen."""
    if STATE_NAME not in folder.files:
        if STATE_NAME not in folder.blocked:
            detail = f"there is no {STATE_NAME}: it is written last, so the save did not end"
            draft.findings.append(finding("metadata_missing", path=STATE_NAME, detail=detail))
            draft.committed = False
        else:
            add_absent(draft, folder, STATE_NAME, "")
        return None
    draft.shards.append(metadata_entry(STATE_NAME, folder.files[STATE_NAME]))
    state, found = _read_state(folder)
    if found is not None:
        draft.findings.append(found)
        draft.committed = False if found.code == "metadata_missing" else draft.committed
        return None
    draft.committed = draft.committed is not False
    step = state.get("global_step")
    draft.step = step if type(step) is int and 0 <= step < 1 << 63 else None
    draft.step_source = STATE_NAME
    if draft.roles is not None:
        draft.roles.add(Role.DATALOADER)
    return state


def _read_state(folder: Folder) -> tuple[dict[str, Any], Finding | None]:
    size_bytes = folder.files[STATE_NAME].size_bytes
    if size_bytes > _MAX_STATE_BYTES:
        detail = f"{STATE_NAME} has {size_bytes} bytes, more than Muster reads"
        return {}, finding("metadata_unreadable", path=STATE_NAME, detail=detail)
    try:
        data = folder.read(STATE_NAME, _MAX_STATE_BYTES)
    except OSError as error:
        detail = f"{STATE_NAME} could not be read: {error.strerror}"
        code = trouble(error, os.path.join(folder.path, STATE_NAME)).code
        return {}, finding(code, path=STATE_NAME, detail=detail)
    try:
        state = decode_json(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return {}, _unparsed(data, error)
    if not isinstance(state, dict) or "global_step" not in state:
        detail = f"{STATE_NAME} is not what the Trainer writes: it has no global_step"
        return {}, finding("metadata_unreadable", path=STATE_NAME, detail=detail)
    return state, None


def _unparsed(data: bytes, error: Exception) -> Finding:
    """A file that begins as it should and is cut is as good as none: the save ended while it was being written."""
    text = data.strip()
    if not text or (text[:1] == b"{" and b"\0" not in text and "truncated" in str(error)):
        detail = f"{STATE_NAME} was cut at byte {len(data)}: it is written last, so the save did not end"
        return finding("metadata_missing", path=STATE_NAME, detail=detail)
    return finding("metadata_unreadable", path=STATE_NAME, detail=f"{STATE_NAME} is not valid JSON: {error}")


def _check_best(draft: Draft, folder: Folder, state: dict[str, Any]) -> None:
    """The Trainer loads its best checkpoint at the end, and fails there if it is gone by then."""
    best = state.get("best_model_checkpoint")
    if not isinstance(best, str) or not best:
        return
    name = best.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]
    own = os.path.basename(folder.path)
    if not name or name in (own, ".", "..") or "\0" in name:
        return
    beside = folder.tree.look(os.path.join(os.path.dirname(folder.path), name), folder.root)
    if beside.gone:
        detail = f"the best checkpoint so far is said to be {best[:300]!r}, and no {name[:100]!r} lies beside this one"
        cure = "Training resumes; to load the best model at its end, copy that checkpoint back beside this one."
        draft.findings.append(
            finding("pointer_dangling", path=STATE_NAME, detail=detail, severity=Severity.WARNING, cure=cure)
        )


# -- files of state ----------------------------------------------------------------------------------------------------
def _arguments(states: dict[str, Loaded]) -> Record | None:
    value = states[ARGUMENTS_NAME].value if ARGUMENTS_NAME in states else None
    return value if isinstance(value, Record) else None


def _processes(arguments: Record | None) -> int | None:
    """How many processes trained, as the arguments record it."""
    distributed = arguments.get("distributed_state") if arguments is not None else None
    count = distributed.get("num_processes") if isinstance(distributed, Record) else None
    return count if type(count) is int and 0 < count < _MAX_RANKS else None


def _check_ranks(draft: Draft, folder: Folder, processes: int | None, fsdp_ranks: int | None) -> None:
    """The ranks are those that left a random state, and those that the arguments or DeepSpeed's files tell of."""
    numbers = [match.group(1) for match in map(_RNG_NAME.fullmatch, folder.files.keys() | folder.blocked) if match]
    ranks = {int(number) for number in numbers if number is not None}
    known = draft.world_size or processes or fsdp_ranks or 0
    # One process writes no number, so a number says that there were two at least.
    count = max(known, max(ranks) + 1 if ranks else 0, 2 if ranks else 0, 1 if numbers else 0)
    draft.world_size = count or None
    absent = sorted(set(range(min(count, _MAX_RANKS))) - ranks) if ranks else []
    for rank in absent[:_MAX_LISTED]:
        detail = f"rank {rank} of {count} left no random state; on resuming, its random numbers start anew"
        draft.findings.append(finding("rng_missing", path=f"rng_state_{rank}.pth", detail=detail))
    if ranks and "rng_state.pth" in folder.files:
        detail = "rng_state.pth is of a save by one process, beside the random states of several"
        draft.findings.append(finding("shard_orphaned", path="rng_state.pth", detail=detail))


def _check_state_files(draft: Draft, folder: Folder, arguments: Record | None) -> None:
    """What the Trainer loads only together: without one of optimizer and scheduler, it starts both anew."""
    names = folder.files.keys() | folder.blocked
    has_optimizer = draft.roles is None or Role.OPTIMIZER in draft.roles
    has_scheduler = _SCHEDULER_NAME in names or _is_inside_deepspeed(draft)
    kept = _is_named(folder) and arguments is not None and arguments.get("save_only_model") is False
    if not has_optimizer and (has_scheduler or kept or any(map(_RNG_NAME.fullmatch, names))):
        _note_absent(draft, "optimizer.pt", "a save that writes the other state writes it too; it was lost or removed")
    elif has_optimizer and not has_scheduler and any(name in names for name in _OPTIMIZER_NAMES):
        _note_absent(draft, _SCHEDULER_NAME, "without it, the Trainer starts the optimizer anew as well")
        draft.not_resumable_reasons.append(f"without {_SCHEDULER_NAME} the Trainer loads no optimizer state")
    if ARGUMENTS_NAME not in names and any(map(is_weight_name, folder.files)):
        detail = f"{ARGUMENTS_NAME} is not there; resuming does not need it"
        draft.findings.append(finding("shard_missing", path=ARGUMENTS_NAME, detail=detail, severity=Severity.NOTE))


def _note_absent(draft: Draft, name: str, why: str) -> None:
    detail = f"{name} is not there: {why}"
    draft.findings.append(finding("shard_missing", path=name, detail=detail, severity=Severity.WARNING))


# -- subtrees ----------------------------------------------------------------------------------------------------------
def _add_named_adapters(draft: Draft, folder: Folder, *, with_tensors: bool) -> None:
    """PEFT saves each adapter but the one called `default` into a folder of its name."""
    taken = {name for name, _ in fsdp_folders(folder)}
    for name in folder.folders:
        if name not in taken and not is_temporary(name) and _is_adapter(folder.sub(name)):
            read_nested(draft, folder, name, _read_adapter, with_tensors=with_tensors)


def _is_adapter(folder: Folder) -> bool:
    names = folder.files.keys() | folder.blocked
    return _ADAPTER_CONFIGURATION in names or any(
        name.startswith("adapter_") and is_weight_name(name) for name in names
    )


def _read_adapter(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT)
    if not add_weights(draft, folder, with_tensors=with_tensors):
        add_absent(draft, folder, "adapter_model.safetensors", "the adapter's weights are not beside its configuration")
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _is_inside_deepspeed(draft: Draft) -> bool:
    return draft.must_match != ()


def _add_deepspeed(draft: Draft, folder: Folder, *, with_tensors: bool) -> None:
    """Take the folder that DeepSpeed's `latest` names, or the newest, into the draft; others are left from before."""
    names = deepspeed_folders(folder)
    if not names:
        return
    chosen = chosen_tag(folder, names)
    inner = read_nested(draft, folder, chosen, deepspeed.read, with_tensors=with_tensors)
    copy_layout(draft, inner)
    note_unfollowed_latest(draft, folder, names)
    for name in _others(names, chosen):
        detail = f"{name} is of another save into this folder: `latest` names {chosen}"
        draft.findings.append(finding("shard_orphaned", path=name, detail=detail))


def _others(names: Iterable[str], chosen: str) -> list[str]:
    return [name for name in names if name != chosen and not name.endswith("_universal")]


def chosen_tag(folder: Folder, names: list[str]) -> str:
    """The one of DeepSpeed's folders that its `latest` names; the last one where it names none of them."""
    text = _tag_in_latest(folder)
    return text if text in names else max(names, key=lambda name: (len(name), name))


_LATEST = "latest"


def _tag_in_latest(folder: Folder) -> str | None:
    """None where it is not there or cannot be read."""
    try:
        return folder.read(_LATEST, 4096).decode("utf-8", "replace").strip() if _LATEST in folder.files else None
    except OSError:
        return None


def note_unfollowed_latest(draft: Draft, folder: Folder, names: Collection[str]) -> None:
    """DeepSpeed is asked for no tag here, so it loads what `latest` names, and without that nothing."""
    is_converted = all(name.endswith("_universal") for name in names)
    if _LATEST in folder.blocked or not folder.listed or is_converted:
        return
    path = os.path.join(folder.path, _LATEST)
    if _LATEST not in folder.files:
        detail = f"there is no {_LATEST} beside {max(names)}: DeepSpeed finds no tag to load"
        draft.findings.append(finding("pointer_missing", path=path, detail=detail, severity=Severity.WARNING))
    else:
        tag = _tag_in_latest(folder)
        if tag is None or tag in names:
            return
        gone = "holds nothing of DeepSpeed" if tag in folder.folders else "is not there"
        said = f"names {tag[:100]!r}, which {gone}" if tag else "is empty"
        detail = f"{_LATEST} {said}; here lies {max(names)}"
        draft.findings.append(finding("pointer_dangling", path=path, detail=detail, severity=Severity.WARNING))
    draft.not_resumable_reasons.append(f"DeepSpeed loads the folder that {_LATEST} names: {detail}")


def copy_layout(draft: Draft, inner: Draft) -> None:
    """What the part knows of ranks holds for the whole."""
    draft.world_size, draft.dp, draft.tp, draft.pp = inner.world_size, inner.dp, inner.tp, inner.pp
    draft.must_match = inner.must_match
