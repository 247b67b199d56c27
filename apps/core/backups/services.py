"""Making a backup, and putting one back: nothing is believed before it was read again, and nothing overwritten before
it is safe."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import muster_agent
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from apps.core.backups.engines import Engine, count_rows, tables
from apps.core.backups.manifest import (
    FORMAT,
    NAME,
    BackupError,
    Manifest,
    differences,
    digest,
    unknown_migrations,
    verify,
)
from apps.core.heartbeats import last_beats
from apps.core.models import Heartbeat

PREFIX = "muster-"
RUNNING = timedelta(seconds=60)
"""A part that gave a sign of life within this time is taken to run still."""


@dataclass(frozen=True)
class Made:
    folder: Path
    manifest: Manifest


@dataclass
class Restored:
    """`phase_seconds` in their order; their sum is the time to restore."""

    manifest: Manifest
    phase_seconds: dict[str, float] = field(default_factory=dict)
    set_aside: Path | None = None
    """The backup that was made of what the database held before."""

    @property
    def seconds(self) -> float:
        return sum(self.phase_seconds.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.phase_seconds[name] = time.monotonic() - began


def make_backup(engine: Engine, root: Path) -> Made:
    """A new folder below `root`, readable by this user only, complete and read again once it has its name. Raises
    BackupError."""
    began, created_at = time.monotonic(), datetime.now(UTC)
    staged, final = _places(root, created_at)
    try:
        counts = engine.dump(staged / engine.file)
        engine.check(staged / engine.file)
        manifest = Manifest(
            format=FORMAT,
            muster_version=muster_agent.__version__,
            engine=engine.name,
            engine_version=engine.version(),
            created_at=created_at,
            backup_seconds=round(time.monotonic() - began, 3),
            file=engine.file,
            size_bytes=(staged / engine.file).stat().st_size,
            sha256=digest(staged / engine.file),
            migrations=tuple(sorted(f"{app}.{name}" for app, name in MigrationLoader(connection).applied_migrations)),
            row_counts=counts,
        )
        (staged / NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
        _make_durable(staged)
        staged.rename(final)
        _sync(root)
        return Made(final, verify(final))
    except OSError as error:
        raise BackupError(
            f"{root} cannot be written: {error.strerror}. Free space there, or name another folder."
        ) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def remove_older(root: Path, keep: int) -> list[Path]:
    """Of the whole backups in `root` all but the newest `keep`; what is no whole backup stays. Gives what went."""
    whole = sorted((path.parent for path in root.glob(f"{PREFIX}*/{NAME}")), key=lambda path: path.name, reverse=True)
    gone = whole[max(keep, 1) :]
    for folder in gone:
        shutil.rmtree(folder)
    return gone


def restore(engine: Engine, folder: Path, *, replace: bool = False) -> Restored:
    """Put the backup in `folder` in place of what the database holds. Raises BackupError.

    A database that holds tables is only overwritten with `replace`, and only once a backup of it lies beside `folder`.
    """
    with (timed := Restored(verify(folder))).phase("verify"):
        check(engine, folder)
    if tables():
        with timed.phase("set_aside"):
            _require_stopped()
            _require_word(replace)
            timed.set_aside = make_backup(engine, folder.resolve().parent).folder
    with timed.phase("load"):
        _load(engine, folder, timed)
    with timed.phase("compare"):
        if wrong := differences(timed.manifest.row_counts, count_rows()):
            raise BackupError(f"What was restored is not what was backed up: {'; '.join(wrong[:5])}.")
    with timed.phase("migrate"):
        call_command("migrate", interactive=False, verbosity=0)
        Heartbeat.objects.all().delete()  # of parts that are not running now
    return timed


def check(engine: Engine, folder: Path) -> Manifest:
    """Whether the backup is whole, of this kind of database, and of no newer Muster. Raises BackupError."""
    manifest = verify(folder)
    if manifest.engine != engine.name:
        raise BackupError(
            f"This backup is of {manifest.engine} and DATABASE_URL names {engine.name}: set it accordingly."
        )
    known = {f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations or ()}
    if newer := unknown_migrations(manifest, known):
        raise BackupError(
            f"This backup is of a newer Muster ({manifest.muster_version}, with {newer[-1]}). Install that one."
        )
    engine.check(folder / manifest.file)
    return manifest


def _load(engine: Engine, folder: Path, timed: Restored) -> None:
    try:
        engine.load(folder / timed.manifest.file)
    except BackupError as error:
        where = f" What it held before is in {timed.set_aside}." if timed.set_aside else ""
        raise BackupError(f"{error}{where}") from error


def _require_word(replace: bool) -> None:
    if not replace:
        raise BackupError(
            f"The database holds {len(tables())} tables. Restore into an empty one, or say --replace: then what it "
            "holds is backed up beside the backup first, and replaced."
        )


def _require_stopped() -> None:
    if Heartbeat._meta.db_table not in tables():
        return
    now = timezone.now()
    alive = sorted(part for part, at in last_beats().items() if at is not None and now - at < RUNNING)
    if alive:
        raise BackupError(
            f"Muster is running on this database ({', '.join(alive)} gave a sign of life within {RUNNING.seconds} s). "
            "Stop web, workers and beat, wait a minute, and restore again."
        )


def _places(root: Path, at: datetime) -> tuple[Path, Path]:
    """The folder to write in, and the name that it gets when it is whole."""
    name = f"{PREFIX}{at:%Y%m%dT%H%M%S.%fZ}"
    staged = root / f".{name}.partial"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        staged.mkdir(mode=0o700)
    except OSError as error:
        raise BackupError(f"{root} cannot be written: {error.strerror}. Name a folder of this user's.") from error
    return staged, root / name


def _make_durable(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o600)
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
