"""PostgreSQL through pg_dump and pg_restore. The password goes through the environment, never through the arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from django.db import connection, transaction
from psycopg.conninfo import make_conninfo

from apps.core.backups.engines import count_rows, tables
from apps.core.backups.manifest import BackupError

SAID_CHARACTERS = 2000
OWN_FUNCTIONS = (
    "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace AND NOT "
    "EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')"
)
"""Those of triggers; not what an extension brought."""


class Postgres:
    name = "postgresql"
    file = "muster.pgdump"

    def __init__(self, settings: dict[str, Any], programs: Path | None = None) -> None:
        self._settings = settings
        self._programs = programs

    def version(self) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version")
            return str(cursor.fetchone()[0])

    @transaction.atomic
    def dump(self, target: Path) -> dict[str, int]:
        """pg_dump and the counting look at one exported snapshot, so that they agree while others write."""
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT pg_export_snapshot()")
            snapshot = str(cursor.fetchone()[0])
        self._run(
            "pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={target}",
            f"--dbname={self._address()}",
        )  # fmt: skip
        return count_rows()

    def check(self, dumped: Path) -> None:
        self._run("pg_restore", "--list", str(dumped))

    def load(self, dumped: Path) -> None:
        """What is there goes first; a dump that cannot be loaded leaves the database empty, and says so."""
        self._drop_tables()
        connection.close()
        self._run(
            "pg_restore", "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges",
            f"--dbname={self._address()}", str(dumped),
        )  # fmt: skip

    @transaction.atomic
    def _drop_tables(self) -> None:
        with connection.cursor() as cursor:
            for table in tables():
                cursor.execute(f"DROP TABLE IF EXISTS {connection.ops.quote_name(table)} CASCADE")
            cursor.execute(OWN_FUNCTIONS)
            for (function,) in cursor.fetchall():
                cursor.execute(f"DROP FUNCTION IF EXISTS {function} CASCADE")

    def _address(self) -> str:
        """For libpq, without the password."""
        options = {name: value for name, value in self._settings["OPTIONS"].items() if name != "pool"}
        parts = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER"}
        told = {name: self._settings[setting] for name, setting in parts.items() if self._settings[setting]}
        return make_conninfo(**{**options, **told})

    def _run(self, program: str, *arguments: str) -> None:
        found = str(self._programs / program) if self._programs else shutil.which(program)
        if not found or not os.access(found, os.X_OK):
            raise BackupError(
                f"There is no {program} here: install PostgreSQL's client programs, no older than the server, or name "
                "their folder with --programs."
            )
        environment = {**os.environ, "PGPASSWORD": str(self._settings["PASSWORD"])}
        done = subprocess.run([found, *arguments], env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BackupError(f"{program} failed: {done.stderr.strip()[-SAID_CHARACTERS:]}")
