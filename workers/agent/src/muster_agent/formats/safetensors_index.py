"""Safetensors files that an index ties together, or only their numbers; and files beside them that it forgot."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from muster_agent.formats.base import Finding, Role
from muster_agent.formats.codes import finding
from muster_agent.formats.dcp_hf import SHARDING_KEY
from muster_agent.formats.draft import Draft, role_of
from muster_agent.formats.folder import Folder, reach
from muster_agent.formats.names import is_temporary, unsafe_reason
from muster_agent.formats.safetensors import ReadShard, add_absent, add_shard, metadata_entry, read_json, read_shard

INDEX_SUFFIX = ".safetensors.index.json"
OF_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(safetensors|bin)", re.ASCII)
_ADAPTER_NAMES = frozenset({"adapter_model.safetensors"})
MAX_LISTED = 200
"""Findings of one kind per checkpoint; more would say the same."""
_STALE = "Find out which save is wanted: write the index of the files that are here again, or copy the others back."
_TWO_SETS = "Keep the weights that the training wrote, and remove the other set: loaders differ in which they read."


def is_indexed_name(name: str) -> bool:
    return name.endswith(INDEX_SUFFIX)


def is_numbered_name(name: str) -> bool:
    match = OF_NAME.fullmatch(name)
    return match is not None and match.group(4) == "safetensors"


def add_indexed(draft: Draft, folder: Folder, index_name: str, *, with_tensors: bool) -> bool:
    """Take the files of an index, which maps each tensor to its file, into the draft. It is written last, so it is the
    commit marker. Returns whether the index could be read; the finding that says why not is in the draft."""
    weight_map, document = index_map(draft, folder, index_name)
    if weight_map is None:
        return False
    draft.committed = draft.committed is not False
    shards = _read_mapped(draft, folder, weight_map, with_tensors=with_tensors)
    held = {name: shard.header.names for name, shard in shards.items() if shard.header.ok}
    draft.findings.extend(map_findings(weight_map, held))
    _check_total(draft, folder, document, shards, index_name)
    draft.findings.extend(of_count_findings(set(weight_map.values()), index_name))
    _take_strangers(draft, folder, index_name, set(weight_map.values()), with_tensors=with_tensors)
    return True


def index_map(draft: Draft, folder: Folder, index_name: str) -> tuple[dict[str, str] | None, dict[str, Any]]:
    """An index's map of tensors to files, all of them safe relative names, and its whole document. None where the index
    is not understood: the draft then says so, and knows no roles."""
    draft.shards.append(metadata_entry(index_name, folder.files[index_name]))
    document, problem = read_json(folder, index_name)
    if problem is None:
        problem = _index_problem(document, index_name)
    if problem is not None:
        draft.findings.append(problem)
        draft.roles = None
        return None, {}
    return document["weight_map"], document


def _index_problem(document: Any, name: str) -> Finding | None:
    weight_map = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        return finding("metadata_unreadable", path=name, detail=f"{name} has no weight_map")
    for shard in weight_map.values():
        reason = unsafe_reason(shard)
        if reason:
            return finding("path_unsafe", path=name, detail=f"the file name {str(shard)[:200]!r} {reason}")
    return None


def _read_mapped(
    draft: Draft, folder: Folder, weight_map: dict[str, str], *, with_tensors: bool
) -> dict[str, ReadShard]:
    shards = {}
    for name in folder.ahead(sorted(set(weight_map.values()))):
        reach(folder, name)
        if name in folder.files:
            shards[name] = read_shard(folder, name, with_tensors=with_tensors)
            add_shard(draft, shards[name], with_tensors=with_tensors)
        else:
            add_absent(draft, folder, name, f"{name} is in the index, but not in the folder")
    return shards


def map_findings(weight_map: dict[str, str], held: Mapping[str, Collection[str]]) -> list[Finding]:
    """Tensors that the index places in a file which was read and does not hold them. `held`: the names in each file."""
    absent: dict[str, list[str]] = defaultdict(list)
    names = {file: set(tensors) for file, tensors in held.items()}
    for tensor, name in weight_map.items():
        if name in names and tensor not in names[name]:
            absent[name].append(tensor)
    found = []
    for name, tensors in absent.items():
        detail = f"{len(tensors)} tensors that the index places in {name} are not in it, the first is {tensors[0]!r}"
        found.append(finding("ranges_gap", path=name, detail=detail, tensor=tensors[0]))
    return found[:MAX_LISTED]


def _check_total(
    draft: Draft, folder: Folder, document: dict[str, Any], shards: dict[str, ReadShard], index_name: str
) -> None:
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    whole = all(shard.size_bytes is not None for shard in draft.shards) and all(s.header.ok for s in shards.values())
    tensor_bytes = sum(shard.header.tensor_bytes for shard in shards.values())
    if isinstance(total, (int, float)) and whole and total != tensor_bytes:
        detail = f"total_size is {total}, the tensors have {tensor_bytes} bytes"
        draft.findings.append(finding("size_total_mismatch", path=index_name, detail=detail))
        draft.findings.extend(_rank_parts(folder, shards) if total > tensor_bytes else ())


def _rank_parts(folder: Folder, shards: dict[str, ReadShard]) -> list[Finding]:
    """Files that one rank wrote of its own parts of tensors (PyTorch DCP), where the index promises whole tensors."""
    found = []
    for name in sorted(shards):
        if SHARDING_KEY in read_shard(folder, name, with_tensors=True).header.metadata:
            detail = f"{name} holds one rank's parts of its tensors, and the index promises whole tensors of more bytes"
            found.append(finding("ranges_gap", path=name, detail=detail))
    return found[:MAX_LISTED]


def of_count_findings(names: set[str], index_name: str) -> list[Finding]:
    """`-of-00003` in the names promises three files, whatever the index says."""
    counts = {int(match.group(3)) for match in map(OF_NAME.fullmatch, names) if match}
    if not counts or counts == {len(names)}:
        return []
    said = ", ".join(str(count) for count in sorted(counts))
    detail = f"the file names promise {said} files, the index uses {len(names)}"
    return [finding("shard_missing", path=index_name, detail=detail)]


# -- files that the index does not name --------------------------------------------------------------------------------
def _take_strangers(draft: Draft, folder: Folder, index_name: str, used: set[str], *, with_tensors: bool) -> None:
    """State and adapters beside the indexed weights belong to the checkpoint; other weights are not part of it."""
    names = {name for name in folder.files if name.endswith(".safetensors") and not is_temporary(name)} - used
    own = {name for name in names if role_of(name) is not Role.MODEL or name in _ADAPTER_NAMES}
    for name in sorted(own):
        add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
    strangers = names - own
    if strangers and any(found.code == "shard_missing" for found in draft.findings):
        detail = f"{index_name} seems to be left from another save: files that it names are not here, and it does not "
        detail += f"name {len(strangers)} that are, such as {min(strangers)}"
        draft.findings.append(finding("shard_orphaned", path=index_name, detail=detail, cure=_STALE))
    draft.findings.extend(stranger_findings(strangers))
    whole = f"{index_name.removesuffix(INDEX_SUFFIX)}.safetensors"
    if whole in strangers:
        _judge_read_first(draft, folder, whole, with_tensors=with_tensors)


def _judge_read_first(draft: Draft, folder: Folder, name: str, *, with_tensors: bool) -> None:
    """The one file that Hugging Face's loaders prefer to the index beside it, so what is wrong with it stops them."""
    shard = read_shard(folder, name, with_tensors=with_tensors)
    if not shard.header.ok:
        draft.shards.append(shard.entry)
        draft.findings.extend(shard.header.findings)


def stranger_findings(strangers: set[str]) -> list[Finding]:
    """What each file of weights that the index does not name seems to be; one finding for a set that is whole."""
    found, grouped = [], set()
    for (stem, count, ending), numbers in sorted(families(strangers).items()):
        if numbers == set(range(1, count + 1)):
            pattern = f"{stem}-*-of-{count:05d}.{ending}"
            detail = f"{count} files that the index does not name are a whole set of their own: {pattern}"
            found.append(finding("shard_orphaned", path=pattern, detail=detail, cure=_TWO_SETS))
            grouped |= {f"{stem}-{number:05d}-of-{count:05d}.{ending}" for number in numbers}
    for name in sorted(strangers - grouped):
        found.append(_stranger(name))
    return found[:MAX_LISTED]


def _stranger(name: str) -> Finding:
    if OF_NAME.fullmatch(name):
        detail = f"{name} is not in the index; a save with another number of files left it"
        return finding("shard_orphaned", path=name, detail=detail)
    detail = f"{name} holds weights too, beside an index that does not name it: loaders differ in which they read"
    return finding("shard_orphaned", path=name, detail=detail, cure=_TWO_SETS)


def families(names: Collection[str]) -> dict[tuple[str, int, str], set[int]]:
    """The numbers of the files named `<stem>-00001-of-00002.<ending>`, by stem, count and ending."""
    found: dict[tuple[str, int, str], set[int]] = defaultdict(set)
    for match in filter(None, map(OF_NAME.fullmatch, names)):
        found[match.group(1), int(match.group(3)), match.group(4)].add(int(match.group(2)))
    return found


def add_unindexed(draft: Draft, folder: Folder, *, with_tensors: bool) -> None:
    """Files named `-00001-of-00002` without their index: it is written last, so the save did not end, unless the name
    says that there is but one file."""
    names = [name for name in folder.files.keys() | folder.blocked if is_numbered_name(name)]
    for (stem, count, _), _numbers in sorted(families(names).items()):
        if count > 1:
            draft.committed, draft.marker = False, f"{stem}.safetensors.index.json"
        for number in range(1, min(count, 99_999) + 1):
            name = f"{stem}-{number:05d}-of-{count:05d}.safetensors"
            if name in folder.files:
                add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
            elif len(draft.findings) < MAX_LISTED:
                add_absent(draft, folder, name, f"the names of its siblings promise {name}, which is not there")
