"""The manifest that lies beside the data: `.muster-manifest.json` in a folder, `NAME.muster.json` beside a file."""

from __future__ import annotations

import os

import msgspec

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.folder import trouble
from muster_agent.formats.names import beside
from muster_agent.formats.places import is_bucket
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.model import FILE_MANIFEST_SUFFIX, FOLDER_MANIFEST_NAME, Manifest, canonical_bytes
from muster_agent.storage.small_files import POSIX_FILES, SmallFiles

MAX_MANIFEST_BYTES = 1024 * 1024 * 1024
"""Chunk digests of 256 TiB; a larger file is not a manifest."""

SEAL_AGAIN = "Remove the manifest and seal the checkpoint again, or copy the manifest back from another placement."


class ManifestUnreadable(Exception):
    """A manifest is there but cannot be relied on; `finding` says why and what to do."""

    def __init__(self, found: Finding) -> None:
        super().__init__(found.detail)
        self.finding = found


def beside_path(checkpoint_path: str, files: SmallFiles = POSIX_FILES) -> str:
    """Where the manifest of a checkpoint lies. Raises OSError where a bucket cannot be looked at."""
    if files.is_folder(checkpoint_path):
        return f"{checkpoint_path.rstrip('/')}/{FOLDER_MANIFEST_NAME}"
    return beside(checkpoint_path, FILE_MANIFEST_SUFFIX)


def read_beside(checkpoint_path: str, files: SmallFiles = POSIX_FILES) -> Manifest | None:
    """The manifest beside a checkpoint, None where there is none. Raises ManifestUnreadable when it is there but is
    too large, damaged, of another version, or may not be read."""
    path = checkpoint_path
    try:
        path = beside_path(checkpoint_path, files)
        data = files.read(path, MAX_MANIFEST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ManifestUnreadable(_not_read(path, error)) from error
    if data is None:
        detail = f"the manifest is larger than {MAX_MANIFEST_BYTES} bytes, or no ordinary file"
        raise ManifestUnreadable(_fault(path, detail))
    return decode(data, path)


def decode(data: bytes, path: str) -> Manifest:
    """A manifest from its bytes; `path` is only for the finding. Raises ManifestUnreadable."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ManifestUnreadable(_fault(path, f"the manifest is not understood: {error}")) from error
    fault = why_invalid(manifest)
    if fault is not None:
        raise ManifestUnreadable(_fault(path, f"the manifest is damaged: {fault}"))
    return manifest


def write_beside(checkpoint_path: str, manifest: Manifest, files: SmallFiles = POSIX_FILES) -> str:
    """Write the manifest so that readers see the old one, the new one or none, never a part; returns its path.
    Raises OSError, and leaves nothing behind then."""
    path = beside_path(checkpoint_path, files)
    files.replace(path, canonical_bytes(manifest), mode_like=checkpoint_path)
    return path


def _not_read(path: str, error: OSError) -> Finding:
    """Nothing is known about the manifest, so nothing is said against it."""
    if is_bucket(path):
        return trouble(error, path)
    if isinstance(error, PermissionError):
        detail = f"this user (uid {os.geteuid()}) may not read the manifest {path}"
        cure = "Run as a user who may read it, or give this one the right to read the file and to enter its folder."
        return finding("permission_denied", path=path, detail=detail, cure=cure)
    detail = f"the manifest {path} cannot be read: {error.strerror or error}"
    return finding("listing_failed", path=path, detail=detail)


def _fault(path: str, detail: str) -> Finding:
    # A warning: the manifest is damaged, and nothing is known about the checkpoint's own bytes.
    told = f"{detail} ({path})"
    return finding("metadata_unreadable", path=path, detail=told, severity=Severity.WARNING, cure=SEAL_AGAIN)
