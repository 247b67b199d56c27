"""What a checkpoint says of itself, taken from its best copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from apps.checkpoints.intake import Listed
from apps.checkpoints.models import Checkpoint, Placement

LAYOUT = ("format", "world_size", "dp", "tp", "pp", "ep", "must_match")
"""What each copy tells, too."""
_DESCRIBED = [*LAYOUT, "total_bytes", "saved_at"]


def describe_checkpoints(checkpoint_ids: Iterable[str], batch: Sequence[Listed], rows: Mapping[str, Placement]) -> None:
    """Format, world size, size and time of the save, where this batch changed the copy that speaks for a checkpoint:
    a complete one before others, then the one seen first (a copy made later has later times)."""
    ids = set(checkpoint_ids)
    copies: dict[str, list[Placement]] = defaultdict(list)
    for row in Placement.objects.filter(checkpoint__in=ids).only(
        "checkpoint", "path", "tier", "status", "first_seen_at", "newest_mtime_at"
    ):
        copies[row.checkpoint_id].append(row)
    listed = {rows[item.path].pk: item for item in batch}
    stale = []
    for checkpoint in Checkpoint.objects.filter(pk__in=ids):
        speaker = min(copies[checkpoint.pk], key=_rank, default=None)
        item = listed.get(speaker.pk) if speaker is not None else None
        if item is not None and item.was_read and _describe(checkpoint, item):
            stale.append(checkpoint)
    if stale:
        Checkpoint.objects.bulk_update(stale, _DESCRIBED)


def _rank(row: Placement) -> tuple[bool, object, str]:
    return (row.status != Placement.Status.COMPLETE, row.first_seen_at, row.pk)


def _describe(checkpoint: Checkpoint, item: Listed) -> bool:
    """Whether anything changed."""
    values = {
        **{name: getattr(item, name) for name in LAYOUT},
        "total_bytes": item.total_bytes,
        "saved_at": item.newest_mtime_at,
    }
    changed = any(getattr(checkpoint, name) != value for name, value in values.items())
    for name, value in values.items():
        setattr(checkpoint, name, value)
    return changed
