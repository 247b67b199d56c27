"""What no reader understands: listed as `unknown`, with a guess at what it is, and left alone."""

from __future__ import annotations

import re

from muster_agent.formats.base import Role, ShardEntry
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder
from muster_agent.formats.names import is_like_a_checkpoint, is_temporary
from muster_agent.formats.safetensors import read_json

UNKNOWN_FORMAT = "unknown"
_MAX_MARK_BYTES = 64 * 1024
_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".gguf", ".nemo", ".npz", ".pdparams", ".keras")
_SUFFIXES_OF_MUCH = (".h5", ".hdf5", ".tar", ".params", ".weights")
"""Checkpoints only where they are named so as well."""
_LEAST_BYTES = 1024
_PACKED = re.compile(
    r"(?:.*[-_.])?(?:checkpoint|ckpt|step|iter|epoch)[-_=]?\d{1,18}\.(?:tar\.gz|tgz|tar\.zst|zip)", re.ASCII
)
"""A step that somebody packed up."""
_OF_DATA = re.compile(
    r"(?:.*[-_.])?(?:train|val|valid|validation|test|eval|dev|data|dataset|tokens?|tokenizer|vocab|merges|labels?|stats)"
    r"(?:[-_.]?\d+)*\.(?:bin|npz|pkl)",
    re.ASCII | re.IGNORECASE,
)
"""What a training reads, which endings of anything say nothing of."""


def claims(folder: Folder) -> bool:
    return _is_megatron(folder)


def claims_file(folder: Folder, name: str) -> bool:
    """What may be a checkpoint of a framework that is not read, so that its folder is never taken for empty."""
    if name.lower().endswith(_SUFFIXES):
        return _OF_DATA.fullmatch(name) is None
    if _PACKED.fullmatch(name):
        return True
    seen = folder.files.get(name)
    if seen is None or not is_like_a_checkpoint(name):
        return False
    if name.endswith(_SUFFIXES_OF_MUCH):
        return True
    return seen.size_bytes > _LEAST_BYTES and "." not in name and not _is_text(folder, name)


def _is_text(folder: Folder, name: str) -> bool:
    """Whether it begins with text, as a log or a script does. Raises nothing."""
    try:
        with folder.open(name) as opened:
            head = opened.pread(256, 0)
    except OSError:
        return False
    return all(byte >= 32 or byte in b"\r\n\t" for byte in head) and head.isascii()


def _is_megatron(folder: Folder) -> bool:
    """Whether `metadata.json` is Megatron's. Its folder also holds DCP files, but has a commit rule of its own."""
    if "metadata.json" not in folder.files:
        return False
    document, _ = read_json(folder, "metadata.json", _MAX_MARK_BYTES)
    return isinstance(document, dict) and "sharded_backend" in document


def read(folder: Folder, _with_tensors: bool) -> Draft:
    """The files of a folder as they lie; of an empty one, or one with temporary files only, that a save has begun."""
    if not folder.files and not folder.folders and not folder.blocked:
        return _begun(folder, "the folder is empty")
    if folder.files and not folder.folders and all(map(is_temporary, folder.files)):
        return _begun(folder, "there are only temporary files of a save that has not ended")
    if _is_megatron(folder):
        guess = "a Megatron distributed checkpoint"
        draft = _unknown(folder.path, f"it looks like {guess}, which this version of Muster does not read")
    else:
        draft = _unknown(folder.path, "its format is not known to this version of Muster")
    draft.shards.extend(_entry(folder, name) for name in sorted(folder.files) if not is_temporary(name))
    return draft


def read_file(folder: Folder, name: str, _with_tensors: bool) -> Draft:
    draft = _unknown(name, f"{name} is of a format that this version of Muster does not read")
    draft.shards.append(_entry(folder, name))
    return draft


def _begun(folder: Folder, detail: str) -> Draft:
    draft = Draft(UNKNOWN_FORMAT, committed=False, roles=None)
    draft.findings.append(finding("metadata_missing", path=folder.path, detail=detail))
    return draft


def _unknown(path: str, reason: str) -> Draft:
    draft = Draft(UNKNOWN_FORMAT, roles=None, undecided=reason)
    draft.findings.append(finding("format_unknown", path=path, detail=reason))
    return draft


def _entry(folder: Folder, name: str) -> ShardEntry:
    seen = folder.files[name]
    return ShardEntry(path=name, size_bytes=seen.size_bytes, mtime_ns=seen.mtime_ns, role=Role.OTHER)
