"""torchtune: a folder of weights for each epoch (or step), and one `recipe_state` beside them all, written again after
each: the optimizer and where training was. Only the weights that it was saved with can be resumed from.
"""

from __future__ import annotations

import re

from muster_agent.formats.base import Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.hf_weights import is_weight_name
from muster_agent.formats.nested import read_nested
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors_folder import read_folder as read_weights
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, scalar, tensor_ranges
from muster_agent.formats.torch_save import take_roles
from muster_agent.formats.torch_state import loaded_step

FORMAT = "torchtune"
_STATE_FOLDER, _STATE_NAME = "recipe_state", "recipe_state.pt"
_SAVE = re.compile(r"(epoch|step)_(\d{1,12})", re.ASCII)


def families(folder: Folder) -> list[Family]:
    """The newest weights together with the state beside them; older weights are checkpoints by themselves."""
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
    draft = Draft(FORMAT)
    save = next(name for name in family.folders if name != _STATE_FOLDER)
    read_nested(draft, folder, save, read_weights, with_tensors=with_tensors)
    loaded = _add_state(draft, folder, with_tensors)
    if loaded is None or loaded.value is None:
        return draft
    draft.step = loaded_step(loaded)
    kind, _, number = save.partition("_")
    epochs = scalar(loaded.value, "epochs_run")
    if kind == "epoch" and epochs is not None and epochs != int(number) + 1:
        detail = f"{_STATE_NAME} was saved when {epochs} epochs had been run, and {save} ends epoch {int(number) + 1}"
        found = finding("step_mismatch", path=loaded.name, detail=detail, cure=_CURE)
        draft.findings.append(found)
        draft.not_resumable_reasons.append(f"the optimizer state beside it is of another epoch: {detail}")
    draft.number_is_no_step = kind == "epoch" and draft.step is not None
    return draft


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
