"""Weights as Hugging Face's libraries write them: safetensors or torch files, one or many with an index, adapters."""

from __future__ import annotations

import re
from collections.abc import Collection

from muster_agent.formats.base import Role
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, reach
from muster_agent.formats.names import is_set_aside, is_temporary
from muster_agent.formats.own_names import misplaced_findings
from muster_agent.formats.safetensors import add_absent, add_shard, read_shard
from muster_agent.formats.safetensors_index import (
    OF_NAME,
    add_indexed,
    add_unindexed,
    families,
    index_map,
    is_indexed_name,
    is_numbered_name,
    map_findings,
    of_count_findings,
    stranger_findings,
)
from muster_agent.formats.torch_archive import Loaded, add_torch_shard, tensor_ranges

BIN_INDEX_SUFFIX = ".bin.index.json"
_STEMS = r"(?:model|pytorch_model|adapter_model|diffusion_pytorch_model|consolidated)"
_SINGLE = re.compile(rf"{_STEMS}(?:_\d{{1,3}})?\.safetensors", re.ASCII)
_SINGLE_BIN = re.compile(
    r"(?:pytorch_model(?:_fsdp)?|adapter_model|diffusion_pytorch_model)(?:_\d{1,3})?\.bin", re.ASCII
)
_ADAPTER = "adapter_"


def is_single_name(name: str) -> bool:
    """Whether it is the name of weights in one safetensors file (`model.safetensors`, `model_1.safetensors`)."""
    return _SINGLE.fullmatch(name) is not None


def is_bin_name(name: str) -> bool:
    """Whether it is the name of weights in torch files: one, one of many, or their index."""
    return name.endswith(BIN_INDEX_SUFFIX) or _is_bin_file(name)


def _is_bin_file(name: str) -> bool:
    return name.endswith(".bin") and (_SINGLE_BIN.fullmatch(name) or OF_NAME.fullmatch(name)) is not None


def is_weight_name(name: str) -> bool:
    return is_single_name(name) or is_indexed_name(name) or is_numbered_name(name) or is_bin_name(name)


def add_weights(draft: Draft, folder: Folder, *, with_tensors: bool) -> set[str]:
    """Take whatever weights the folder holds into the draft, each kind once. Returns the names that were used or that
    were set aside as a second set of the same weights; empty where there are none."""
    names = {name for name in folder.files.keys() | folder.blocked if not is_temporary(name)}
    used = _add_safetensors(draft, folder, names, with_tensors=with_tensors)
    bins = {name for name in names if is_bin_name(name)}
    second = {name for name in bins if any(_is_adapter(name) == _is_adapter(other) for other in used)}
    if second:
        detail = f"{min(second)} holds the same weights as {min(used)} beside it: loaders differ in which they read"
        cure = "Keep the set that the training wrote, and remove the other."
        draft.findings.append(finding("shard_orphaned", path=min(second), detail=detail, cure=cure))
    _add_bins(draft, folder, bins - second, with_tensors=with_tensors)
    if used or bins:
        _add_role(draft, Role.MODEL)
    return used | bins


def _is_adapter(name: str) -> bool:
    return name.startswith(_ADAPTER)


def _add_role(draft: Draft, role: Role) -> None:
    if draft.roles is not None:
        draft.roles.add(role)


def _add_safetensors(draft: Draft, folder: Folder, names: Collection[str], *, with_tensors: bool) -> set[str]:
    """Indexed files, else numbered ones, else single ones."""
    listed = {name for name in names if name.endswith(".safetensors")}
    own = {name for name in listed if not is_set_aside(name)}
    listed = own or listed
    index = next((name for name in sorted(names) if is_indexed_name(name)), None)
    if index is not None and index not in folder.files:
        add_absent(draft, folder, index, "")
    elif index is not None:
        add_indexed(draft, folder, index, with_tensors=with_tensors)
        return listed | {index}
    if any(map(is_numbered_name, names)):
        add_unindexed(draft, folder, with_tensors=with_tensors)
        listed = {name for name in listed if not is_numbered_name(name)}
    for name in sorted(listed):
        if name in folder.files:
            add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
        else:
            add_absent(draft, folder, name, "")
    return {name for name in names if name.endswith(".safetensors")}


# -- torch files -------------------------------------------------------------------------------------------------------
def _add_bins(draft: Draft, folder: Folder, names: Collection[str], *, with_tensors: bool) -> None:
    index = next((name for name in sorted(names) if name.endswith(BIN_INDEX_SUFFIX)), None)
    files = {name for name in names if not name.endswith(BIN_INDEX_SUFFIX)}
    if index is not None and index not in folder.files:
        add_absent(draft, folder, index, "")
    elif index is not None:
        files -= _add_indexed_bins(draft, folder, index, files, with_tensors=with_tensors)
    elif len(numbered := {name for name in files if OF_NAME.fullmatch(name)}) > 0:
        _note_absent_numbers(draft, folder, numbered)
    for name in sorted(files):
        _add_bin(draft, folder, name, with_tensors=with_tensors)


def _add_bin(draft: Draft, folder: Folder, name: str, *, with_tensors: bool) -> Loaded | None:
    loaded = add_torch_shard(draft, folder, name, role=Role.MODEL, values=True)
    if loaded is not None and with_tensors:
        draft.tensors.extend(tensor_ranges(loaded, name))
    return loaded


def _add_indexed_bins(
    draft: Draft, folder: Folder, index_name: str, files: Collection[str], *, with_tensors: bool
) -> set[str]:
    """As for safetensors: the files that the index names, and what is said of those it does not. Returns all that need
    no more looking at."""
    weight_map, _ = index_map(draft, folder, index_name)
    if weight_map is None:
        return set()
    draft.committed = draft.committed is not False
    held, roots = {}, {}
    for name in sorted(set(weight_map.values())):
        reach(folder, name)
        if name not in folder.files:
            add_absent(draft, folder, name, f"{name} is in the index, but not in the folder")
            continue
        loaded = _add_bin(draft, folder, name, with_tensors=with_tensors)
        if loaded is not None and isinstance(loaded.value, dict):
            held[name] = [str(key) for key in loaded.value]
            roots[name] = loaded.file.root
    draft.findings.extend(map_findings(weight_map, held) or misplaced_findings(roots))
    draft.findings.extend(of_count_findings(set(weight_map.values()), index_name))
    strangers = {
        name for name in files if name not in weight_map.values() and _is_adapter(name) == _is_adapter(index_name)
    }
    draft.findings.extend(stranger_findings(strangers))
    return set(weight_map.values()) | strangers


def _note_absent_numbers(draft: Draft, folder: Folder, names: Collection[str]) -> None:
    """Numbered torch files without their index, which is written last."""
    for (stem, count, ending), numbers in sorted(families(names).items()):
        if count > 1:
            draft.committed, draft.marker = False, f"{stem}.{ending}.index.json"
        for number in sorted(set(range(1, min(count, 99_999) + 1)) - numbers)[:100]:
            name = f"{stem}-{number:05d}-of-{count:05d}.{ending}"
            add_absent(draft, folder, name, f"the names of its siblings promise {name}, which is not there")
