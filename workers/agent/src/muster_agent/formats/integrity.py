"""Megatron's `integrity.json`: the SHA-256 of each file of a checkpoint, written by the job that saved it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from muster_agent.formats.base import Finding, Severity, ShardMap
from muster_agent.formats.codes import finding
from muster_agent.formats.draft import Draft
from muster_agent.formats.folder import Folder, reach
from muster_agent.formats.names import unsafe_reason
from muster_agent.formats.recorded import Open, RecordedSum
from muster_agent.formats.safetensors import decode_json, metadata_entry

NAME = "integrity.json"
MAX_BYTES = 64 * 1024 * 1024
_MAX_LISTED = 100
_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)


class _Refused(Exception):
    def __init__(self, detail: str, code: str = "metadata_unreadable", severity: Severity | None = None) -> None:
        super().__init__(detail)
        self.detail, self.code, self.severity = detail, code, severity


def take_integrity(draft: Draft, folder: Folder) -> None:
    """Hold the list against the folder, without computing a sum: sealing does that."""
    if NAME not in folder.files:
        return
    draft.shards.append(metadata_entry(NAME, folder.files[NAME]))
    try:
        sums = _parse(folder.read(NAME, MAX_BYTES + 1))
    except OSError as error:
        draft.findings.append(finding("listing_failed", path=NAME, detail=f"{NAME} could not be read: {error}"))
        return
    except _Refused as refused:
        draft.findings.append(_finding(refused))
        return
    for name in sums:
        reach(folder, name)
    known = {shard.path for shard in draft.shards} | folder.blocked
    lost = sorted(name for name in sums if name not in folder.files and name not in known)
    for name in lost[:_MAX_LISTED]:
        detail = f"{NAME} lists {len(lost)} files that are not there, {name} is one"
        draft.findings.append(finding("shard_missing", path=name, detail=detail))


def recorded_sums(shard_map: ShardMap, open_shard: Open) -> Mapping[str, Sequence[RecordedSum]]:
    """What such lists of a checkpoint, or of parts of it in folders of their own, record. See `recorded.Source`."""
    sizes = {shard.path: shard.size_bytes for shard in shard_map.shards}
    found: dict[str, list[RecordedSum]] = {}
    for path in sizes:
        folder, _, name = path.rpartition("/")
        if name != NAME:
            continue
        try:
            with open_shard(path) as opened:
                sums = _parse(opened.pread(min(MAX_BYTES + 1, opened.size_bytes), 0))
        except (OSError, _Refused):
            continue
        for listed, digest in sums.items():
            whole = f"{folder}/{listed}" if folder else listed
            size_bytes = sizes.get(whole)
            if size_bytes:
                what = f"the whole file (by {path})"
                found[whole] = [RecordedSum(0, size_bytes, "sha256", digest.lower(), what)]
    return found


def _parse(data: bytes) -> dict[str, str]:
    """SHA-256 in hexadecimal digits by relative path. Raises _Refused."""
    if len(data) > MAX_BYTES:
        raise _Refused(f"{NAME} is larger than {MAX_BYTES} bytes")
    try:
        document = decode_json(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise _Refused(f"{NAME} is not valid JSON: {error}") from None
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict):
        raise _Refused(f"{NAME} does not list files with their sums")
    if document.get("algorithm") != "sha256":
        algorithm = str(document.get("algorithm"))[:40]
        raise _Refused(f"{NAME} uses {algorithm!r}, which this version does not compute", severity=Severity.NOTE)
    for name, digest in files.items():
        reason = unsafe_reason(name)
        if reason:
            raise _Refused(f"the file name {ascii(name[:200])} in {NAME} {reason}", "path_unsafe")
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise _Refused(f"the sum of {name[:200]!r} in {NAME} is not a SHA-256")
    return files


def _finding(refused: _Refused) -> Finding:
    return finding(refused.code, path=NAME, detail=refused.detail, severity=refused.severity)
