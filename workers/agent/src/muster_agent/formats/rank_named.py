"""Checkpoints whose files are told apart by ranks in their names: verl (a folder per step), and Composer, fairseq and
others like them, where several steps share one folder.

Nothing is written last in any of them, so a checkpoint is whole where every rank has its file and each file is whole.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from muster_agent.formats import part_named
from muster_agent.formats.base import Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.nested import read_nested
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.rank_sets import (
    STEP_IN_NAME,
    padded_step,
    rank_sets,
    split_step_and_rank,
)
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.torch_archive import add_torch_shard
from muster_agent.formats.torch_save import FORMAT as TORCH_SAVE
from muster_agent.formats.torch_save import Parts, add_absent_ranks, is_torch_name, take_roles

VERL, COMPOSER, FAIRSEQ = "verl", "composer", "fairseq"
_VERL_NAME = re.compile(r"(model|optim|extra_state)_world_size_(\d{1,6})_rank_(\d{1,6})\.pt", re.ASCII)
_VERL_ROLES = {"model": {Role.MODEL}, "optim": {Role.OPTIMIZER}, "extra_state": {Role.RNG, Role.SCHEDULER}}
_VERL_TRAINED = ("actor", "critic")
_VERL_PARTS = (*_VERL_TRAINED, "reward", "ref")
_COMPOSER_NAME = re.compile(r"ep\d{1,9}-ba(\d{1,12})-rank", re.ASCII)
_COMPOSER_LATEST = re.compile(r"latest-rank(?:\d{1,6}|\{rank\})(?:\.pt)?(?:\.symlink)?", re.ASCII)
_FAIRSEQ_NAME = re.compile(
    r"(checkpoint(?:_\d{1,9}_(\d{1,12})|_last|_best|_crash|\d{1,9})?)"
    r"(?:-model_part-(\d{1,6}))?(?:-shard(\d{1,6}))?\.pt(\.tmp)?",
    re.ASCII,
)
_MAX_RANKS = 100_000
_MAX_ABSENT = 200


# -- verl --------------------------------------------------------------------------------------------------------------
def claims_verl(folder: Folder) -> bool:
    """The folder of a step, which holds `actor`, or such a part itself."""
    if any(map(_VERL_NAME.fullmatch, folder.files)):
        return True
    parts = [name for name in folder.folders if name in _VERL_PARTS]
    return any(_VERL_NAME.fullmatch(file) for name in parts for file in folder.sub(name).files)


def read_verl(folder: Folder, with_tensors: bool) -> Draft:
    """Every rank's model, optimizer and extra state of each part, and the data loader's `data.pt` beside them."""
    draft = _read_verl_part(folder, with_tensors) if any(map(_VERL_NAME.fullmatch, folder.files)) else Draft(VERL)
    draft.must_match = ("world_size",)
    for name in folder.folders:
        if name in _VERL_PARTS:
            inner = read_nested(draft, folder, name, _read_verl_part, with_tensors=with_tensors)
            if name in _VERL_TRAINED and inner.roles is not None and Role.OPTIMIZER not in inner.roles:
                draft.not_resumable_reasons.append(f"{name} holds no optimizer state")
            draft.world_size = max(draft.world_size or 0, inner.world_size or 0) or None
            draft.committed = False if inner.committed is False else draft.committed
            draft.step = inner.step if draft.step is None else draft.step
    if "data.pt" in folder.files:
        draft.shards = [shard for shard in draft.shards if shard.path != "data.pt"]
        loaded = add_torch_shard(draft, folder, "data.pt", values=True)
        if loaded is not None:
            take_roles(draft, loaded, {Role.DATALOADER})
    draft.shards.extend(other_files(folder, {shard.path for shard in draft.shards}))
    return draft


def _read_verl_part(folder: Folder, with_tensors: bool) -> Draft:
    draft = Draft(VERL)
    matches = sorted(filter(None, map(_VERL_NAME.fullmatch, folder.files)), key=lambda match: (match[1], int(match[3])))
    parts = Parts(draft, folder, with_tensors)
    for match in matches:
        parts.add(match[0], int(match[3]), _VERL_ROLES[match[1]])
    names = [match[0] for match in matches]
    add_absent_ranks(draft, folder, rank_sets(names))
    draft.findings.extend(misplaced_findings(parts.roots))
    draft.step = parts.agreed_step()
    draft.shards.extend(other_files(folder, names))
    return draft


# -- several steps in one folder ---------------------------------------------------------------------------------------
def composer_families(folder: Folder) -> list[Family]:
    """`ep{e}-ba{b}-rank{r}.pt`; `latest-rank{r}.pt` beside them points to one of them and is none itself."""
    found = _families_of(filter(_COMPOSER_NAME.match, folder.files), _composer_step)
    latest = frozenset(name for name in folder.files if _COMPOSER_LATEST.fullmatch(name))
    if found and latest:
        newest = max(range(len(found)), key=lambda index: found[index].step or 0)
        found[newest] = found[newest]._replace(files=found[newest].files | latest)
    return found


def _composer_step(name: str) -> int | None:
    match = _COMPOSER_NAME.search(name)
    return int(match[1]) if match else None


def other_families(folder: Folder) -> list[Family]:
    """Those of no writer in particular."""
    return [*_families_by_rank(folder), *part_named.families(folder)]


def _families_by_rank(folder: Folder) -> list[Family]:
    """Files with a step and a rank in their names."""
    names = [
        name for name in folder.files if is_torch_name(name) and "rank" in name and _step_by_rank(name) is not None
    ]
    return [family for family in _families_of(names, _step_by_rank) if len(family.files) > 1]


def _step_by_rank(name: str) -> int | None:
    """The step in the name of a file of a rank, or in the pattern of several; None for a part of a state that other
    files name without a rank."""
    match = STEP_IN_NAME.search(name)
    if match is not None:
        return int(match[1])
    split = split_step_and_rank(name.replace("{rank}", "0"))
    is_part = split is not None and part_named.role_of_part(split["part"]) is not None
    return None if is_part else padded_step(name.replace("{rank}", "0"))


def _families_of(names: Iterable[str], step_of: Callable[[str], int | None]) -> list[Family]:
    steps = ((ranks, step_of(ranks.pattern)) for ranks in rank_sets(names))
    return [Family(one.pattern, step, frozenset(one.names.values())) for one, step in steps if step is not None]


def fairseq_families(folder: Folder) -> list[Family]:
    """`checkpoint_{epoch}_{update}-model_part-{m}-shard{n}.pt` and `checkpoint_last-...`, temporary names included."""
    groups: dict[str, list[re.Match[str]]] = defaultdict(list)
    for match in filter(None, map(_FAIRSEQ_NAME.fullmatch, folder.files)):
        if match[3] is not None or match[4] is not None:
            part = "" if match[3] is None else "-model_part-{part}"
            shard = "" if match[4] is None else "-shard{shard}"
            groups[f"{match[1]}{part}{shard}.pt"].append(match)
    return [
        Family(pattern, int(matches[0][2]) if matches[0][2] else None, frozenset(match[0] for match in matches))
        for pattern, matches in sorted(groups.items())
    ]


def read_composer(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    return _read_family(COMPOSER, folder, family, with_tensors)


def read_fairseq(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    return _read_family(FAIRSEQ, folder, family, with_tensors)


def read_other(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    if family.pattern.startswith(part_named.PART):
        return part_named.read(folder, family, with_tensors)
    return _read_family(TORCH_SAVE, folder, family, with_tensors)


def _read_family(format_name: str, folder: Folder, family: Family, with_tensors: bool) -> Draft:
    draft = Draft(format_name)
    parts = Parts(draft, folder, with_tensors)
    names = list(_expected(family))
    absent = 0
    for rank, name in enumerate(names):
        if name in folder.files:
            parts.add(name, rank)
        elif absent < _MAX_ABSENT:
            absent += 1
            add_absent(draft, folder, name, f"{name} is not there, though others of its save are", rank=rank)
    for name in sorted(family.files):
        if name.endswith(".tmp"):
            detail = f"{name} ({folder.files[name].size_bytes} bytes) was never given its final name"
            draft.findings.append(finding("temporary_left", path=name, detail=detail))
    draft.world_size = len(names) or None
    draft.must_match = ("world_size",) if len(names) > 1 else ()
    draft.findings.extend(misplaced_findings(parts.roots, names))
    draft.step = parts.agreed_step()
    return draft


def _expected(family: Family) -> Iterator[str]:
    """Every name that the pattern gives for numbers up to the highest seen, of each placeholder."""
    places = re.findall(r"\{\w+\}", family.pattern)
    pattern = re.compile(re.sub(r"\\\{\w+\\\}", r"(\\d{1,6})", re.escape(family.pattern)), re.ASCII)
    matches = [match for name in family.files if (match := pattern.fullmatch(name.removesuffix(".tmp")))]
    highest = [max((int(match[index + 1]) for match in matches), default=-1) for index in range(len(places))]
    widths = [
        max((len(match[index + 1]) for match in matches if match[index + 1][0] == "0"), default=1)
        for index in range(len(places))
    ]
    ranks = itertools.product(*(range(last + 1) for last in highest))
    for numbers in itertools.islice(ranks, _MAX_RANKS):
        name = family.pattern
        for place, number, width in zip(places, numbers, widths, strict=True):
            name = name.replace(place, f"{number:0{width}d}", 1)
        yield name
