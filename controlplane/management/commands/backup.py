"""`manage.py backup FOLDER [--keep N]`: Muster's own database, while it works; prints where the backup is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.services import log_activity
from apps.core.backups import services
from apps.core.backups.engines import engine_of
from apps.core.backups.manifest import BackupError


class Command(BaseCommand):
    help = "Back up Muster's own database into a new folder below FOLDER, and read it again. Muster may go on working."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)
        parser.add_argument("--keep", type=int, metavar="N", help="then remove all but the newest N backups there")
        parser.add_argument(
            "--programs", type=Path, metavar="DIR", help="where pg_dump and pg_restore are (default: PATH)"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["keep"] is not None and options["keep"] < 1:
            raise CommandError("--keep takes 1 or more: the backup that is made now stays.")
        try:
            made = services.make_backup(engine_of(options["programs"]), options["folder"])
        except BackupError as error:
            raise CommandError(str(error)) from error
        told = made.manifest
        log_activity(
            actor="manage.py", action="backup.create", target_kind="backup", target_id=made.folder.name[:64],
            detail={"size_bytes": told.size_bytes, "seconds": told.backup_seconds},
        )  # fmt: skip
        self.stdout.write(str(made.folder))
        rows = sum(told.row_counts.values())
        self.stderr.write(
            f"{rows} rows, {told.size_bytes} bytes, in {told.backup_seconds:.1f} s; read again and whole."
        )
        if options["keep"] is not None:
            for gone in services.remove_older(options["folder"], options["keep"]):
                self.stderr.write(f"removed {gone}")
