"""Folders of weights without a framework's own files: safetensors or torch files, and the state beside them."""

from __future__ import annotations

import re

from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.hf_configuration import CONFIGURATION_NAMES, configuration_findings
from muster_agent.formats.hf_state import add_state_files, torch_names
from muster_agent.formats.hf_weights import add_weights, is_bin_name
from muster_agent.formats.hub_cache import note_broken_links
from muster_agent.formats.names import is_temporary
from muster_agent.formats.safetensors import FORMAT, add_shard, other_files, read_shard
from muster_agent.formats.safetensors_index import is_indexed_name, is_numbered_name

TORCH_FORMAT = "torch_save"
_CERTAIN = frozenset(
    {
        "model.safetensors",
        "adapter_model.safetensors",
        "diffusion_pytorch_model.safetensors",
        "consolidated.safetensors",
        "pytorch_model.bin",
        "adapter_model.bin",
        "diffusion_pytorch_model.bin",
    }
)
"""Names that make their folder one model; others, such as `step-100.safetensors`, may each be one."""
_WRITERS_NAME = re.compile(r"\.tmp[A-Za-z0-9]{6}", re.ASCII)


def claims(folder: Folder) -> bool:
    names = folder.files.keys() | folder.blocked
    if not names.isdisjoint(_CERTAIN):
        return True
    if any(is_indexed_name(name) or is_numbered_name(name) or is_bin_name(name) for name in names):
        return True
    return _unrenamed(folder) is not None


def claims_file(_folder: Folder, name: str) -> bool:
    return name.endswith(".safetensors")


def read_folder(folder: Folder, with_tensors: bool) -> Draft:
    """The folder's weights in whatever form, and the torch files of state beside them."""
    unrenamed = _unrenamed(folder)
    if unrenamed is not None:
        return _left_unrenamed(folder, unrenamed)
    draft = Draft(FORMAT)
    used = add_weights(draft, folder, with_tensors=with_tensors)
    if used and all(map(is_bin_name, used)):
        draft.format = TORCH_FORMAT
    add_state_files(draft, folder, torch_names(folder, used), with_tensors=with_tensors)
    note_broken_links(draft, folder)
    draft.findings.extend(configuration_findings(folder))
    known = {shard.path for shard in draft.shards} | used
    draft.shards.extend(other_files(folder, known))
    return draft


def read_single(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """A checkpoint that is the one file `name`, whatever else lies in its folder."""
    draft = Draft(FORMAT)
    add_shard(draft, read_shard(folder, name, with_tensors=with_tensors), with_tensors=with_tensors)
    return draft


# -- a save that ended before its last rename --------------------------------------------------------------------------
def _unrenamed(folder: Folder) -> str | None:
    """The temporary file of the safetensors writer in a folder that holds nothing else but configuration."""
    names = [name for name in folder.files if _WRITERS_NAME.fullmatch(name)]
    others = folder.files.keys() - set(names) - CONFIGURATION_NAMES
    if not names or others or folder.blocked or folder.folders:
        return None
    name = max(names, key=lambda one: folder.files[one].size_bytes)
    try:
        head = folder.read(name, 9)
    except OSError:
        return None
    is_header = len(head) == 9 and head[8:] == b"{" and int.from_bytes(head[:8], "little") <= 100_000_000
    return name if is_header or folder.files.keys() & CONFIGURATION_NAMES else None


def _left_unrenamed(folder: Folder, name: str) -> Draft:
    """Some storage refuses the rename at the end, so the file may be whole; it still is not what a loader looks for."""
    draft = Draft(FORMAT, committed=False, roles=None)
    shard = read_shard(folder, name, with_tensors=False)
    state = "holds a whole safetensors file" if shard.header.ok else "was not written to its end"
    detail = f"there are no weights under their own name; {name} {state}, and was never renamed"
    cure = "Resume from an older complete step."
    if shard.header.ok:
        cure = f"Copy {name} to the name that the loader looks for, such as model.safetensors; check that the storage "
        cure += "allows renaming files."
    draft.findings.append(finding("shard_missing", path=folder.path, detail=detail, cure=cure))
    draft.shards.extend(other_files(folder, [name]))
    return draft


def holds_weights(folder: Folder) -> bool:
    """Whether a folder that is known to be a checkpoint has safetensors files under any name."""
    return any(name.endswith(".safetensors") and not is_temporary(name) for name in folder.files)
