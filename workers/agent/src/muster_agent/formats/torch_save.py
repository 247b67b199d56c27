"""Single files of `torch.save`, and folders of them without any other rule: what is inside says what they are."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from muster_agent.formats.base import Role, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft, first_role, nest
from muster_agent.formats.folder import Folder
from muster_agent.formats.foreign import UNKNOWN_FORMAT
from muster_agent.formats.limits import NeedsChild
from muster_agent.formats.names import is_like_a_checkpoint, is_temporary, stem_of, step_of_file
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.rank_sets import (
    STEP_IN_NAME,
    RankSet,
    padded_step,
    rank_sets,
    split_rank,
    split_step_and_rank,
)
from muster_agent.formats.safetensors import add_absent, other_files
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, begins_like_torch, inspect, tensor_ranges
from muster_agent.formats.torch_lookalikes import SIDE_TEXT_BYTES
from muster_agent.formats.torch_state import loaded_epoch, loaded_step, role_of_key, roles_in

FORMAT = "torch_save"
_SURE_SUFFIXES = (".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar", ".ckpt.tar", ".torch", ".chkpt", ".pyth", ".th")
SUFFIXES = (*_SURE_SUFFIXES, ".bin")
_LOOKED_INTO = (".bin", ".pkl", ".tar", ".model", ".pickle", ".weights", ".state")
_LEAST_BYTES = 1024
"""What a file without any such ending must be larger than to be looked into."""
_EPOCH_FOLDER = re.compile(r"(?:epoch|ep)[-_=]?(\d{1,9})", re.ASCII | re.IGNORECASE)
_EPOCH_STEM = re.compile(r"(?:.*[-_.])?epoch[-_=]?(\d{1,9})", re.ASCII | re.IGNORECASE)
SMALL_BYTES = 1024 * 1024
"""The values of files up to this size are always read: side files are where code hides, and it costs little."""
_FAIRSEQ_EPOCH = re.compile(r"checkpoint\d{1,9}\.pt", re.ASCII)
"""What fairseq calls the file of an epoch's end."""
_STATE_NAMES = ("pytorch_model", "model", "optimizer", "scheduler")
_MAX_ABSENT = 200
_MAX_SUB_FOLDERS = 64


def is_torch_name(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not is_temporary(name)


def torch_names(folder: Folder) -> list[str]:
    """With files of an ending that others use too, where they begin as those of torch.save do."""
    names = {name for name in folder.files.keys() | folder.blocked if is_torch_name(name)}
    names |= {name for name in folder.files if name.lower().endswith(".state") and begins_like_torch(folder, name)}
    return sorted(names)


# -- one file ----------------------------------------------------------------------------------------------------------
def claims_file(folder: Folder, name: str) -> bool:
    """`.bin` and `.pkl` may be anything, so these are looked into, as is what is only named like a checkpoint."""
    if name.lower().endswith(_SURE_SUFFIXES):
        return True
    if not name.lower().endswith(_LOOKED_INTO) and not _may_be_one(folder, name):
        return False
    try:
        return inspect(folder, name).kind not in ("other", "tar", "text")
    except NeedsChild:
        return True


def _may_be_one(folder: Folder, name: str) -> bool:
    """Whether a file without a known ending is named like a checkpoint, and begins as a zip or a pickle does."""
    seen = folder.files.get(name)
    if seen is None or seen.size_bytes <= _LEAST_BYTES or not is_like_a_checkpoint(name):
        return False
    return begins_like_torch(folder, name)


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """A checkpoint that is the one file `name`."""
    return read_loaded(folder, name, with_tensors)[0]


def read_loaded(folder: Folder, name: str, with_tensors: bool) -> tuple[Draft, Loaded | None]:
    """As read_file, with the values for a more special format to look at."""
    draft = Draft(FORMAT)
    loaded = add_torch_shard(draft, folder, name, values=True)
    if loaded is None:
        return draft, None
    if loaded.pickle is None:
        draft.roles = None
        draft.format = FORMAT if loaded.file.kind in ("zip", "legacy") or not draft.undecided else UNKNOWN_FORMAT
        return draft, loaded
    take_roles(draft, loaded)
    if loaded.file.kind == "pickle" and not draft.roles:
        draft.format, draft.roles = UNKNOWN_FORMAT, None
        draft.undecided = f"{name} is a pickle that holds no tensors"
    draft.step = loaded_step(loaded)
    if draft.step is None:
        _take_epoch(draft, loaded)
    elif _FAIRSEQ_EPOCH.fullmatch(name) and isinstance(loaded.value, dict) and "optimizer_history" in loaded.value:
        draft.number_is_no_step = True
    if with_tensors:
        draft.tensors.extend(tensor_ranges(loaded, name))
    if not draft.roles and draft.step is None and draft.roles is not None:
        draft.undecided = f"{name} holds no training state that this version knows"
    return draft, loaded


def _take_epoch(draft: Draft, loaded: Loaded) -> None:
    """Where nothing tells the step, the epoch keeps the order; but not beside files that are numbered by steps."""
    name = loaded.name
    match = _EPOCH_STEM.fullmatch(stem_of(name))
    if match is None and step_of_file(name) is not None:
        return
    epoch = int(match.group(1)) if match else loaded_epoch(loaded)
    if epoch is None:
        return
    others = (other for other in loaded.folder.files if other != name and is_torch_name(other))
    if any(step_of_file(other) is not None and not _EPOCH_STEM.fullmatch(stem_of(other)) for other in others):
        draft.number_is_no_step = True
        return
    draft.step = epoch
    detail = f"its step is not known: {epoch} counts epochs, the only number that {name} gives"
    cure = "Nothing need be done; keep the step among what is saved, to see what a restart would lose."
    draft.findings.append(finding("step_mismatch", path=name, detail=detail, severity=Severity.NOTE, cure=cure))


def take_roles(draft: Draft, loaded: Loaded, roles: set[Role] | None = None) -> set[Role]:
    """Give the shard that was added last the roles of its values (or `roles`), and the draft as well."""
    found = roles_in(loaded.value, loaded.name) if roles is None else roles
    draft.shards[-1] = msgspec.structs.replace(draft.shards[-1], role=first_role(found))
    if draft.roles is not None:
        draft.roles |= found
    return found


# -- a folder ----------------------------------------------------------------------------------------------------------
def claims(folder: Folder) -> bool:
    """A folder named after an epoch, or whose files are the parts of one state by their names."""
    names = torch_names(folder)
    if not names:
        return False
    if _EPOCH_FOLDER.fullmatch(os.path.basename(folder.path)):
        return True
    if any(_belongs_to_a_step(name, names) for name in names):
        return False
    if _are_ranks_of_one(names):
        return True
    roles = {role_of_key(name.rsplit(".", 1)[0]) for name in names}
    return len(names) > 1 and len(names) == len({_stem(name) for name in names}) and Role.OPTIMIZER in roles


def _are_ranks_of_one(names: list[str]) -> bool:
    """Whether files of ranks lie here that name no step, as in the folder of one checkpoint."""
    sets = rank_sets(names)
    if any(padded_step(name) is not None for name in names):
        return False
    if any(STEP_IN_NAME.search(one.pattern) or one.head.startswith(("latest", "last", "ep")) for one in sets):
        return False
    return any(len(one.names) > 1 for one in sets)


def _belongs_to_a_step(name: str, names: list[str]) -> bool:
    """Whether it names a step and a rank, and a file without a rank names the same step: `model_000100.pt`."""
    match = split_step_and_rank(name)
    if match is None:
        return False
    ending = f"{match['step']}{match['ending']}"
    return any(other.endswith(ending) and split_rank(other) is None for other in names)


def _stem(name: str) -> str:
    """The name without its numbers: `model_100.pt` and `model_200.pt` are two checkpoints, not parts of one."""
    split = split_rank(name)
    return name if split is not None else re.sub(r"\d+", "", name)


def may_read(folder: Folder) -> bool:
    """Whether a folder that is known to be a checkpoint holds files that may be of torch.save, here or one level
    down."""
    return bool(torch_names(folder)) or any(torch_names(folder.sub(name)) for name in _sub_folders(folder))


def _sub_folders(folder: Folder) -> list[str]:
    return [name for name in folder.folders[:_MAX_SUB_FOLDERS] if not name.startswith(".") and not is_temporary(name)]


def read_folder(folder: Folder, with_tensors: bool) -> Draft:
    """The files of a folder, and of the folders in it, as parts of one checkpoint."""
    draft = read_level(folder, with_tensors)
    for name in _sub_folders(folder):
        if torch_names(folder.sub(name)):
            inner = read_level(folder.sub(name), with_tensors)
            draft.step = inner.step if draft.step is None else draft.step
            draft.world_size = inner.world_size if draft.world_size is None else draft.world_size
            draft.committed = False if inner.committed is False else draft.committed
            nest(draft, inner, name)
    if draft.step is None:
        match = _EPOCH_FOLDER.fullmatch(os.path.basename(folder.path))
        draft.step = int(match.group(1)) if match else None
    if all(shard.role is Role.OTHER for shard in draft.shards) and not draft.findings:
        draft.format, draft.roles, draft.undecided = UNKNOWN_FORMAT, None, "none of its files holds a training state"
    return draft


def read_level(folder: Folder, with_tensors: bool) -> Draft:
    """The files of one folder as parts of one checkpoint; folders in it are not looked into."""
    draft = Draft(FORMAT)
    names = torch_names(folder)
    sets = rank_sets(names)
    ranks = {name: rank for one in sets for rank, name in one.names.items()}
    parts = Parts(draft, folder, with_tensors)
    for name in names:
        if _is_side_file(folder, name):
            draft.shards.extend(other_files(_only(folder, name), []))
        else:
            parts.add(name, ranks.get(name))
    add_absent_ranks(draft, folder, sets)
    draft.findings.extend(misplaced_findings({name: root for name, root in parts.roots.items() if name in ranks}))
    draft.step = parts.agreed_step()
    draft.shards.extend(other_files(folder, names))
    return draft


def _is_side_file(folder: Folder, name: str) -> bool:
    """Whether a `.bin`, which may be anything, or a few words of text under any name, neither is of torch.save nor has
    the name of such a state."""
    if name not in folder.files or name.startswith(_STATE_NAMES):
        return False
    if name.endswith(".bin"):
        return folder.files[name].size_bytes > 0 and inspect(folder, name).kind in ("other", "text")
    return folder.files[name].size_bytes <= SIDE_TEXT_BYTES and inspect(folder, name).kind == "text"


def _only(folder: Folder, name: str) -> Folder:
    return Folder(folder.path, folder.root, files={name: folder.files[name]}, tree=folder.tree)


class Parts:
    """The files of one checkpoint, taken into a draft one by one. `steps` are those that they hold, by name; `roots`
    the names under which they were saved."""

    def __init__(self, draft: Draft, folder: Folder, with_tensors: bool) -> None:
        self.steps: dict[str, int] = {}
        self.roots: dict[str, str] = {}
        self._draft, self._folder, self._with_tensors = draft, folder, with_tensors

    def add(self, name: str, rank: int | None, roles: set[Role] | None = None) -> None:
        """Add the file `name`; what it holds is told by `roles`, else by its values, else by its name."""
        values = wants_values(self._folder, name, rank, self._with_tensors)
        loaded = add_torch_shard(self._draft, self._folder, name, rank=rank, values=values)
        if loaded is None:
            return
        self.roots[name] = loaded.file.root
        if roles is None and loaded.pickle is None:
            by_name = role_of_key(name.rsplit(".", 1)[0])
            self._draft.shards[-1] = msgspec.structs.replace(self._draft.shards[-1], role=by_name or Role.MODEL)
            return
        found = take_roles(self._draft, loaded, roles)
        if self._with_tensors:
            tensors = tensor_ranges(loaded, name)
            if found and Role.MODEL not in found:
                tensors = [msgspec.structs.replace(one, role=first_role(found)) for one in tensors]
            self._draft.tensors.extend(tensors)
        step = loaded_step(loaded)
        if step is not None:
            self.steps[name] = step

    def agreed_step(self) -> int | None:
        """The step that the files hold. Where they hold different ones, files of two saves lie together."""
        if len(set(self.steps.values())) > 1:
            ordered = sorted(self.steps.items(), key=lambda item: item[1])
            (first, low), (last, high) = ordered[0], ordered[-1]
            detail = f"{first} was saved at step {low} and {last} at step {high}: files of different saves lie together"
            self._draft.findings.append(finding("step_mismatch", path=last, detail=detail))
        return min(self.steps.values(), default=None)


def wants_values(folder: Folder, name: str, rank: int | None, with_tensors: bool) -> bool:
    """Whether the pickle of a file is to be read: of every small one, and in a scan only of the first rank's large
    ones."""
    seen = folder.files.get(name)
    return with_tensors or not rank or (seen is not None and seen.size_bytes <= SMALL_BYTES)


def add_absent_ranks(draft: Draft, folder: Folder, sets: Sequence[RankSet]) -> None:
    """The ranks that left no file where their siblings did."""
    said = {ranks.world_size for ranks in sets if ranks.world_size is not None}
    for ranks in sets:
        if len(ranks.names) < 2 and ranks.world_size is None:
            continue
        count = max(len(ranks.expected), _count_of_alike(ranks, sets))
        draft.world_size = max(draft.world_size or 0, count) or None
        absent = [rank for rank in range(count) if rank not in ranks.names]
        for rank in absent[:_MAX_ABSENT]:
            name = ranks.name_of(rank)
            add_absent(draft, folder, name, f"rank {rank} of {count} has no {name}", rank=rank)
    if len(said) > 1:
        shown = " and ".join(map(str, sorted(said)))
        detail = f"its files name {shown} ranks: those of different saves lie together"
        draft.findings.append(finding("world_size_mismatch", path=folder.path, detail=detail))


def _count_of_alike(ranks: RankSet, sets: Sequence[RankSet]) -> int:
    """How many ranks wrote another part under names made the same way (`model_rank_3.pt`, `optimizer_rank_3.pt`), where
    more than half of them wrote this one too: a part that fewer ranks share has half as many files, or less."""
    alike = (one for one in sets if one is not ranks and one.tail == ranks.tail and _way(one.head) == _way(ranks.head))
    count = max((len(one.expected) for one in alike), default=0)
    return count if _way(ranks.head) and 2 * len(ranks.names) > count else 0


def _way(head: str) -> str:
    """What follows the word for the part: `rank_` of `model_rank_`."""
    return _PART_WORD.sub("", head, count=1) if _PART_WORD.match(head) else ""


_PART_WORD = re.compile(r"(?:model|optim(?:izer)?|opt|scheduler|rng|extra|ema|state|loader|dataloader)[-_.]", re.ASCII)
