"""Nanotron: a folder of step N with a safetensors file for each parameter and tensor-parallel rank below `model/`, and
the optimizer, the scheduler and the random states of each rank beside it.

Every name says its rank and how many there are (`pp-rank-0-of-1_tp-rank-3-of-4`), so each missing one is known.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from muster_agent.formats.base import Role, TensorRange
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.nested import read_nested, take_folder_findings
from muster_agent.formats.safetensors import add_absent, add_shard, metadata_entry, other_files, read_json, read_shard
from muster_agent.formats.torch_save import Parts

FORMAT = "nanotron"
_METADATA_NAME = "checkpoint_metadata.json"
_STATES = {"optimizer": Role.OPTIMIZER, "lr_scheduler": Role.SCHEDULER, "random": Role.RNG}
_RANK = re.compile(r"(?P<axis>(?:pp|dp|tp|exp)-(?:rank-)?)(?P<rank>\d{1,6})-of-(?P<count>\d{1,6})", re.ASCII)
_MAX_DEPTH = 16
_MAX_FILES = 100_000
_MAX_LISTED = 200
_OF_ONE_STAGE = frozenset({"pp", "exp"})
"""A parameter lies in one pipeline stage, and an expert's with one group of experts."""


class _Ranked(NamedTuple):
    """What is around the ranks in a name, and each axis as it is written there with its count: `("tp-rank-", 4)`."""

    around: tuple[str, ...]
    axes: tuple[tuple[str, int], ...]

    def name_of(self, ranks: tuple[int, ...]) -> str:
        told = (f"{axis}{rank}-of-{count}" for (axis, count), rank in zip(self.axes, ranks, strict=True))
        return "".join(itertools.chain.from_iterable(zip(self.around, (*told, ""), strict=True)))


def claims(folder: Folder) -> bool:
    if "model" not in folder.folders:
        return False
    names = folder.files.keys() | folder.blocked
    return _METADATA_NAME in names or ("model_config.json" in names and set(_STATES) <= set(folder.folders))


def read(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(FORMAT)
    _take_metadata(draft, folder)
    counts: dict[str, int] = {}
    model = _read_model(folder.sub("model"), with_tensors, counts, _MAX_DEPTH)
    model.tensors = [_named_by_path(tensor) for tensor in model.tensors]
    nest(draft, model, "model")
    for name, role in _STATES.items():
        if name in folder.folders:
            _read_states(draft, folder, name, role, with_tensors, counts)
    draft.tp, draft.pp = counts.get("tp", draft.tp), counts.get("pp")
    degrees = [count for axis in ("pp", "dp", "tp") if (count := counts.get(axis))]
    draft.world_size = math.prod(degrees) if len(degrees) == 3 else None
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _take_metadata(draft: Draft, folder: Folder) -> None:
    if _METADATA_NAME not in folder.files:
        if _METADATA_NAME not in folder.blocked:
            draft.committed = False
            detail = f"there is no {_METADATA_NAME}, which says at which step this was saved"
            draft.findings.append(finding("metadata_missing", path=_METADATA_NAME, detail=detail))
        return
    draft.shards.append(metadata_entry(_METADATA_NAME, folder.files[_METADATA_NAME]))
    document, found = read_json(folder, _METADATA_NAME)
    draft.findings.extend([found] if found else [])
    held = document if isinstance(document, dict) else {}
    metas = held.get("metas")
    step = metas.get("last_train_step") if isinstance(metas, dict) else None
    draft.step = step if type(step) is int and 0 <= step < 1 << 63 else None
    draft.dp, draft.tp = (value if type(value) is int else None for value in map(held.get, ("dp", "tp")))


def _read_model(folder: Folder, with_tensors: bool, counts: dict[str, int], depth: int) -> Draft:
    """The parameters of this folder and of those below it, which are named after the model's modules."""
    draft = Draft(FORMAT)
    names = [name for name in folder.files if name.endswith(".safetensors")][:_MAX_FILES]
    for name in names:
        shard = read_shard(folder, name, with_tensors=with_tensors, rank=_rank_of(name, "tp"))
        add_shard(
            draft,
            shard._replace(entry=msgspec.structs.replace(shard.entry, role=Role.MODEL)),
            with_tensors=with_tensors,
        )
    draft.roles = {Role.MODEL} if names else set()
    _add_absent(draft, folder, names, counts, fixed=_OF_ONE_STAGE)
    for name in folder.folders if depth else ():
        read_nested(
            draft,
            folder,
            name,
            lambda one, tensors: _read_model(one, tensors, counts, depth - 1),
            with_tensors=with_tensors,
        )
    return draft


def _named_by_path(tensor: TensorRange) -> TensorRange:
    """Each file calls its tensor `data`: its name is that of the file without ranks, below the modules' folders."""
    module, _, file = tensor.shard.rpartition("/")
    word = re.sub(r"^model_|(?:_[a-z]+-rank-\d+-of-\d+)*\.safetensors$", "", file)
    return msgspec.structs.replace(tensor, name=f"{module}/{word}".strip("/").replace("/", "."), role=Role.MODEL)


def _read_states(
    draft: Draft, folder: Folder, name: str, role: Role, with_tensors: bool, counts: dict[str, int]
) -> None:
    inside, inner = folder.sub(name), Draft(FORMAT)
    parts = Parts(inner, inside, with_tensors)
    names = [one for one in inside.files if one.endswith(".pt")]
    for index, one in enumerate(sorted(names)):
        parts.add(one, index, {role})
    _add_absent(inner, inside, names, counts)
    inner.shards.extend(other_files(inside, {shard.path for shard in inner.shards}))
    take_folder_findings(inner, inside)
    nest(draft, inner, name)


def _add_absent(
    draft: Draft, folder: Folder, names: Iterable[str], counts: dict[str, int], fixed: frozenset[str] = frozenset()
) -> None:
    """The ranks that left no file where others did; those of the axes `fixed` are as seen. `counts` takes how many
    ranks each axis has."""
    seen: dict[_Ranked, set[tuple[int, ...]]] = defaultdict(set)
    for name in names:
        matches = list(_RANK.finditer(name))
        axes = tuple((match["axis"], int(match["count"])) for match in matches)
        around = tuple(_RANK.sub("\0", name).split("\0"))
        seen[_Ranked(around, axes)].add(tuple(int(match["rank"]) for match in matches))
        counts.update({_word(axis): count for axis, count in axes if count > counts.get(_word(axis), 0)})
    for ranked, ranks in seen.items():
        for absent in itertools.islice(_absent(ranked, ranks, fixed), _MAX_LISTED):
            name = ranked.name_of(absent)
            detail = f"{name} is not there, though the names of others say that there is one"
            add_absent(draft, folder, name, detail, rank=_rank_of(name, "tp"))


def _absent(ranked: _Ranked, ranks: set[tuple[int, ...]], fixed: frozenset[str]) -> Iterator[tuple[int, ...]]:
    columns = list(zip(*ranks, strict=True)) if ranked.axes else []
    choices = [
        sorted(set(column)) if _word(axis) in fixed else range(min(count, _MAX_FILES))
        for (axis, count), column in zip(ranked.axes, columns, strict=True)
    ]
    wanted = itertools.islice(itertools.product(*choices), _MAX_FILES) if choices else iter(())
    return (one for one in wanted if one not in ranks)


def _word(axis: str) -> str:
    return axis.partition("-")[0]


def _rank_of(name: str, axis: str) -> int | None:
    return next((int(match["rank"]) for match in _RANK.finditer(name) if _word(match["axis"]) == axis), None)
