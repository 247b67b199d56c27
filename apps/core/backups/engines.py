"""What the two kinds of database do differently, behind one small contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from django.db import connection

from apps.core.backups.manifest import BackupError

Counts = dict[str, int]


class Engine(Protocol):
    """Every method may raise BackupError."""

    name: str
    file: str

    def version(self) -> str: ...

    def dump(self, target: Path) -> Counts:
        """Write the whole database, as it is at one moment, and count its rows at that moment."""

    def check(self, dumped: Path) -> None:
        """Whether the engine itself can read what was dumped."""

    def load(self, dumped: Path) -> None:
        """Replace whatever the database holds."""


def engine_of(programs: Path | None = None) -> Engine:
    """That of the configured database. `programs`: the folder of PostgreSQL's own, else PATH's."""
    if connection.vendor == "sqlite":
        from apps.core.backups.sqlite import Sqlite

        return Sqlite(Path(str(connection.settings_dict["NAME"])))
    if connection.vendor == "postgresql":
        from apps.core.backups.postgres import Postgres

        return Postgres(connection.settings_dict, programs)
    raise BackupError(f"Muster cannot back up a {connection.vendor} database.")


def count_rows() -> Counts:
    """Rows by table, through Django's connection, inside the caller's transaction where there is one."""
    with connection.cursor() as cursor:
        return {table: _count(cursor, table) for table in tables()}


def tables() -> list[str]:
    """The tables of the database, in order; views are none."""
    with connection.cursor() as cursor:
        told = connection.introspection.get_table_list(cursor)
    return sorted(one.name for one in told if one.type in ("t", "p"))


def _count(cursor: Any, table: str) -> int:
    cursor.execute(f"SELECT COUNT(*) FROM {connection.ops.quote_name(table)}")
    return int(cursor.fetchone()[0])
