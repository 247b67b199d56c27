"""One worker's turn at a transfer: its lease, its time, and what it tells the row meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.protocol.copies import CopyCursor

from apps.core import slices
from apps.core.wakeups import announce
from apps.transfers.models import Transfer, TransferCursor

NOTE_SECONDS = 1.0
LONGEST_WAIT = timedelta(hours=1)


class SliceEnded(Cancelled):
    """The slice's time is over; the transfer is not."""


class SliceControl(JobControl):
    """Ends the work when the slice is over, or when the row was paused, cancelled or taken over."""

    def __init__(self, transfer: Transfer, cursor: CopyCursor, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._transfer, self._cursor, self._monotonic = transfer, cursor, monotonic
        self._began_at = self._noted_at = monotonic()

    def check(self) -> None:
        super().check()
        if self._monotonic() - self._began_at > settings.TRANSFER_SLICE_SECONDS:
            raise SliceEnded("the slice's time is over")

    def note(self) -> None:
        """Tell the row how far it is; from the slice's own thread, since others must not touch its connection."""
        now = self._monotonic()
        if now - self._noted_at < NOTE_SECONDS:
            return
        self._noted_at = now
        if not _mine(self._transfer).update(**progress_of(self._cursor)):
            self.cancel()
        announce(f"transfer:{self._transfer.pk}")

    @property
    def elapsed_seconds(self) -> float:
        return self._monotonic() - self._began_at


def progress_of(cursor: CopyCursor) -> dict[str, int]:
    """The columns that show how far it is."""
    if not cursor.is_surveyed:
        return {"copied_bytes": 0, "proven_bytes": 0}
    return {
        "total_bytes": cursor.total_bytes,
        "copied_bytes": cursor.copied_bytes,
        "proven_bytes": cursor.proven_bytes,
    }


def note_counts(transfer: Transfer, counts: dict[str, int]) -> None:
    """What an agent told of how far it is; the cursor, which knows it for sure, comes with its answer."""
    told = {name: counts[name] for name in ("copied_bytes", "proven_bytes") if name in counts}
    if told:
        _mine(transfer).update(**told)


def add_seconds(transfer: Transfer, column: str, seconds: float) -> None:
    """Time that copying or proving took."""
    spent = getattr(transfer, column) + seconds
    setattr(transfer, column, spent)
    Transfer.objects.filter(pk=transfer.pk).update(**{column: spent})


def is_free(now: datetime) -> Q:
    """No worker or agent is at it."""
    return slices.is_free(now, _lease())


def is_time(now: datetime) -> Q:
    """Its next attempt is due."""
    return slices.is_due(now, LONGEST_WAIT)


def take_lease(transfer: Transfer) -> bool:
    """Keep other workers out for a while; False when one is at it."""
    return slices.take_lease(transfer, lease=_lease(), state=transfer.state)


def _lease() -> timedelta:
    return timedelta(seconds=settings.TRANSFER_LEASE_SECONDS)


def _mine(transfer: Transfer) -> Any:
    return Transfer.objects.filter(pk=transfer.pk, lease_token=transfer.lease_token, state=transfer.state)


def load_cursor(transfer: Transfer) -> CopyCursor:
    """How far it is; an empty one where nothing was begun, or what was saved cannot be read."""
    return slices.unpacked(TransferCursor.objects.filter(transfer=transfer).first(), CopyCursor)


def save_cursor(transfer: Transfer, cursor: CopyCursor) -> None:
    """Only while the lease is held: a slow worker must not overwrite what a later one knows."""
    if not Transfer.objects.filter(pk=transfer.pk, lease_token=transfer.lease_token).exists():
        return
    TransferCursor.objects.update_or_create(transfer=transfer, defaults=slices.packed(cursor))
    Transfer.objects.filter(pk=transfer.pk).update(**progress_of(cursor))


def forget_cursor(transfer: Transfer) -> None:
    TransferCursor.objects.filter(transfer=transfer).delete()
