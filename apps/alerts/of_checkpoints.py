"""The beginnings and the ends of checkpoints as events: known for the first time, complete for the first time, expired.

A checkpoint is told of once, not once for each of its copies; and what the first inventory of a tier finds there from
long ago is no news.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from apps.alerts.drafts import draft_of
from apps.alerts.events import MAX_TEXT, Draft, iso
from apps.checkpoints.models import Placement
from apps.core.models import Transition
from apps.transfers.models import Transfer

OWNER_KIND = "placement"
NEWS = timedelta(days=1)
"""A checkpoint that was saved longer before it became known is none."""
_UNFINISHED = (
    "", Placement.Status.UNKNOWN, Placement.Status.IN_PROGRESS, Placement.Status.UNCOMMITTED,
    Placement.Status.INCOMPLETE,
)  # fmt: skip


def may_be(row: Transition) -> Sequence[str]:
    known = ("checkpoint.registered",) if row.old == "" else ()
    complete = row.new == Placement.Status.COMPLETE and row.old in _UNFINISHED
    return (*known, "checkpoint.completed") if complete else known


def find(pk: str) -> Placement | None:
    return Placement.objects.select_related("checkpoint__run", "tier__cluster").filter(pk=pk).first()


def types(row: Transition, copy: Placement) -> Sequence[str]:
    saved_at = copy.checkpoint.saved_at
    if saved_at is not None and saved_at < row.at - NEWS:
        return ()
    first = {"checkpoint.registered": _is_first_copy, "checkpoint.completed": _is_first_complete}
    return [one for one in may_be(row) if first[one](row, copy)]


def _is_first_copy(_row: Transition, copy: Placement) -> bool:
    return not Placement.objects.filter(checkpoint=copy.checkpoint_id, pk__lt=copy.pk).exists()  # ids sort by time


def _is_first_complete(row: Transition, copy: Placement) -> bool:
    copies = Placement.objects.filter(checkpoint=copy.checkpoint_id).values_list("pk", flat=True)
    before = Transition.objects.filter(owner_kind=OWNER_KIND, owner_id__in=list(copies), pk__lt=row.pk)
    return not before.filter(new=Placement.Status.COMPLETE).exists()


def became_known_or_complete(row: Transition, copy: Placement, event_type: str) -> Draft:
    checkpoint = copy.checkpoint
    how = "is known" if event_type == "checkpoint.registered" else "is complete"
    data = {
        **of_copy(copy), "format": checkpoint.format, "world_size": checkpoint.world_size,
        "total_bytes": copy.total_bytes, "status": row.new, "resumable": copy.resumable,
        "saved_at": iso(checkpoint.saved_at),
        "summary": f"Step {checkpoint.step} of {checkpoint.run.name} {how} on {copy.tier.name}."[:MAX_TEXT],
    }  # fmt: skip
    return draft_of(row, event_type, copy.tier.cluster_id, _subject(checkpoint.pk), data)


def expired(row: Transition, transfer: Transfer) -> Draft:
    """`copy_count`: how many copies are left, on any tier."""
    copy, checkpoint = transfer.source, transfer.checkpoint
    rest = Placement.objects.filter(checkpoint=checkpoint).exclude(pk=copy.pk)
    copy_count = rest.exclude(listed_status=Placement.Status.MISSING).count()
    left = f"{copy_count} of its copies are left" if copy_count else "no copy is left"
    step = f"Step {checkpoint.step} of {checkpoint.run.name}"
    data = {
        **of_copy(copy), "transfer": transfer.pk, "copy_count": copy_count,
        "summary": f"{step} on {copy.tier.name} has expired; {left}."[:MAX_TEXT],
    }  # fmt: skip
    return draft_of(row, "checkpoint.expired", transfer.cluster_id, _subject(checkpoint.pk), data)


def _subject(checkpoint_id: str) -> str:
    return f"checkpoint/{checkpoint_id}"


def of_copy(copy: Placement) -> dict[str, Any]:
    """What every event about a copy says of it."""
    checkpoint, tier = copy.checkpoint, copy.tier
    return {
        "checkpoint": checkpoint.pk, "step": checkpoint.step, "run": checkpoint.run_id,
        "run_name": checkpoint.run.name, "placement": copy.pk, "path": copy.path[:MAX_TEXT], "tier_name": tier.name,
        "cluster": tier.cluster_id, "cluster_name": tier.cluster.name, "page": f"/checkpoints/{checkpoint.pk}/",
    }  # fmt: skip
