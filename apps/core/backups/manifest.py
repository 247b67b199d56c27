"""What a backup says of itself, so that it can be trusted before anything is overwritten."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

import msgspec

NAME = "manifest.json"
FORMAT = 1
BLOCK_BYTES = 4 * 1024 * 1024


class BackupError(Exception):
    """It cannot be made, trusted or restored; the message says why and what to do."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`file` lies beside it. `row_counts` are of the very moment that the file shows, by table."""

    format: int
    muster_version: str
    engine: str
    """sqlite or postgresql."""
    engine_version: str
    created_at: datetime
    backup_seconds: float
    file: str
    size_bytes: int
    sha256: str
    migrations: tuple[str, ...]
    """Every applied one, as app.name."""
    row_counts: dict[str, int]


def digest(path: Path) -> str:
    """SHA-256 in hex. Raises OSError."""
    hasher = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()


def load(folder: Path) -> Manifest:
    """The manifest of the backup in `folder`. Raises BackupError."""
    path = folder / NAME
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise BackupError(f"{folder} is no backup: it has no {NAME}.") from error
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise BackupError(f"{path} is damaged: {error}. Take another backup.") from error
    if manifest.format != FORMAT:
        raise BackupError(
            f"{path} has format {manifest.format}; this Muster reads {FORMAT}. Use the Muster that made it."
        )
    if Path(manifest.file).name != manifest.file:
        raise BackupError(f"{path} names a file elsewhere. Take another backup.")
    return manifest


def verify(folder: Path) -> Manifest:
    """The manifest, once every byte of the backup was found to be what it says. Raises BackupError."""
    manifest = load(folder)
    path = folder / manifest.file
    try:
        size_bytes, found = path.stat().st_size, digest(path)
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}. Take another backup.") from error
    if size_bytes != manifest.size_bytes:
        raise BackupError(f"{path} has {size_bytes} bytes, not {manifest.size_bytes}. Take another backup.")
    if found != manifest.sha256:
        raise BackupError(f"{path} is damaged: its SHA-256 is not the manifest's. Take another backup.")
    return manifest


def differences(promised: dict[str, int], found: dict[str, int]) -> list[str]:
    """Tables whose rows are not those of the backup, in words. Pure."""
    names = sorted(promised.keys() | found.keys())
    return [
        f"{name}: {found.get(name, 'absent')} rows instead of {promised.get(name, 'absent')}"
        for name in names
        if promised.get(name) != found.get(name)
    ]


def unknown_migrations(manifest: Manifest, known: set[str]) -> list[str]:
    """Migrations that this Muster does not have: the backup is of a newer one. Pure."""
    return [name for name in manifest.migrations if name not in known]
