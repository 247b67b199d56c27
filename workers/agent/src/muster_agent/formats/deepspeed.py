"""DeepSpeed: one folder per tag, with files per rank whose number follows from what one of them says.

There is no commit marker. `latest`, beside the folder, is rewritten as soon as rank 0 is done, before the others are:
only the files tell whether a save ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from muster_agent.formats.base import Finding, Role, Severity, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.deepspeed_facts import Facts, facts_of, is_foreign
from muster_agent.formats.deepspeed_names import Kind, Part, Parts, expert_name, model_name, part_of, zero_name
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import FileSeen, Folder
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.spread import spread
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, load, tensor_ranges
from muster_agent.formats.torch_quick import roots_of_whole

FORMAT = "deepspeed"
OFFLOAD_FOLDER = "offloaded_tensors"
_OFFLOAD_RANK = re.compile(r"rank(\d{1,6})", re.ASCII)
_MODELS_READ = 2
_STAGES_READ = 16
"""Of pipelines: each stage's file names its own layers."""
_FULL_LOOKS = 3
"""Of a scan: files whose whole directory is looked at."""
_MAX_RANKS = 100_000
_MAX_LISTED = 200
"""Findings of one kind per checkpoint; more would say the same."""
_NO_RNG = "Keep it in the client state of the save if training must go on bit for bit; else nothing need be done."


class Grid(NamedTuple):
    """How many data-parallel and model-parallel ranks saved, and how many tensor-parallel ones among the latter: 0
    where that is not told. `is_zero`: each rank keeps a part of the optimizer's state in a file of its own."""

    dp: int
    mp: int
    tp: int
    is_zero: bool

    def rank_of(self, part: Part) -> int | None:
        """The process that saved a file of ZeRO: processes are counted by stage, then data, then tensor rank."""
        if part.dp < 0:
            return None
        tensors = self.tp or self.mp
        if not part.mp:  # nearly every file of a scan
            return part.dp * tensors
        stage, tensor = divmod(part.mp, tensors) if tensors else (0, part.mp)
        return (stage * self.dp + part.dp) * tensors + tensor


def claims(folder: Folder) -> bool:
    return any(part_of(name) is not None for name in folder.files.keys() | folder.blocked)


def read(folder: Folder, with_tensors: bool) -> Draft:
    """Judge a tag's folder: every file that the ranks of the save must have left, each whole, none under another's
    name."""
    draft = Draft(FORMAT)
    parts = Parts(folder.files.keys() | folder.blocked)
    loaded = _read_models(folder, parts)
    facts = facts_of(loaded.values())
    grid = _grid(parts, facts)
    _take_files(draft, folder, parts, grid, _expected(parts, facts, grid), loaded, with_tensors=with_tensors)
    _take_offloaded(draft, folder, facts)
    draft.step_source = next((name for name, one in loaded.items() if one.value is not None), "")
    draft.findings.extend(
        _foreign(name) for name, one in loaded.items() if one.value is not None and is_foreign(one.value)
    )
    _take_layout(draft, facts, grid, folder.path)
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _foreign(name: str) -> Finding:
    detail = f"{name} can be read, but holds nothing that DeepSpeed writes: neither state nor the ranks of the save"
    return finding("metadata_unreadable", path=name, detail=detail)


# -- what one file says of all -----------------------------------------------------------------------------------------
def _read_models(folder: Folder, parts: Parts) -> dict[str, Loaded]:
    """Files of the model with what is in them: of few ranks, since all say the same; of a pipeline's every stage. An
    optimizer's file only where no file of the model can be read."""
    models = [*parts.by_kind[Kind.MODEL], *parts.by_kind[Kind.ZERO_MODEL]]
    is_pipeline = bool(parts.by_kind[Kind.LAYER])
    read: dict[str, Loaded] = {}
    for part in models[: _STAGES_READ if is_pipeline else _MODELS_READ]:
        if part.name in folder.files:
            read[part.name] = load(folder, part.name)
            if read[part.name].value is not None and not is_pipeline:
                break
    for part in parts.by_kind[Kind.OPTIM][:1]:
        if part.name in folder.files and all(one.value is None for one in read.values()):
            read[part.name] = load(folder, part.name)
    return read


def _grid(parts: Parts, facts: Facts) -> Grid:
    """Counts that a file tells, else those that the names allow."""
    models = max(parts.highest(kind, "mp") for kind in (Kind.MODEL, Kind.ZERO_MODEL, Kind.OPTIM)) + 1
    partitions = max(parts.highest(kind, "dp") for kind in (Kind.ZERO_MODEL, Kind.OPTIM)) + 1
    is_zero = bool(parts.by_kind[Kind.OPTIM] or parts.by_kind[Kind.ZERO_MODEL]) or facts.is_partitioned
    return Grid(min(facts.dp or partitions, _MAX_RANKS), min(facts.mp or models, _MAX_RANKS), facts.tp or 0, is_zero)


def _take_layout(draft: Draft, facts: Facts, grid: Grid, path: str) -> None:
    draft.step = facts.step
    draft.dp, draft.tp, draft.pp = grid.dp or None, facts.tp, facts.pp
    if grid.mp == 1:
        draft.tp, draft.pp = 1, 1
    draft.world_size = grid.dp * grid.mp or None
    of_model = ("tp", "pp") if draft.tp and draft.pp else ("world_size",) if grid.is_zero else ()
    draft.must_match = ("dp", *of_model) if grid.is_zero else of_model
    if draft.roles is None:
        return
    draft.roles |= facts.roles
    if not facts.roles & {Role.RNG, Role.DATALOADER}:
        # No part of the format holds them, so that they are not there is no fault of this checkpoint.
        draft.roles |= {Role.RNG, Role.DATALOADER}
        detail = "DeepSpeed itself saves neither random-number nor data-loader state"
        draft.findings.append(finding("rng_missing", path=path, detail=detail, severity=Severity.NOTE, cure=_NO_RNG))


# -- the files that must be there --------------------------------------------------------------------------------------
def _expected(parts: Parts, facts: Facts, grid: Grid) -> dict[str, Part]:
    """Every file that the save must have left, by name."""
    names: list[str] = []
    dp, mp = (grid.dp, grid.mp) if grid.dp * grid.mp <= _MAX_RANKS else (0, 0)
    if parts.by_kind[Kind.ZERO_MODEL] or (facts.stage == 3 and not parts.by_kind[Kind.MODEL]):
        names += [zero_name(Kind.ZERO_MODEL, rank, one, "") for one in range(mp) for rank in range(dp)]
    else:
        names += [model_name(one) for one in range(mp)]
    if grid.is_zero:
        style = parts.style()
        names += [zero_name(Kind.OPTIM, rank, one, style) for one in range(mp) for rank in range(dp)]
    names += _expected_layers(parts, facts)
    names += _expected_experts(parts, facts)
    return {name: part for name in names if (part := parts.by_name.get(name) or part_of(name)) is not None}


def _expected_layers(parts: Parts, facts: Facts) -> Iterator[str]:
    """Layers without parameters have no file, so gaps mean nothing; but each tensor-parallel rank has the same ones,
    and a layer whose parameters a stage lists must be there."""
    layers = parts.by_kind[Kind.LAYER]
    if not layers:
        return
    numbers = {part.layer for part in layers} | facts.layers
    template = min(layers, key=lambda part: len(part.name)).name
    ranks = range(min(max(facts.tp or 0, parts.highest(Kind.LAYER, "mp") + 1), 10_000))
    for number in sorted(numbers)[:_MAX_RANKS]:
        for rank in ranks:
            yield _renumbered(template, number, rank)


def _renumbered(template: str, layer: int, rank: int) -> str:
    name = re.sub(r"^layer_\d+", f"layer_{layer:02d}", template)
    return re.sub(r"-model_\d+", f"-model_{rank:02d}", name)


def _expected_experts(parts: Parts, facts: Facts) -> Iterator[str]:
    """Experts are numbered through; how many a layer has is noted in the model's file, or follows from the names."""
    counts = {part.layer: 0 for part in parts.by_kind[Kind.EXPERT]}
    for part in parts.by_kind[Kind.EXPERT]:
        counts[part.layer] = max(counts[part.layer], part.expert + 1)
    if -1 not in counts and (len(facts.experts) > 1 or set(counts) == {0}):
        counts.update(enumerate(facts.experts))
    ranks = max(parts.highest(Kind.EXPERT, "mp") + 1, 1)
    if sum(counts.values()) * ranks <= _MAX_RANKS:
        for layer, count in sorted(counts.items()):
            yield from (expert_name(layer, expert, rank) for expert in range(count) for rank in range(ranks))
    groups = range(min(parts.highest(Kind.EXPERT_OPTIM, "expert") + 1, _MAX_RANKS))
    for rank in sorted({part.mp for part in parts.by_kind[Kind.EXPERT_OPTIM]}):
        yield from (f"expp_rank_{group}_mp_rank_{rank:02d}_optim_states.pt" for group in groups)


# -- the files that are there ------------------------------------------------------------------------------------------
def _take_files(
    draft: Draft,
    folder: Folder,
    parts: Parts,
    grid: Grid,
    expected: dict[str, Part],
    loaded: dict[str, Loaded],
    *,
    with_tensors: bool,
) -> None:
    roots = {} if with_tensors else _quick_roots(folder, parts, loaded)
    absent = 0
    # `by_name` is sorted, and is all there is where nothing is amiss.
    names = parts.by_name if expected.keys() == parts.by_name.keys() else sorted(expected.keys() | parts.by_name.keys())
    for name in folder.ahead(names) if with_tensors else names:
        part = expected.get(name) or parts.by_name[name]
        if name not in folder.files:
            absent += 1
            if absent <= _MAX_LISTED:
                _add_absent(draft, folder, part, grid)
        elif name not in expected and part.kind in (Kind.OPTIM, Kind.ZERO_MODEL, Kind.MODEL):
            detail = f"{name} is of a save with other ranks: this one had {grid.dp} data-parallel and {grid.mp} "
            detail += "model-parallel ones"
            draft.findings.append(finding("shard_orphaned", path=name, detail=detail))
            roots.pop(name, None)
        elif name in roots:
            draft.shards.append(_entry(name, folder.files[name], grid.rank_of(part), part.role))
        else:
            read = add_torch_shard(
                draft,
                folder,
                name,
                rank=grid.rank_of(part),
                role=part.role,
                values=with_tensors,
                loaded=loaded.get(name),
            )
            _take_tensors(draft, part, read, with_tensors=with_tensors)
            roots[name] = read.file.root if read is not None else ""
    if draft.roles is not None:
        draft.roles |= {part.role for part in expected.values()}
    draft.findings.extend(misplaced_findings(roots, expected))


def _quick_roots(folder: Folder, parts: Parts, loaded: dict[str, Loaded]) -> dict[str, str]:
    """What a quick look proves whole; a spread of the files gets a full one, and so do those that are read anyway."""
    names = [name for name in parts.by_name if name in folder.files and name not in loaded]
    full = set(spread(names, _FULL_LOOKS))
    return roots_of_whole(folder, [name for name in names if name not in full])


def _entry(path: str, seen: FileSeen, rank: int | None, role: Role) -> ShardEntry:
    return ShardEntry(path=path, size_bytes=seen.size_bytes, rank=rank, role=role, mtime_ns=seen.mtime_ns)


def _take_tensors(draft: Draft, part: Part, read: Loaded | None, *, with_tensors: bool) -> None:
    if read is None or not with_tensors:
        return
    for tensor in tensor_ranges(read, part.name):
        role = part.role if not tensor.name.startswith("optimizer.") else Role.OPTIMIZER
        draft.tensors.append(msgspec.structs.replace(tensor, role=role))


def _add_absent(draft: Draft, folder: Folder, part: Part, grid: Grid) -> None:
    what = "optimizer state" if part.role is Role.OPTIMIZER else "part of the model"
    if part.dp >= 0:
        of_model = f", model-parallel rank {part.mp} of {grid.mp}" if grid.mp > 1 else ""
        detail = f"rank {part.dp} of {grid.dp}{of_model}: its {what} is not there; each rank saves its own file"
    else:
        detail = f"{part.name} ({what}) is not there"
    add_absent(draft, folder, part.name, detail, rank=grid.rank_of(part))
    draft.shards[-1] = msgspec.structs.replace(draft.shards[-1], role=part.role)


# -- optimizer state on local disks ------------------------------------------------------------------------------------
def _take_offloaded(draft: Draft, folder: Folder, facts: Facts) -> None:
    """State that was offloaded to NVMe is copied into a folder per rank."""
    if OFFLOAD_FOLDER not in folder.folders:
        return
    inside = folder.sub(OFFLOAD_FOLDER)
    ranks = {int(match.group(1)) for match in map(_OFFLOAD_RANK.fullmatch, inside.folders) if match}
    for rank in sorted(set(range(facts.dp or max(ranks, default=-1) + 1)) - ranks)[:_MAX_LISTED]:
        path = f"{OFFLOAD_FOLDER}/rank{rank}"
        if inside.listed:
            detail = f"rank {rank} left no folder of offloaded state"
            draft.findings.append(finding("shard_missing", path=path, detail=detail))
    draft.findings.extend(_below(found, OFFLOAD_FOLDER) for found in inside.findings)
    for rank in sorted(ranks):
        _take_swapped(draft, inside.sub(f"rank{rank}"), f"{OFFLOAD_FOLDER}/rank{rank}", rank, depth=0)


def _take_swapped(draft: Draft, folder: Folder, path: str, rank: int, depth: int) -> None:
    draft.findings.extend(_below(found, path) for found in folder.findings)
    for name, seen in sorted(folder.files.items()):
        place = f"{path}/{name}"
        draft.shards.append(_entry(place, seen, rank, Role.OPTIMIZER))
        if seen.size_bytes == 0:
            detail = f"{place}, offloaded state of rank {rank}, has 0 bytes"
            draft.findings.append(finding("shard_empty", path=place, detail=detail))
    for name in folder.folders if depth < 3 else ():
        _take_swapped(draft, folder.sub(name), f"{path}/{name}", rank, depth + 1)


def _below(found: Finding, path: str) -> Finding:
    return found if found.path.startswith("/") else msgspec.structs.replace(found, path=f"{path}/{found.path}")
