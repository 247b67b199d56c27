"""torchtune: a folder of weights for each epoch (or step), and one `recipe_state` beside them all, written again after
each: the optimizer and where training was. Only the weights that it was saved with can be resumed from. Before 0.5 all
lay in one folder, the epoch at the end of each name: `hf_model_0001_3.pt`, `adapter_3.pt`, `recipe_state.pt`.
"""

from __future__ import annotations

import re
from collections import defaultdict

from muster_agent.formats.base import Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.hf_weights import is_weight_name
from muster_agent.formats.nested import read_nested
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors import add_absent
from muster_agent.formats.safetensors_folder import read_folder as read_weights
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, scalar, tensor_ranges
from muster_agent.formats.torch_save import Parts, take_roles
from muster_agent.formats.torch_state import loaded_step

FORMAT = "torchtune"
_STATE_FOLDER, _STATE_NAME = "recipe_state", "recipe_state.pt"
_SAVE = re.compile(r"(epoch|step)_(\d{1,12})", re.ASCII)


_FLAT = re.compile(r"(?:hf_model_(?P<shard>\d{4})|meta_model|torchtune_model|adapter)_(?P<epoch>\d{1,9})\.pt", re.ASCII)


def families(folder: Folder) -> list[Family]:
    """The newest weights together with the state beside them; older weights are checkpoints by themselves."""
    return [*_flat_families(folder), *_families_of_folders(folder)]


def _flat_families(folder: Folder) -> list[Family]:
    """Every epoch's files, the newest one's with the state."""
    epochs: dict[int, set[str]] = defaultdict(set)
    for match in filter(None, map(_FLAT.fullmatch, folder.files)):
        epochs[int(match["epoch"])].add(match[0])
    if epochs and _STATE_NAME in folder.files:
        epochs[max(epochs)].add(_STATE_NAME)
    is_own = _STATE_NAME in folder.files or len(folder.files) > 1
    return [Family(f"{{part}}_{epoch}.pt", epoch, frozenset(names)) for epoch, names in epochs.items() if is_own]


def _families_of_folders(folder: Folder) -> list[Family]:
    if _STATE_FOLDER not in folder.folders:
        return []
    saves = [match for match in map(_SAVE.fullmatch, folder.folders) if match]
    if not saves or _STATE_NAME not in folder.sub(_STATE_FOLDER).files:
        return []
    newest = max(saves, key=lambda match: int(match[2]))
    if not any(map(is_weight_name, folder.sub(newest[0]).files)):
        return []
    own = frozenset({newest[0], _STATE_FOLDER})
    return [Family(f"{{{newest[0]},{_STATE_FOLDER}}}", int(newest[2]), frozenset(), own)]


def read_family(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    if family.files:
        return _read_flat(folder, family, with_tensors)
    draft = Draft(FORMAT)
    save = next(name for name in family.folders if name != _STATE_FOLDER)
    read_nested(draft, folder, save, read_weights, with_tensors=with_tensors)
    loaded = _add_state(draft, folder, with_tensors)
    if loaded is None or loaded.value is None:
        return draft
    draft.step = loaded_step(loaded)
    kind, _, number = save.partition("_")
    if kind == "epoch":
        _check_epoch(draft, loaded, save, int(number))
    draft.number_is_no_step = kind == "epoch" and draft.step is not None
    return draft


def _check_epoch(draft: Draft, loaded: Loaded, save: str, epoch: int) -> None:
    """Whether the state is of the epoch, counted from 0, that the weights end."""
    epochs = scalar(loaded.value, "epochs_run")
    if epochs is not None and epochs != epoch + 1:
        detail = f"{_STATE_NAME} was saved when {epochs} epochs had been run, and {save} ends epoch {epoch + 1}"
        found = finding("step_mismatch", path=loaded.name, detail=detail, cure=_CURE)
        draft.findings.append(found)
        draft.not_resumable_reasons.append(f"the optimizer state beside it is of another epoch: {detail}")


def _read_flat(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT)
    parts = Parts(draft, folder, with_tensors)
    for name in sorted(family.files - {_STATE_NAME}):
        parts.add(name, None, {Role.MODEL})
    _add_absent_shards(draft, folder, family)
    if _STATE_NAME in family.files:
        loaded = add_torch_shard(draft, folder, _STATE_NAME, values=True)
        if loaded is not None and loaded.value is not None:
            take_roles(draft, loaded, {Role.OPTIMIZER, Role.SCHEDULER})
            draft.step = loaded_step(loaded)
            _check_epoch(draft, loaded, family.pattern, family.step or 0)
    return draft


def _add_absent_shards(draft: Draft, folder: Folder, family: Family) -> None:
    """Numbers of shards that other epochs have too; the highest of a single epoch cannot be told."""
    epochs = [match for match in map(_FLAT.fullmatch, folder.files) if match and match["shard"]]
    own = {match["shard"] for match in epochs if match[0] in family.files}
    last = max((int(match["shard"]) for match in epochs), default=0) if own else 0
    for shard in (f"{number:04d}" for number in range(1, last + 1)):
        if shard not in own:
            name = f"hf_model_{shard}_{family.step}.pt"
            add_absent(draft, folder, name, f"{name} is not there, though other epochs have this shard")


_CURE = "Resume from the weights that the state was saved with, or start the optimizer anew."


def _add_state(draft: Draft, folder: Folder, with_tensors: bool) -> Loaded | None:
    """The state is small to read, however large it is: its values lie in a directory of its own."""
    inside, path = folder.sub(_STATE_FOLDER), f"{_STATE_FOLDER}/{_STATE_NAME}"
    own = Folder(folder.path, folder.root, files={path: inside.files[_STATE_NAME]}, tree=folder.tree)
    loaded = add_torch_shard(draft, own, path, values=True)
    if loaded is not None:
        take_roles(draft, loaded, {Role.OPTIMIZER, Role.SCHEDULER})
        if with_tensors:
            draft.tensors.extend(tensor_ranges(loaded, path))
    return loaded
