"""NeuronX Distributed (AWS Trainium): a folder per tag, with a file of each rank below `model/` and `optim/`.

`checkpoint` is written first and marks the folder as one of its own, `done` last, when every rank has ended; a removal
takes `done` away first. With `use_xser` a rank's file only refers to its tensors, each in a file of its own beside it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from muster_agent.formats import dcp
from muster_agent.formats.base import Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.nested import read_nested, take_folder_findings
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.torch_archive import load
from muster_agent.formats.torch_save import Parts

FORMAT = "neuronx"
BEGUN_NAME, DONE_NAME = "checkpoint", "done"
_STATES = {"model": Role.MODEL, "optim": Role.OPTIMIZER}
_RANKED = re.compile(
    r"dp_rank_(?P<dp>\d{1,6})(?:_ep_rank_(?P<ep>\d{1,4}))?_tp_rank_(?P<tp>\d{1,4})_pp_rank_(?P<pp>\d{1,4})\.pt",
    re.ASCII,
)
_TENSORS = ".tensors"
_INFO = ".info.pt"
"""What says of each tensor in a file of its own which type and shape it has; versions up to 0.6 wrote none."""
_TENSOR_NAME = re.compile(r"tensor_(\d{1,9})\.pt", re.ASCII)
_SIDE_FILES = {"scheduler.pt": {Role.SCHEDULER}, "user_content.pt": None}
_MAX_RANKS = 100_000
_MAX_LISTED = 200

Place = tuple[int, int, int, int]
"""Data-, expert-, tensor- and pipeline-parallel rank."""


def claims(folder: Folder) -> bool:
    """By files of ranks below `model` or `optim`, or by its marks beside such a folder."""
    states = [name for name in _STATES if name in folder.folders]
    if states and {BEGUN_NAME, DONE_NAME} <= folder.files.keys():
        return True
    return any(_RANKED.fullmatch(file) for name in states for file in folder.sub(name).files)


def read(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT, committed=DONE_NAME in folder.files or DONE_NAME in folder.blocked, marker=DONE_NAME)
    places = {name: _places(folder.sub(name).files) if name in folder.folders else {} for name in _STATES}
    spans = _spans(places)
    for name, role in _STATES.items():
        if name not in folder.folders:
            continue
        if dcp.claims(folder.sub(name)):
            read_nested(draft, folder, name, dcp.read_dcp, with_tensors=with_tensors)
        else:
            own_dp = len({place[0] for place in places[name].values()})
            _read_state(draft, folder, name, role, (range(own_dp), *spans[1:]), with_tensors)
    if "model" not in folder.folders and draft.committed:
        detail = "there is no model/ beside the optimizer's state"
        draft.findings.append(finding("shard_missing", path="model", detail=detail))
    _take_layout(draft, spans, has_ranks=any(places.values()))
    draft.step = _take_side_files(draft, folder, with_tensors)
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _places(names: Iterable[str]) -> dict[str, Place]:
    matches = filter(None, map(_RANKED.fullmatch, names))
    return {one[0]: (int(one["dp"]), int(one["ep"] or 0), int(one["tp"]), int(one["pp"])) for one in matches}


def _spans(places: dict[str, dict[str, Place]]) -> tuple[range, range, range, range]:
    """How many ranks each kind of parallelism has, as the highest of all files says."""
    seen = [place for by_name in places.values() for place in by_name.values()]
    dp, ep, tp, pp = (range(max((place[axis] for place in seen), default=-1) + 1) for axis in range(4))
    return dp, ep, tp, pp


def _take_layout(draft: Draft, spans: tuple[range, ...], *, has_ranks: bool) -> None:
    """A file of each data-parallel rank is there only where the optimizer's state is spread over them."""
    if not has_ranks:
        return
    dp, _, draft.tp, draft.pp = map(len, spans)
    draft.dp = dp if dp > 1 else None
    draft.world_size = dp * draft.tp * draft.pp if dp > 1 else None
    draft.must_match = ("tp", "pp", "dp") if dp > 1 else ("tp", "pp")


# -- the files of the ranks --------------------------------------------------------------------------------------------
def _read_state(
    draft: Draft, folder: Folder, name: str, role: Role, spans: tuple[range, ...], with_tensors: bool
) -> None:
    inside, inner = folder.sub(name), Draft(FORMAT)
    places = _places(inside.files)
    parts = Parts(inner, inside, with_tensors)
    for number, file in enumerate(sorted(places)):
        parts.add(file, number, {role})
    for file in itertools.islice(_absent(places, spans), _MAX_LISTED):
        add_absent(inner, inside, file, f"{file} is not there, though files of the other ranks are")
    inner.findings.extend(misplaced_findings(parts.roots))
    for file in sorted(places):
        _take_tensors(inner, inside, file, role, with_tensors)
    if inner.roles is not None and places:
        inner.roles.add(role)
    inner.shards.extend(other_files(inside, {shard.path for shard in inner.shards}))
    take_folder_findings(inner, inside)
    nest(draft, inner, name)


def _absent(places: dict[str, Place], spans: tuple[range, ...]) -> Iterator[str]:
    """The names of the grid's ranks that have no file, written as the others are."""
    if not places:
        return
    has_experts = "_ep_rank_" in next(iter(places))
    known = set(places.values())
    for place in itertools.islice(itertools.product(*spans), _MAX_RANKS):
        if place not in known:
            dp, ep, tp, pp = place
            expert = f"_ep_rank_{ep:02d}" if has_experts else ""
            yield f"dp_rank_{dp:02d}{expert}_tp_rank_{tp:02d}_pp_rank_{pp:02d}.pt"


def _take_tensors(draft: Draft, folder: Folder, file: str, role: Role, with_tensors: bool) -> None:
    """The tensors that lie in files of their own: as many as `.info.pt` says, else none left out below the highest."""
    name = file + _TENSORS
    if name not in folder.folders:
        if file + _INFO in folder.files and folder.listed:
            detail = f"{file} refers to tensors in {name}, which is not there"
            draft.findings.append(finding("shard_missing", path=name, detail=detail))
        return
    inside, inner = folder.sub(name), Draft(FORMAT)
    seen = {int(match[1]): match[0] for match in map(_TENSOR_NAME.fullmatch, inside.files) if match}
    parts = Parts(inner, inside, with_tensors)
    for number, tensor in sorted(seen.items()):
        parts.add(tensor, number, {role})
    for number in sorted(_promised(folder, file, seen) - seen.keys())[:_MAX_LISTED]:
        tensor = f"tensor_{number}.pt"
        add_absent(inner, inside, tensor, f"{tensor} is not there, which {file} refers to")
    inner.findings.extend(misplaced_findings(parts.roots))
    inner.shards.extend(other_files(inside, {shard.path for shard in inner.shards}))
    take_folder_findings(inner, inside)
    nest(draft, inner, name)


def _promised(folder: Folder, file: str, seen: Iterable[int]) -> set[int]:
    told = load(folder, file + _INFO).value if file + _INFO in folder.files else None
    if isinstance(told, dict):
        return {number for number in told if type(number) is int and 0 <= number < _MAX_RANKS}
    return set(range(min(max(seen, default=-1) + 1, _MAX_RANKS)))


def _take_side_files(draft: Draft, folder: Folder, with_tensors: bool) -> int | None:
    """The scheduler, and what the script keeps for itself, which may tell the step."""
    parts = Parts(draft, folder, with_tensors)
    for name, roles in _SIDE_FILES.items():
        if name in folder.files:
            parts.add(name, None, roles)
    draft.findings.extend(misplaced_findings(parts.roots))
    return parts.agreed_step()
