"""fairseq2: a folder per step, and in it a file of each rank for the trainer, the data reader, model and optimizer.

All ranks write below `step_N.tmp`, which is renamed when the last has ended. Later versions keep the model as
`model/pp_00/tp_00/sdp_00.pt`, earlier ones as `model.pt`, or as `model.pt/shard.00.pt` where it is sharded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from muster_agent.formats.base import Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import is_temporary
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.torch_save import Parts

FORMAT = "fairseq2"
_RANK = re.compile(r"(?:trainer/(?:rank|state)|data_reader/(?:dp|state|rank))_(\d{1,6})\.pt", re.ASCII)
_PIECES = (
    re.compile(r"(?P<part>model|optimizer)/pp_(?P<pp>\d{1,4})/tp_(?P<tp>\d{1,4})/sdp_(?P<sdp>\d{1,6})\.pt", re.ASCII),
    re.compile(r"(?P<part>model|optimizer)(?:\.(?P<tp>\d{1,4}))?\.pt(?:/shard\.(?P<sdp>\d{1,6})\.pt)?", re.ASCII),
)
_LIKELY = re.compile(r"(?:model|optimizer)(?:\.\d{1,4})?\.pt", re.ASCII)
_ROLES = {"model": Role.MODEL, "optimizer": Role.OPTIMIZER, "trainer": Role.RNG, "data_reader": Role.DATALOADER}
_OWN_FOLDERS = frozenset({"trainer", "data_reader", "model", "optimizer"})
_MAX_DEPTH = 3
_MAX_ABSENT = 200
_MAX_RANKS = 100_000

Grid = tuple[int, int, int]
"""Pipeline stage, tensor-parallel rank, rank among those that share the parameters."""


def claims(folder: Folder) -> bool:
    """By the trainer's files of ranks beside a model or an optimizer, or by the model's own folders of ranks."""
    if "trainer" in folder.folders:
        has_ranks = any(_RANK.fullmatch(f"trainer/{name}") for name in folder.sub("trainer").files)
        beside = {*folder.folders, *folder.files}
        return has_ranks and any(name in ("model", "optimizer") or _LIKELY.fullmatch(name) for name in beside)
    return "model" in folder.folders and any(
        re.fullmatch(r"pp_\d{1,4}", name)
        and any(one.startswith("tp_") for one in folder.sub("model").sub(name).folders)
        for name in folder.sub("model").folders
    )


def read(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT)
    for name in folder.folders:
        if name in _OWN_FOLDERS or _LIKELY.fullmatch(name):
            _take_below(draft, folder, folder.sub(name), name, _MAX_DEPTH)
    parts = Parts(draft, folder, with_tensors)
    ranks = {part: _ranks(folder, part) for part in ("trainer", "data_reader")}
    grids = {part: _grid(folder, part) for part in ("model", "optimizer")}
    for part, by_rank in ranks.items():
        for rank, name in sorted(by_rank.items()):
            parts.add(name, rank, {_ROLES[part]})
    for part, by_place in grids.items():
        for number, (_, name) in enumerate(sorted(by_place.items())):
            parts.add(name, number, {_ROLES[part]})
    _check_grids(draft, folder, grids, is_training=bool(ranks["trainer"]))
    _check_ranks(draft, folder, ranks, least=len(grids["model"]))
    draft.findings.extend(misplaced_findings(parts.roots))
    draft.step = parts.agreed_step()
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _take_below(draft: Draft, folder: Folder, inside: Folder, at: str, depth: int) -> None:
    """Take the files of a sub-folder into the folder's own, with their paths."""
    draft.findings.extend(finding(one.code, path=f"{at}/{one.path}", detail=one.detail) for one in inside.findings)
    folder.files.update({f"{at}/{name}": seen for name, seen in inside.files.items() if not is_temporary(name)})
    folder.blocked.update(f"{at}/{name}" for name in inside.blocked)
    for name in inside.folders if depth else ():
        _take_below(draft, folder, inside.sub(name), f"{at}/{name}", depth - 1)


def _ranks(folder: Folder, part: str) -> dict[int, str]:
    names = (name for name in folder.files if name.startswith(f"{part}/"))
    return {int(match[1]): match[0] for match in map(_RANK.fullmatch, names) if match}


def _grid(folder: Folder, part: str) -> dict[Grid, str]:
    found = {}
    for match in _matches(folder.files):
        if match["part"] == part:
            numbers = match.groupdict()
            place = (int(numbers.get("pp") or 0), int(numbers.get("tp") or 0), int(numbers.get("sdp") or 0))
            found[place] = match[0]
    return found


def _matches(names: Iterable[str]) -> Iterator[re.Match[str]]:
    for name in names:
        match = next((found for one in _PIECES if (found := one.fullmatch(name))), None)
        if match:
            yield match


# -- what must be there ------------------------------------------------------------------------------------------------
def _check_grids(draft: Draft, folder: Folder, grids: dict[str, dict[Grid, str]], *, is_training: bool) -> None:
    """Every place of the grid that the highest numbers span, in the model and, where training was saved, in the
    optimizer too."""
    places = {place for by_place in grids.values() for place in by_place}
    if not places:
        return
    spans = [range(max(place[axis] for place in places) + 1) for axis in range(3)]
    draft.pp, draft.tp = len(spans[0]), len(spans[1])
    wanted = itertools.islice(itertools.product(*spans), _MAX_RANKS)
    expected: list[Grid] = [(pp, tp, sdp) for pp, tp, sdp in wanted]
    for part, by_place in grids.items():
        if not by_place and not (is_training or part == "model"):
            continue
        template = next(iter(by_place.items()), None) or next(iter(next(filter(None, grids.values())).items()))
        lost = [place for place in expected if place not in by_place]
        for place in lost[:_MAX_ABSENT]:
            name = _name_like(template[1], part, place)
            add_absent(draft, folder, name, f"{name} is not there, though files of the other ranks are")


def _name_like(name: str, part: str, place: Grid) -> str:
    """The name of another part or place, written as `name` is."""
    new = part + name.removeprefix("model").removeprefix("optimizer")
    for word, number in zip(("pp_", "tp_", "sdp_"), place, strict=True):
        new = re.sub(rf"(?<=/){word}\d+", f"{word}{number:02d}", new)
    new = re.sub(r"^(\w+\.)\d+(?=\.pt)", rf"\g<1>{place[1]:02d}", new)
    return re.sub(r"(?<=shard\.)\d+", f"{place[2]:02d}", new)


def _check_ranks(draft: Draft, folder: Folder, ranks: dict[str, dict[int, str]], least: int) -> None:
    """No rank left out below the highest, and as many of them as share the model."""
    for part, by_rank in ranks.items():
        if not by_rank:
            continue
        count = max(*by_rank, least - 1 if part == "trainer" else 0, 0) + 1
        if part == "trainer":
            draft.world_size, draft.must_match = count, ("world_size",)
        else:
            draft.dp = count
        known = by_rank[min(by_rank)]
        for rank in [rank for rank in range(count) if rank not in by_rank][:_MAX_ABSENT]:
            width = len(re.findall(r"\d+", known)[-1])
            name = re.sub(r"\d+(?=\.pt$)", f"{rank:0{width}d}", known)
            add_absent(draft, folder, name, f"rank {rank} of {count} has no {name}", rank=rank)
