"""The activity log: entries are only ever added, each chained to the one before, in the transaction of their change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts import activity_chain as chain
from apps.accounts.models import ActivityCheck, ActivityEntry, ActivityHead

AT_ONCE = 1000
COLUMNS = (*chain.FIELDS, "digest")
ONLY = 1
"""The head is one row."""


@transaction.atomic(savepoint=False)
def append(entries: Sequence[ActivityEntry]) -> None:
    """Put these behind the last one; gives them their ids and digests.

    Writers stand in line from here to the end of their transactions. PostgreSQL waits at the row; that nobody took the
    head meanwhile is what the comparison says, on every database.
    """
    while True:
        head = ActivityHead.objects.select_for_update().get_or_create(
            pk=ONLY, defaults={"last_id": 0, "digest": chain.GENESIS}
        )[0]
        last_id, digest = _link(entries, head.last_id, head.digest)
        mine = ActivityHead.objects.filter(pk=ONLY, digest=head.digest)
        if mine.update(last_id=last_id, digest=digest) == 1:
            ActivityEntry.objects.bulk_create(entries, batch_size=AT_ONCE)
            return


def _link(entries: Sequence[ActivityEntry], last_id: int, digest: str) -> tuple[int, str]:
    for entry in entries:
        last_id += 1
        entry.pk, entry.previous, entry.detail = last_id, digest, chain.plain(entry.detail)
        entry.digest = digest = chain.digest_of({name: getattr(entry, name) for name in chain.FIELDS})
    return last_id, digest


def check() -> ActivityCheck:
    """Read the whole chain, and keep what was found."""
    head = ActivityHead.objects.filter(pk=ONLY).first()
    last_id, digest = (head.last_id, head.digest) if head else (0, chain.GENESIS)
    found = chain.check(rows_until(last_id), last_id, digest)
    return ActivityCheck.objects.create(
        at=timezone.now(), up_to_id=found.up_to_id, entry_count=found.entry_count, broken_id=found.broken_id,
        problem=found.problem,
    )  # fmt: skip


def last_check() -> ActivityCheck | None:
    return ActivityCheck.objects.order_by("-pk").first()


def rows_until(last_id: int, after_id: int = 0) -> Iterator[Mapping[str, Any]]:
    """Entries in their order, read some at a time, however many there are."""
    while True:
        rows = ActivityEntry.objects.filter(pk__gt=after_id, pk__lte=last_id).order_by("pk")
        page = list(rows.values(*COLUMNS)[:AT_ONCE])
        yield from page
        if len(page) < AT_ONCE:
            return
        after_id = page[-1]["id"]


def export(after_id: int = 0) -> Iterator[bytes]:
    """All entries behind `after_id` there are now, as lines of `activity_chain.line_of`, many in a piece."""
    newest = ActivityEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    piece: list[bytes] = []
    for row in rows_until(newest, after_id):
        piece.append(chain.line_of(row))
        if len(piece) == AT_ONCE:
            yield b"".join(piece)
            piece = []
    yield b"".join(piece)
