"""Configuration beside weights: small files that loaders read first. Their content is the loader's business; that they
are there whole is looked at."""

from __future__ import annotations

from collections.abc import Iterator

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import Folder

CONFIGURATION_NAMES = frozenset(
    {
        "config.json",
        "generation_config.json",
        "adapter_config.json",
        "preprocessor_config.json",
        "processor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "chat_template.json",
        "chat_template.jinja",
        "README.md",
    }
)
_END_BYTES = 256
_CURE = "Copy it from another step of the run, or write it again; the weights are not touched by it."


def configuration_findings(folder: Folder) -> list[Finding]:
    """Warnings for configuration that is empty, cut or zeros. Raises nothing."""
    found = []
    for name in sorted(CONFIGURATION_NAMES & folder.files.keys()):
        reason = _fault(folder, name)
        if reason is not None:
            code = "shard_empty" if not folder.files[name].size_bytes else "metadata_unreadable"
            detail = f"{name} {reason}: training state is not in it, but loaders that read it fail"
            found.append(finding(code, path=name, detail=detail, severity=Severity.WARNING, cure=_CURE))
    return [*found, *_model_findings(folder)]


_MODEL, _GENERATION = "config.json", "generation_config.json"


def _model_findings(folder: Folder) -> Iterator[Finding]:
    """A model that has the settings of its generation was saved with its own configuration too, and neither holds what
    belongs to the other."""
    names = folder.files.keys() | folder.blocked
    if _GENERATION not in folder.files or "adapter_config.json" in names:
        return
    if _MODEL not in names:
        detail = f"{_MODEL} is not there, though {_GENERATION}, which is saved with it, is: the model cannot be built"
        yield finding("shard_missing", path=_MODEL, detail=detail, severity=Severity.WARNING, cure=_CURE)
    elif _says_architectures(folder, _GENERATION) and not _says_architectures(folder, _MODEL):
        detail = f"{_GENERATION} holds the model's configuration: it was exchanged for {_MODEL}"
        yield finding("metadata_unreadable", path=_MODEL, detail=detail, severity=Severity.WARNING, cure=_CURE)


def _says_architectures(folder: Folder, name: str) -> bool:
    try:
        return name in folder.files and b'"architectures"' in folder.read(name, _LARGEST_BYTES)
    except OSError:
        return False


_LARGEST_BYTES = 1024 * 1024


def _fault(folder: Folder, name: str) -> str | None:
    """Why the file cannot be whole, from its first and last bytes; None where it may be, or where it cannot be read."""
    size_bytes = folder.files[name].size_bytes
    if size_bytes == 0:
        return None if name == "README.md" else "has 0 bytes"
    if not name.endswith(".json"):
        return None
    try:
        with folder.open(name) as opened:
            begin = opened.pread(_END_BYTES, 0)
            end = opened.pread(_END_BYTES, max(0, size_bytes - _END_BYTES))
    except OSError:
        return None
    if not any(begin):
        return "holds only zeros"
    first, last = begin.lstrip()[:1], end.rstrip()[-1:]
    if first in (b"{", b"[") and last not in (b"}", b"]"):
        return f"was cut, or zeroed, before its end at byte {size_bytes}"
    return None if first in (b"{", b"[") else "is not JSON"
