"""NVRx local checkpoints: `{rank}/iter_{iteration:07d}_{rank}_local.pt` below a session's folder, named `.dirty` while
they are written. An iteration can be resumed from where every rank has its file; another rank may hold a replica of it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

from muster_agent.formats.base import Finding, Role, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.pickle_machine import Record
from muster_agent.formats.reader import Family
from muster_agent.formats.safetensors import add_absent
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, scalar, tensor_ranges
from muster_agent.formats.torch_save import take_roles, wants_values
from muster_agent.formats.torch_state import loaded_step

FORMAT = "nvrx_local"
_FILE_NAME = re.compile(r"iter_(\d{7,12})_(\d{1,6})_local(\.dirty)?\.pt", re.ASCII)
_FIRST_RANKS = 3
"""Looked into to see whether these are ranks at all: other writers call the folders of steps so."""
_MAX_ABSENT = 200


def families(folder: Folder) -> list[Family]:
    """The iterations in a session's folder: its sub-folders are ranks."""
    ranks = [name for name in folder.folders if name.isdecimal() and len(name) < 7]
    ranks.sort(key=int)
    if not any(map(_FILE_NAME.fullmatch, (file for rank in ranks[:_FIRST_RANKS] for file in folder.sub(rank).files))):
        return []
    iterations: set[str] = set()
    own: set[str] = set()
    for rank in ranks:
        matches = [match for match in map(_FILE_NAME.fullmatch, folder.sub(rank).files) if match]
        iterations.update(match[1] for match in matches)
        own.update([rank] if matches or not folder.sub(rank).files else [])
    return [_Session.family(number, own) for number in sorted(iterations)]


class _Session:
    """What lies in a session's folder of one iteration: `whole` and `dirty` give the paths by rank, and `folder` is the
    session's with these files as its own."""

    def __init__(self, folder: Folder, number: str) -> None:
        self.whole: dict[int, list[str]] = defaultdict(list)
        self.dirty: dict[int, list[str]] = defaultdict(list)
        self.ranks: set[int] = set()
        self.folder = Folder(folder.path, folder.root, folders=folder.folders, tree=folder.tree, subs=folder.subs)
        for place in sorted(filter(str.isdecimal, folder.folders), key=int):
            inner = folder.sub(place)
            self.ranks.add(int(place))
            for name in sorted(inner.files):
                match = _FILE_NAME.fullmatch(name)
                if match:
                    self.ranks.add(int(match[2]))
                if match and match[1] == number:
                    path = f"{place}/{name}"
                    (self.dirty if match[3] else self.whole)[int(match[2])].append(path)
                    self.folder.files[path] = inner.files[name]

    @staticmethod
    def family(number: str, own: set[str]) -> Family:
        return Family(f"{{rank}}/iter_{number}_{{rank}}_local.pt", int(number), frozenset(), frozenset(own))


def read_family(folder: Folder, family: Family, with_tensors: bool) -> Draft:
    """One iteration: each rank's own file, else a replica of it in another rank's folder."""
    number = family.pattern.split("_")[1]
    session = _Session(folder, number)
    folder = session.folder
    draft = Draft(FORMAT, roles=None, step=int(number), must_match=("world_size",))
    ranks = sorted(session.ranks)
    expected = range(ranks[0], min(ranks[-1] + 1, ranks[0] + 100_000)) if ranks else range(0)
    draft.world_size = len(ranks) if ranks and ranks[0] == 0 else None
    absent = 0
    steps: dict[str, int] = {}
    for rank in expected:
        if session.whole[rank]:
            steps.update(_add_best(draft, folder, rank, session.whole[rank], with_tensors))
        elif absent < _MAX_ABSENT:
            absent += 1
            _add_missing(draft, folder, rank, number)
    for path in (path for paths in session.dirty.values() for path in paths):
        detail = f"{path} ({folder.files[path].size_bytes} bytes) was never given its final name"
        draft.findings.append(finding("temporary_left", path=path, detail=detail))
    draft.findings.extend(_of_other_iterations(steps, int(number)))
    return draft


def _iteration(loaded: Loaded) -> int | None:
    """The counter at the top, or in the state that the training's own class holds."""
    value, found = loaded.value, loaded_step(loaded)
    inner = value.get("state_dict") if isinstance(value, (dict, Record)) else None
    return scalar(inner, "iteration") if found is None else found


def _of_other_iterations(steps: Mapping[str, int], number: int) -> list[Finding]:
    """Files whose counter differs from the other ranks'. What a script counts is its own matter where all agree."""
    common = number if number in steps.values() else next(iter(Counter(steps.values()).most_common(1)), (0, 0))[0]
    found = []
    for path, step in steps.items():
        if step != common:
            detail = f"{path} holds iteration {step}, other ranks' files hold {common}: two saves are mixed"
            found.append(finding("step_mismatch", path=path, detail=detail, severity=Severity.DAMAGE))
    return found[:_MAX_ABSENT]


def _add_missing(draft: Draft, folder: Folder, rank: int, number: str) -> None:
    name = f"{rank}/iter_{number}_{rank}_local.pt"
    detail = f"rank {rank} has no whole file of iteration {int(number)}, nor does another rank hold a replica of it"
    place = folder.sub(str(rank)) if str(rank) in folder.folders else None
    if place is not None and not place.listed:
        folder.blocked.add(name)
        draft.findings.extend(place.findings)
    add_absent(draft, folder, name, detail, rank=rank)


def _add_best(draft: Draft, folder: Folder, rank: int, paths: list[str], with_tensors: bool) -> dict[str, int]:
    """The rank's own file; a damaged one is only a warning where a whole replica stands in for it. Returns the step in
    it, by its path, where it tells one."""
    ordered = sorted(paths, key=lambda path: (path.split("/")[0] != str(rank), path))
    attempts = []
    steps: dict[str, int] = {}
    for path in ordered:
        attempt = Draft(FORMAT, roles=set())
        values = wants_values(folder, path, rank, with_tensors)
        loaded = add_torch_shard(attempt, folder, path, rank=rank, role=Role.MODEL, values=values)
        if loaded is not None and loaded.pickle is not None and loaded.file.ok:
            take_roles(attempt, loaded)
            step = _iteration(loaded)
            steps = {} if step is None else {path: step}
            attempt.tensors.extend(tensor_ranges(loaded, path) if with_tensors else [])
        attempts.append(attempt)
        if loaded is not None and loaded.file.ok:
            break
    best = attempts[-1] if any(shard.size_bytes for shard in attempts[-1].shards) else attempts[0]
    draft.shards.extend(best.shards)
    draft.tensors.extend(best.tensors)
    draft.findings.extend(best.findings)
    draft.committed = False if best.committed is False else draft.committed
    draft.undecided = draft.undecided or best.undecided
    draft.structure_known = draft.structure_known or best.structure_known
    for worse in attempts[: attempts.index(best)]:
        for shard in worse.shards:
            detail = f"{shard.path} is damaged; the whole replica {best.shards[0].path} stands in for it"
            draft.findings.append(finding("shard_orphaned", path=shard.path, detail=detail))
    return steps
