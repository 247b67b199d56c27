"""What TorchTitan's state in a DCP says: whose it is, and for how many ranks it holds the data loader's position."""

from __future__ import annotations

import re

from muster_agent.formats.base import Finding
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_plan import Plan
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.pickle_reader import PickleRefused
from muster_agent.formats.torch_pickle import read_torch_pickle
from muster_agent.formats.zip_directory import ZipRefused, payload_begin, read_archive

FORMAT = "torchtitan"
_LOADER_NAME = re.compile(r"dataloader\.dp_rank_(\d{1,9})", re.ASCII)
_LOADER_RANKS = "dataloader.world_size"
_OWN_HEADS = frozenset({"dataloader", "lr_scheduler"})
_MAX_INTEGER_BYTES = 4096
_MAX_RANKS = 10_000_000


def is_own(plan: Plan) -> bool:
    """Whether the names of the state are those that TorchTitan gives them."""
    heads = {name.split(".", 1)[0] for name in plan.names}
    return "train_state" in heads and not heads.isdisjoint(_OWN_HEADS)


def take_loader(draft: Draft, folder: Folder, plan: Plan) -> None:
    """The data-parallel ranks that the loader's state is for. Each of them has its own, so a job with another number
    finds none, or loses its place in the data."""
    have = {int(match.group(1)) for match in map(_LOADER_NAME.fullmatch, plan.objects) if match}
    if not have:
        return
    said = _integer(folder, plan, _LOADER_RANKS)
    draft.dp = said if said is not None and 0 < said < _MAX_RANKS else len(have)
    draft.must_match = ("dp",)
    draft.findings.extend(_gaps(have, said, draft.world_size))


def _gaps(have: set[int], said: int | None, writers: int | None) -> list[Finding]:
    """Ranks without loader state. Without a number of ranks in the state the writers stand for it only where a single
    one has any: with tensor or pipeline parallelism several writers share a data-parallel rank."""
    expected = max(have) + 1
    if said is not None and 0 < said < _MAX_RANKS:
        expected = max(expected, said)
    elif len(have) == 1 and writers is not None:
        expected = max(expected, writers)
    if len(have) >= expected:
        return []
    doubt = "" if said is not None else ", unless all ranks read the same data"
    detail = f"the data loader's state is there for {len(have)} of {expected} ranks{doubt}"
    return [finding("dataloader_missing", path=_LOADER_RANKS.split(".")[0], detail=detail)]


def _integer(folder: Folder, plan: Plan, name: str) -> int | None:
    """The integer that was saved as an object of this name; None where there is none or it cannot be read."""
    record = plan.stored.get((name, None))
    if record is None or record.file not in folder.files or record.transformed:
        return None
    try:
        with folder.open(record.file) as opened:
            archive = read_archive(opened, record.offset, record.offset + record.length)
            members = [one for one in archive.members if one.name.endswith("/data.pkl")] if archive else []
            if len(members) != 1 or not members[0].stored or members[0].size_bytes > _MAX_INTEGER_BYTES:
                return None
            begin = payload_begin(opened, members[0])
            value = None if begin is None else read_torch_pickle(opened.pread(members[0].size_bytes, begin)).value
    except (OSError, ZipRefused, PickleRefused):
        return None
    return value if type(value) is int else None
