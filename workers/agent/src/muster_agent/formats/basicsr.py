"""BasicSR and what builds on it (Real-ESRGAN, SwinIR, NAFNet): weights in `models/net_g_5000.pth`, and optimizers,
schedulers and the iteration in `training_states/5000.state`, which a restart needs together.
"""

from __future__ import annotations

import re
from collections import defaultdict

from muster_agent.formats.base import Role
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.nested import take_folder_findings
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors import add_absent
from muster_agent.formats.torch_save import Parts

FORMAT = "basicsr"
_MODELS, _STATES = "models", "training_states"
_NET = re.compile(r"(?P<net>net_\w+?)_(?P<save>\d{1,18}|latest)\.pth", re.ASCII)
_STATE = re.compile(r"(?P<save>\d{1,18})\.state", re.ASCII)


def families(folder: Folder) -> list[Family]:
    """Each iteration of which weights or state are there."""
    if _MODELS not in folder.folders or _STATES not in folder.folders:
        return []
    states = {match["save"] for match in filter(None, map(_STATE.fullmatch, folder.sub(_STATES).files))}
    saves = states | _nets(folder).keys()
    own = frozenset({_MODELS, _STATES})
    found = (Family(f"{{{_MODELS},{_STATES}}}/{save}", _step(save), frozenset(), own) for save in sorted(saves))
    return list(found) if states else []


def _step(save: str) -> int | None:
    return int(save) if save.isdecimal() else None


def _nets(folder: Folder) -> dict[str, set[str]]:
    """The names of the networks whose weights are there, by iteration."""
    nets: dict[str, set[str]] = defaultdict(set)
    for match in filter(None, map(_NET.fullmatch, folder.sub(_MODELS).files)):
        nets[match["save"]].add(match["net"])
    return nets


def read_family(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    """The state alone, or one network of several, is no point to resume from; weights alone may have been kept on
    purpose."""
    draft = Draft(FORMAT)
    save, nets = family.pattern.rpartition("/")[2], _nets(folder)
    wanted = set.union(*nets.values()) if nets else {"net_g"}
    has_state = f"{save}.state" in folder.sub(_STATES).files
    names = wanted if has_state else nets[save]
    _read_part(draft, folder, _MODELS, {f"{net}_{save}.pth" for net in names}, with_tensors, {Role.MODEL})
    if has_state:
        _read_part(draft, folder, _STATES, {f"{save}.state"}, with_tensors, None)
    return draft


def _read_part(
    draft: Draft, folder: Folder, part: str, names: set[str], with_tensors: bool, roles: set[Role] | None
) -> None:
    inside, inner = folder.sub(part), Draft(FORMAT)
    parts = Parts(inner, inside, with_tensors)
    for name in sorted(names):
        if name in inside.files:
            parts.add(name, None, roles)
        else:
            add_absent(inner, inside, name, f"{name} is not there, though other iterations have this network")
    draft.step = parts.agreed_step() if draft.step is None else draft.step
    take_folder_findings(inner, Folder(inside.path, inside.root, findings=inside.findings, tree=inside.tree))
    nest(draft, inner, part)
