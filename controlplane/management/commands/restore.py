"""`manage.py restore BACKUP [--replace] [--check]`: put a backup back, and say how long it took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.core.backups import services
from apps.core.backups.engines import engine_of
from apps.core.backups.manifest import BackupError, Manifest
from apps.drills.services import stop_all_drills

ACTOR = "manage.py restore"


class Command(BaseCommand):
    help = "Restore Muster's own database from a backup that `manage.py backup` made. Stop web, workers and beat first."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backup", type=Path, help="the folder that `manage.py backup` printed")
        parser.add_argument(
            "--replace", action="store_true", help="although the database holds something: it is backed up first"
        )
        parser.add_argument(
            "--check", action="store_true", help="only say whether the backup is whole and could be restored here"
        )
        parser.add_argument(
            "--programs", type=Path, metavar="DIR", help="where pg_dump and pg_restore are (default: PATH)"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            engine = engine_of(options["programs"])
            if options["check"]:
                self._tell_checked(services.check(engine, options["backup"]))
                return
            restored = services.restore(engine, options["backup"], replace=options["replace"])
        except BackupError as error:
            raise CommandError(str(error)) from error
        self._conclude(options["backup"].name, restored)

    def _tell_checked(self, manifest: Manifest) -> None:
        self.stderr.write(
            f"Whole: {sum(manifest.row_counts.values())} rows as of {manifest.created_at:%Y-%m-%d %H:%M:%S} UTC."
        )

    def _conclude(self, name: str, restored: services.Restored) -> None:
        """What the backup takes for drills under way ended long ago, and plans that came due meanwhile must not fire at
        once on training that somebody else looks after by now: drills stay stopped until a person allows them."""
        manifest = restored.manifest
        reason = f"Restored from the backup of {manifest.created_at:%Y-%m-%d %H:%M} UTC; allow drills once you looked."
        stop_all_drills(actor=ACTOR, reason=reason)
        told = {
            "backup": name,
            "age_seconds": round((timezone.now() - manifest.created_at).total_seconds(), 1),
            "rows": sum(manifest.row_counts.values()),
            "time_to_restore_seconds": round(restored.seconds, 3),
            "phase_seconds": {phase: round(seconds, 3) for phase, seconds in restored.phase_seconds.items()},
            "set_aside": str(restored.set_aside) if restored.set_aside else None,
        }
        log_activity(actor=ACTOR, action="backup.restore", target_kind="backup", target_id=name[:64], detail=told)
        self.stdout.write(json.dumps(told, indent=2))
        self.stderr.write("Restored. Drills are stopped; start Muster, look, then `manage.py drills allow`.")
