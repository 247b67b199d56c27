"""A file for each part of a step's state, several steps in one folder: `model_100.pt` and `optim_100.pt`, or the two
networks of an adversarial training (`G_1000.pth`, `D_1000.pth`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from muster_agent.formats.base import Role, ShardEntry
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.rank_sets import RankSet, rank_sets, split_rank, split_step_and_rank
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.torch_save import FORMAT as TORCH_SAVE
from muster_agent.formats.torch_save import Parts, add_absent_ranks, is_torch_name
from muster_agent.formats.torch_state import role_of_key

PART = "{part}"
_PART_NAME = re.compile(r"(?P<part>[^{}]*?\D)(?P<step>\d{1,18})(?P<ending>\.(?:pt|pth|bin|ckpt))", re.ASCII)
_MAX_ABSENT = 200


def families(folder: Folder) -> list[Family]:
    """A file for each part of the state, with the step at its end: `model_100.pt` and `optim_100.pt`. Such a file
    alone, or several of which none is of the optimizer, are checkpoints by themselves."""
    groups: dict[tuple[str, str], list[re.Match[str]]] = defaultdict(list)
    for match in filter(None, map(_part_match, folder.files)):
        groups[match["step"], match["ending"]].append(match)
    roles = {key: {role_of_part(match["part"]) for match in matches} for key, matches in groups.items()}
    whole = {key for key, found in roles.items() if Role.OPTIMIZER in found and len(found) > 1}
    whole |= _of_two_networks(groups)
    ranked = {
        key for key, matches in groups.items() if whole and any("rank" in match.re.groupindex for match in matches)
    }
    return [
        Family(f"{PART}{step}{ending}", int(step), frozenset(_with_notes(folder, step, groups[step, ending])))
        for step, ending in sorted(whole | ranked)
    ]


def _of_two_networks(groups: Mapping[tuple[str, str], Sequence[re.Match[str]]]) -> set[tuple[str, str]]:
    """The steps of a generator and its discriminator, each with an optimizer of its own (`G_1000.pth`, `D_1000.pth`):
    a restart needs both, so where any step has both, one without the other is such a step too."""
    words = {key: {match["part"].removesuffix("_") for match in matches} for key, matches in groups.items()}
    if not any(found >= _TWO_NETWORKS for found in words.values()):
        return set()
    return {key for key, found in words.items() if found & _TWO_NETWORKS}


_TWO_NETWORKS = frozenset({"G", "D"})


def _part_match(name: str) -> re.Match[str] | None:
    if not is_torch_name(name):
        return None
    return _PART_NAME.fullmatch(name) if split_rank(name) is None else split_step_and_rank(name)


def _with_notes(folder: Folder, step: str, matches: list[re.Match[str]]) -> Iterator[str]:
    """The files of the parts, and what lies in JSON beside them under the same step: `meta_000100.json`."""
    yield from (match[0] for match in matches)
    for name in folder.files:
        stem = name.removesuffix(f"{step}.json")
        if stem != name and stem[-1:] in ("_", "-", "."):
            yield name


def role_of_part(part: str) -> Role | None:
    word = part.rstrip("_-.")
    return Role.OPTIMIZER if word in ("opt", "optim") else role_of_key(word)


def read(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    """Each part's file; which parts there should be, nothing says."""
    draft = Draft(TORCH_SAVE)
    parts = Parts(draft, folder, with_tensors)
    names = sorted(name for name in family.files if is_torch_name(name))
    sets = rank_sets(names)
    ranks = {name: rank for one in sets for rank, name in one.names.items()}
    for name in names:
        role = role_of_part(match["part"]) if (match := _part_match(name)) and name in ranks else None
        parts.add(name, ranks.get(name), None if role is None else {role})
    add_absent_ranks(draft, folder, sets)
    for one in sets:
        _add_ranks_of_other_steps(draft, folder, one)
    networks = {name[:1] for name in names if name[1:2] == "_"} & _TWO_NETWORKS
    for network in _TWO_NETWORKS - networks if networks else ():
        absent = family.pattern.replace(PART, f"{network}_")
        add_absent(draft, folder, absent, "the other of the two networks is not there, though that of other steps is")
    if not any(name not in ranks for name in names):
        detail = "the file that its ranks share is not there, though that of other steps is"
        add_absent(draft, folder, family.pattern.replace(PART, "model_"), detail)
    draft.step = parts.agreed_step()
    draft.shards.extend(_notes(folder, family))
    return draft


def _notes(folder: Folder, family: Family) -> list[ShardEntry]:
    only = {name: folder.files[name] for name in family.files if not is_torch_name(name) and name in folder.files}
    return other_files(Folder(folder.path, folder.root, files=only, tree=folder.tree), [])


def _add_ranks_of_other_steps(draft: Draft, folder: Folder, own: RankSet) -> None:
    """The highest ranks leave no gap where their files are lost. They are missed where every other step has more ranks,
    and files of the same size: on fewer ranks each would hold more."""
    mine = split_step_and_rank(own.name_of(min(own.names)))
    if mine is None:
        return
    others: dict[str, dict[int, int]] = defaultdict(dict)
    for match in filter(None, map(split_step_and_rank, folder.files)):
        if (match["part"], match["ending"]) == (mine["part"], mine["ending"]) and match["step"] != mine["step"]:
            others[match["step"]][int(match["rank"])] = folder.files[match[0]].size_bytes
    size_bytes = folder.files[mine[0]].size_bytes
    alike = all(abs(max(sizes.values()) - size_bytes) * 20 <= size_bytes for sizes in others.values())
    count = min((max(sizes) + 1 for sizes in others.values()), default=0)
    absent = [rank for rank in range(count) if rank not in own.names and (len(own.names) < 2 or rank > max(own.names))]
    if not alike or not absent:
        return
    draft.world_size = count
    for rank in absent[:_MAX_ABSENT]:
        name = own.name_of(rank)
        add_absent(
            draft,
            folder,
            name,
            f"rank {rank} of {count} has no {name}, though it has one at every other step",
            rank=rank,
        )
