"""Megatron's legacy `torch` layout: a folder `mp_rank_TT[_PPP][_EEE]` for each model-parallel rank.

There is no marker but the tracker beside the iterations. Which folders there must be is known from the arguments saved
in any of them; where none can be read, from the grid that the names span.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec

from muster_agent.formats import node_local
from muster_agent.formats.base import Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.megatron_common import (
    Layout,
    folder_name,
    is_iteration_name,
    layout_of,
    take_state,
)
from muster_agent.formats.megatron_loader import take_loader_files
from muster_agent.formats.nested import take_folder_findings
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.safetensors import other_files
from muster_agent.formats.torch_archive import add_torch_shard, scalar, tensor_ranges

FORMAT = "megatron_legacy"
_RANK_NAME = re.compile(r"mp_rank_(\d{2,6})(?:_(\d{3,6}))?(?:_(\d{3,6}))?", re.ASCII)
_STATE_NAMES = ("model_optim_rng.pt", "model_rng.pt")
_OPTIMIZER_NAME = "distrib_optim.pt"
_OLD_OPTIMIZER_NAME = "optim.pt"
_LAYER_WISE = re.compile(r"layer_wise_optimizer_(\d{1,6})\.pt", re.ASCII)
_OWN_NAMES = frozenset({*_STATE_NAMES, _OPTIMIZER_NAME, _OLD_OPTIMIZER_NAME})
_MAX_LISTED = 100
_MAX_RANKS = 1 << 17
"""Model-parallel ranks that are believed in."""
Place = tuple[int, ...]
"""(tp, pp, ep) as far as the folder's name has them."""


class _Rank(NamedTuple):
    """One rank's folder as read: its name, its draft, and what its state file holds."""

    name: str
    place: Place
    draft: Draft
    value: Any
    roots: dict[str, str]
    """The folder inside each file's zip, by the file's path."""


def claims(folder: Folder) -> bool:
    ranks = [name for name in folder.folders if _RANK_NAME.fullmatch(name)]
    return bool(ranks) and (
        is_iteration_name(folder_name(folder))
        or any(not _OWN_NAMES.isdisjoint(folder.sub(name).files) for name in ranks)
    )


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge the folder of one iteration."""
    draft = Draft(FORMAT, roles=set(), must_match=("tp", "pp"))
    ranks = [_read_rank(folder, name, with_tensors) for name in sorted(filter(_RANK_NAME.fullmatch, folder.folders))]
    known = next((rank.value for rank in ranks if isinstance(rank.value, dict)), None)
    take_state(draft, folder, known)
    layout = layout_of(known)
    expected = _expected(layout, {rank.place for rank in ranks})
    _take_ranks(draft, folder, ranks, expected)
    _take_strangers(draft, folder, ranks, expected)
    own = [rank for rank in ranks if rank.place in expected]
    _check_optimizers(draft, folder, own, layout.dp)
    _check_agreement(draft, own, layout)
    draft.findings.extend(misplaced_findings({path: root for rank in ranks for path, root in rank.roots.items()}))
    take_loader_files(draft, folder)
    draft.shards.extend(other_files(folder, [shard.path for shard in draft.shards]))
    draft.shards = list({shard.path: shard for shard in draft.shards}.values())
    return draft


# -- one rank ----------------------------------------------------------------------------------------------------------
def _read_rank(folder: Folder, name: str, with_tensors: bool) -> _Rank:
    inside = folder.sub(name)
    draft = Draft(FORMAT, roles=set())
    value = None
    roots: dict[str, str] = {}
    for file in sorted(inside.files):
        role = Role.MODEL if file in _STATE_NAMES else Role.OPTIMIZER
        if file in _OWN_NAMES or _LAYER_WISE.fullmatch(file):
            loaded = add_torch_shard(draft, inside, file, role=role, values=with_tensors or file in _STATE_NAMES)
            value = loaded.value if loaded and file in _STATE_NAMES else value
            roots.update({f"{name}/{file}": loaded.file.root} if loaded else {})
            ranges = tensor_ranges(loaded, file) if loaded and with_tensors else []
            own = role is Role.OPTIMIZER
            draft.tensors.extend(msgspec.structs.replace(one, role=role) if own else one for one in ranges)
            draft.roles = (draft.roles or set()) | {role}
    if isinstance(value, dict) and value.get("optimizer") and not _is_distributed(value):
        draft.roles = (draft.roles or set()) | {Role.OPTIMIZER}
    draft.shards.extend(other_files(inside, [shard.path for shard in draft.shards]))
    take_folder_findings(draft, inside)
    return _Rank(name, _place(name), draft, value, roots)


def _place(name: str) -> Place:
    match = _RANK_NAME.fullmatch(name)
    return tuple(int(text) for text in match.groups() if text is not None) if match else ()


def _is_distributed(value: dict[Any, Any]) -> bool:
    """Whether the optimizer entry of a state file only holds parameter groups: its state is in another file."""
    return _flag(value, "use_distributed_optimizer")


def _flag(value: Any, name: str) -> bool:
    arguments = value.get("args") if isinstance(value, dict) else None
    state = getattr(arguments, "state", None)
    return isinstance(state, dict) and state.get(name) is True


# -- the grid ----------------------------------------------------------------------------------------------------------
def _expected(layout: Layout, seen: set[Place]) -> dict[Place, str]:
    """The folders that there must be, by place, with the names that Megatron gives them."""
    if layout.tp and layout.pp:
        degrees = [layout.tp, *([layout.pp] if layout.pp > 1 else ()), *([layout.ep] if (layout.ep or 1) > 1 else ())]
        told = _grid(degrees, _MAX_RANKS)
        if seen & told.keys():
            return told
    width = Counter(map(len, seen)).most_common(1)[0][0]
    own = {place for place in seen if len(place) == width}
    spans = [1 + max(place[axis] for place in own) for axis in range(width)]
    return _grid(spans, 4 * len(own) + _MAX_LISTED) or {place: _name(place) for place in own}


def _grid(degrees: Sequence[int], limit: int) -> dict[Place, str]:
    """All places of a grid; none where there would be more than `limit`, which no names here make believable."""
    if math.prod(degrees) > limit:
        return {}
    return {place: _name(place) for place in product(*map(range, degrees))}


def _name(place: Place) -> str:
    return "mp_rank_" + "_".join(f"{one:0{3 if axis else 2}d}" for axis, one in enumerate(place))


def _take_ranks(draft: Draft, folder: Folder, ranks: list[_Rank], expected: dict[Place, str]) -> None:
    by_place = {rank.place: rank for rank in ranks}
    numbers = {place: number for number, place in enumerate(sorted(expected, key=lambda place: place[::-1]))}
    for place in filter(by_place.__contains__, expected):
        inner = by_place[place].draft
        inner.shards = [msgspec.structs.replace(shard, rank=numbers[place]) for shard in inner.shards]
        nest(draft, inner, by_place[place].name)
    lost = {
        place: name
        for place, name in expected.items()
        if name not in folder.blocked and (place not in by_place or _lacks_state(folder.sub(by_place[place].name)))
    }
    for place, name in expected.items():
        if name in folder.blocked:
            path = f"{name}/{_STATE_NAMES[0]}"
            draft.shards.append(ShardEntry(path=path, size_bytes=None, rank=numbers[place], role=Role.MODEL))
    here, away = ({numbers[place] for place in places} for places in (expected.keys() - lost.keys(), lost))
    elsewhere = node_local.looks_node_local(here, away)
    for place, name in list(lost.items())[:_MAX_LISTED]:
        path = f"{by_place[place].name if place in by_place else name}/{_STATE_NAMES[0]}"
        draft.shards.append(ShardEntry(path=path, size_bytes=None, rank=numbers[place], role=Role.MODEL))
        detail = f"{len(lost)} of {len(expected)} model-parallel ranks have no state here, {path} is not there"
        detail += node_local.said(here) if elsewhere else ""
        cure = node_local.CURE if elsewhere else None
        draft.findings.append(finding("shard_missing", path=path, detail=detail, cure=cure))


def _lacks_state(inside: Folder) -> bool:
    names = inside.files.keys() | inside.blocked
    return inside.listed and names.isdisjoint(_STATE_NAMES)


def _take_strangers(draft: Draft, folder: Folder, ranks: list[_Rank], expected: dict[Place, str]) -> None:
    """Folders outside the grid: optimizers of data-parallel ranks, as older versions wrote them, or another save's."""
    width = max(map(len, expected), default=0)
    for rank in ranks:
        if rank.place in expected:
            continue
        files = folder.sub(rank.name).files
        if len(rank.place) == width + 1 and _OLD_OPTIMIZER_NAME in files and rank.place[:width] in expected:
            nest(draft, rank.draft, rank.name)
            continue
        detail = f"{rank.name} is not one of the {len(expected)} model-parallel ranks that saved"
        draft.findings.append(finding("shard_orphaned", path=rank.name, detail=detail))


# -- what ranks must have in common ------------------------------------------------------------------------------------
def _check_optimizers(draft: Draft, folder: Folder, ranks: list[_Rank], dp: int | None) -> None:
    """Optimizer state in files of its own is there for every model-parallel rank, or for none."""
    names = {rank.name: folder.sub(rank.name).files.keys() | folder.sub(rank.name).blocked for rank in ranks}
    wanted = {_OPTIMIZER_NAME} if any(_OPTIMIZER_NAME in own for own in names.values()) else set()
    numbers = {int(match.group(1)) for own in names.values() for match in map(_LAYER_WISE.fullmatch, own) if match}
    if numbers:
        draft.must_match = (*draft.must_match, "dp")
        count = dp if dp is not None and dp <= len(numbers) + _MAX_LISTED else max(numbers) + 1
        wanted |= {f"layer_wise_optimizer_{number}.pt" for number in range(min(count, len(numbers) + _MAX_LISTED))}
    lost = [f"{rank.name}/{name}" for rank in ranks for name in sorted(wanted - names[rank.name])]
    for path in lost[:_MAX_LISTED]:
        draft.shards.append(ShardEntry(path=path, size_bytes=None, role=Role.OPTIMIZER))
        detail = f"other ranks saved their optimizer state in such a file; {path} is not there"
        draft.findings.append(finding("shard_missing", path=path, detail=detail))


def _check_agreement(draft: Draft, ranks: list[_Rank], layout: Layout) -> None:
    """All ranks must have saved the same iteration, each into the folder of its own name."""
    steps = {rank.name: step for rank in ranks if (step := scalar(rank.value, "iteration")) is not None}
    common = Counter(steps.values()).most_common(1)
    for name, step in steps.items():
        if step != common[0][0]:
            detail = f"{name} holds step {step}, most ranks step {common[0][0]}: two saves are mixed"
            damage = Severity.DAMAGE
            draft.findings.append(
                finding("step_mismatch", path=f"{name}/{_STATE_NAMES[0]}", detail=detail, severity=damage)
            )
    savers = {rank.name: saver for rank in ranks if (saver := _saver(rank.value)) is not None}
    if not layout.tp or len(set(savers.values())) < len(ranks):
        return
    for rank in ranks:
        if savers[rank.name] % layout.tp != rank.place[0]:
            detail = f"{rank.name} holds what rank {savers[rank.name]} saved, which is of another tensor-parallel rank"
            draft.findings.append(finding("world_size_mismatch", path=f"{rank.name}/{_STATE_NAMES[0]}", detail=detail))


def _saver(value: Any) -> int | None:
    """The global rank of the process that saved. Converters write all folders from one process, with one rank."""
    return scalar(value.get("args"), "rank") if isinstance(value, dict) else None
