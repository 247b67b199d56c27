"""Which reader a folder belongs to, by the names in it. A folder that no reader claims may still be a checkpoint of a
format that this version does not know: it is listed as `unknown`, never left out."""

from __future__ import annotations

from collections.abc import Callable

from muster_agent.formats import dcp, dcp_hf, safetensors, safetensors_ranked
from muster_agent.formats.base import Role, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import is_temporary

Reader = Callable[[Folder, bool], Draft]

UNKNOWN_FORMAT = "unknown"
_FOREIGN_FILES = {
    "trainer_state.json": "a Hugging Face Trainer checkpoint",
    "training_args.bin": "a Hugging Face Trainer checkpoint",
    "common.pt": "a Megatron distributed checkpoint",
    "meta.pt": "a sharded Lightning checkpoint",
    "_CHECKPOINT_METADATA": "an Orbax checkpoint",
    "_METADATA": "an Orbax checkpoint",
    ".snapshot_metadata": "a torchsnapshot checkpoint",
}
_MAX_MARK_BYTES = 64 * 1024
_FOREIGN_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".gguf", ".nemo", ".msgpack", ".npz")


def claim(folder: Folder) -> Reader | None:
    """The reader of a folder that shows by its files that it is one checkpoint; None where it does not."""
    names = folder.files.keys() | folder.blocked
    if any(name in _FOREIGN_FILES for name in names) or _is_megatron(folder):
        return _read_foreign
    if any(map(dcp.is_own_name, names)):
        return lambda place, with_tensors: dcp.read_dcp(place, with_tensors=with_tensors)
    if safetensors_ranked.MARKER_NAME in names or any(map(_is_rank_file, names)):
        return lambda place, with_tensors: safetensors_ranked.read_ranked(place, with_tensors=with_tensors)
    if any(map(dcp_hf.is_own_name, names)):
        return lambda place, with_tensors: dcp_hf.read_dcp_hf(place, with_tensors=with_tensors)
    index = next((name for name in sorted(folder.files) if safetensors.is_indexed_name(name)), None)
    if index is not None:
        return lambda place, with_tensors: safetensors.read_indexed(place, index, with_tensors=with_tensors)
    if any(map(safetensors.is_numbered_name, names)):
        return lambda place, with_tensors: safetensors.read_unindexed(place, with_tensors=with_tensors)
    if "model.safetensors" in names:
        return _read_loose
    return None


def _is_rank_file(name: str) -> bool:
    return safetensors_ranked.is_rank_name(name) or safetensors_ranked.is_unfinished_rank_name(name)


def _is_megatron(folder: Folder) -> bool:
    """Whether `metadata.json` is Megatron's. Its folder also holds DCP files, but has a commit rule of its own."""
    if "metadata.json" not in folder.files:
        return False
    document, _ = safetensors.read_json(folder, "metadata.json", _MAX_MARK_BYTES)
    return isinstance(document, dict) and "sharded_backend" in document


def reader_of_checkpoint(folder: Folder) -> Reader:
    """The reader of a folder that is known to be a checkpoint (by its name, or because it was asked for)."""
    claimed = claim(folder)
    if claimed is not None:
        return claimed
    if any(name.endswith(".safetensors") for name in folder.files):
        return _read_loose
    if not folder.files and not folder.folders and not folder.blocked:
        return _read_empty
    if folder.files and not folder.folders and all(map(is_temporary, folder.files)):
        return _read_begun
    return _read_foreign


def is_single_file(name: str) -> bool:
    """Whether a file in a folder that is no checkpoint may be a checkpoint by itself."""
    return name.endswith((".safetensors", *_FOREIGN_SUFFIXES)) and not is_temporary(name)


def read_file(folder: Folder, name: str, with_tensors: bool) -> Draft:
    """The draft of a checkpoint that is the single file `name` of `folder`."""
    if name.endswith(".safetensors"):
        return safetensors.read_single(folder, name, with_tensors=with_tensors)
    draft = _unknown(name, f"{name} is of a format that this version of Muster does not read")
    draft.shards.append(_entry(folder, name))
    return draft


def _read_loose(folder: Folder, with_tensors: bool) -> Draft:
    return safetensors.read_loose(folder, with_tensors=with_tensors)


def _read_empty(folder: Folder, _with_tensors: bool) -> Draft:
    draft = Draft(UNKNOWN_FORMAT, committed=False, roles=None)
    draft.findings.append(finding("metadata_missing", path=folder.path, detail="the folder is empty"))
    return draft


def _read_begun(folder: Folder, _with_tensors: bool) -> Draft:
    draft = Draft(UNKNOWN_FORMAT, committed=False, roles=None)
    detail = "there are only temporary files of a save that has not ended"
    draft.findings.append(finding("metadata_missing", path=folder.path, detail=detail))
    return draft


def _read_foreign(folder: Folder, _with_tensors: bool) -> Draft:
    guess = next((what for name, what in _FOREIGN_FILES.items() if name in folder.files), None)
    guess = "a Megatron distributed checkpoint" if _is_megatron(folder) else guess
    if guess:
        draft = _unknown(folder.path, f"it looks like {guess}, which this version of Muster does not read")
    else:
        draft = _unknown(folder.path, "its format is not known to this version of Muster")
    draft.shards.extend(_entry(folder, name) for name in sorted(folder.files) if not is_temporary(name))
    return draft


def _unknown(path: str, reason: str) -> Draft:
    draft = Draft(UNKNOWN_FORMAT, roles=None, undecided=reason)
    draft.findings.append(finding("format_unknown", path=path, detail=reason))
    return draft


def _entry(folder: Folder, name: str) -> ShardEntry:
    seen = folder.files[name]
    return ShardEntry(path=name, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.OTHER)
