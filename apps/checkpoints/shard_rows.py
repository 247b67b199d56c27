"""Writing shards, of which one scan may bring a hundred thousand: in one prepared statement, past the ORM.

Measured on 64,000 rows: 2 s instead of 12 s, nearly all of which went into building the same SQL text again.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection

from apps.checkpoints.models import Shard

ShardRow = tuple[str, str, int | None, int | None, int | None, str, int | None]
"""placement id, path, size_bytes, promised_bytes, rank, role, mtime_ns."""

_SQL = f"""
    INSERT INTO {Shard._meta.db_table} (placement_id, path, size_bytes, promised_bytes, rank, role, mtime_ns)
    VALUES (%s, %s, %s, %s, %s, %s, %s)
    ON CONFLICT (placement_id, path) DO UPDATE SET size_bytes = excluded.size_bytes,
        promised_bytes = excluded.promised_bytes, rank = excluded.rank, role = excluded.role,
        mtime_ns = excluded.mtime_ns
"""


def upsert_shards(rows: Iterable[ShardRow]) -> None:
    """Insert or bring up to date, in the caller's transaction."""
    listed = list(rows)
    if listed:
        with connection.cursor() as cursor:
            cursor.executemany(_SQL, listed)
