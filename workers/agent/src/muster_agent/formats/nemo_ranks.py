"""NeMo 1: a folder for each model-parallel rank, each with a Lightning file of every step, under the same name.

So one step lies over several folders: `checkpoints/{mp_rank}/megatron_gpt--step=99.ckpt`.
"""

from __future__ import annotations

import os
import re
from collections import Counter

from muster_agent.formats.base import Role, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, reach
from muster_agent.formats.megatron_common import UNFINISHED_SUFFIX, unfinished_finding
from muster_agent.formats.names import step_of_file
from muster_agent.formats.reader import Family
from muster_agent.formats.torch_archive import add_torch_shard, scalar, tensor_ranges

FORMAT = "nemo"
PLACEHOLDER = "{mp_rank}"
_RANK_FOLDER = re.compile(r"mp_rank_(?P<m>\d{2,4})|tp_rank_(?P<t>\d{2,4})(?:_pp_rank_(?P<p>\d{2,4}))?", re.ASCII)
_MAX_LISTED = 100


def families(folder: Folder) -> list[Family]:
    """The steps whose files lie in the rank folders of `folder`, by the names of the files."""
    ranks = frozenset(filter(_RANK_FOLDER.fullmatch, folder.folders))
    names = sorted({file for rank in ranks for file in folder.sub(rank).files if file.endswith(".ckpt")})
    return [Family(f"{PLACEHOLDER}/{name}", step_of_file(name), folders=ranks) for name in names]


def read(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    """Judge one step: each rank of the grid that the folders' names span must have its file."""
    draft = Draft(FORMAT, roles=set(), must_match=("tp", "pp"))
    name = family.pattern.partition("/")[2]
    ranks = _expected(family.folders)
    draft.tp, draft.pp = (1 + max(place[axis] for place in ranks) for axis in range(2))
    steps = {
        rank: _take(draft, folder, f"{rank}/{name}", number, with_tensors) for number, rank in enumerate(ranks.values())
    }
    _check_steps(draft, {f"{rank}/{name}": step for rank, step in steps.items() if step is not None})
    marker = name.removesuffix(".ckpt") + UNFINISHED_SUFFIX
    if marker in folder.files:
        draft.committed = False
        draft.findings.append(unfinished_finding(os.path.join(folder.path, marker)))
    return draft


def _expected(names: frozenset[str]) -> dict[tuple[int, int], str]:
    """The folders by (tp, pp), those that are not there too, unless the names are too strange to be a grid."""
    here = {_place(name): name for name in sorted(names)}
    tp, pp = (1 + max(place[axis] for place in here) for axis in range(2))
    if tp * pp > len(here) + _MAX_LISTED:
        return here
    like = next(iter(here.values()))
    return {(t, p): here.get((t, p)) or _name(like, t, p) for p in range(pp) for t in range(tp)}


def _place(name: str) -> tuple[int, int]:
    match = _RANK_FOLDER.fullmatch(name)
    numbers = match.groupdict() if match else {}
    return int(numbers.get("m") or numbers.get("t") or 0), int(numbers.get("p") or 0)


def _name(like: str, tp: int, pp: int) -> str:
    """The name of another rank's folder, with as many digits as `like` has."""
    numbers = iter((tp, pp))
    return re.sub(r"\d+", lambda match: f"{next(numbers):0{len(match.group())}d}", like)


def _take(draft: Draft, folder: Folder, path: str, number: int, with_tensors: bool) -> int | None:
    """Take one rank's file in; the step that it holds."""
    reach(folder, path)
    loaded = add_torch_shard(draft, folder, path, rank=number, role=Role.MODEL, values=True)
    if loaded is None or not isinstance(loaded.value, dict):
        return None
    value = loaded.value
    held = {
        Role.MODEL: "state_dict" in value,
        Role.OPTIMIZER: bool(value.get("optimizer_states")),
        Role.SCHEDULER: bool(value.get("lr_schedulers")),
        Role.RNG: "rng_state" in value,
        Role.DATALOADER: "global_step" in value,
    }
    draft.roles = (draft.roles or set()) | {role for role, is_held in held.items() if is_held}
    if with_tensors:
        draft.tensors.extend(tensor_ranges(loaded, path))
    return scalar(value, "global_step")


def _check_steps(draft: Draft, steps: dict[str, int]) -> None:
    """The name's step is kept, since it counts the step before it is finished; all ranks must hold the same one."""
    common = Counter(steps.values()).most_common(1)
    for path, step in steps.items():
        if step != common[0][0]:
            detail = f"{path} holds step {step}, most ranks step {common[0][0]}: two saves are mixed"
            draft.findings.append(finding("step_mismatch", path=path, detail=detail, severity=Severity.DAMAGE))
