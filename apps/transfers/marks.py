"""Pins and labels: what people say of a checkpoint that policies must heed."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.models import Checkpoint
from apps.core.errors import Conflict, InvalidInput
from apps.transfers.models import CheckpointLabel, CheckpointPin
from apps.transfers.policies import is_label


def marks_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Whether it is pinned, by whom and why, and its labels."""
    pinned = getattr(checkpoint, "pin", None)
    return {
        "pinned": pinned is not None,
        "pin_reason": pinned.reason if pinned else None,
        "pinned_by": pinned.pinned_by if pinned else None,
        "labels": sorted(row.label for row in checkpoint.labels.all()),
    }


@transaction.atomic
def pin(*, checkpoint: Checkpoint, reason: str, actor: str) -> CheckpointPin:
    """Keep a checkpoint for good, wherever it lies. Pinning again changes the reason."""
    if not reason.strip() or len(reason) > 500:
        raise InvalidInput("Say in up to 500 characters why it is to be kept.", pointer="/reason")
    row, _created = CheckpointPin.objects.update_or_create(
        checkpoint=checkpoint,
        defaults={"reason": reason.strip(), "pinned_by": actor},
        create_defaults={"reason": reason.strip(), "pinned_by": actor, "created_at": timezone.now()},
    )
    _log_mark(checkpoint, "pin", actor, {"reason": reason.strip()})
    return row


@transaction.atomic
def unpin(*, checkpoint: Checkpoint, actor: str) -> None:
    """Let policies decide again. Raises Conflict where it is not pinned."""
    count, _rows = CheckpointPin.objects.filter(checkpoint=checkpoint).delete()
    if not count:
        raise Conflict("This checkpoint is not pinned.")
    _log_mark(checkpoint, "unpin", actor, {})


@transaction.atomic
def set_labels(*, checkpoint: Checkpoint, labels: list[str], actor: str) -> list[str]:
    """Make these the checkpoint's labels. Gives them sorted."""
    wanted = sorted(set(labels))
    if len(wanted) > 20 or not all(is_label(label) for label in wanted):
        raise InvalidInput("Give at most 20 labels of a-z, 0-9, -, _ and dots, 63 characters each.", pointer="/labels")
    CheckpointLabel.objects.filter(checkpoint=checkpoint).exclude(label__in=wanted).delete()
    CheckpointLabel.objects.bulk_create(
        [
            CheckpointLabel(checkpoint=checkpoint, label=label, created_by=actor, created_at=timezone.now())
            for label in wanted
        ],
        ignore_conflicts=True,
    )
    _log_mark(checkpoint, "label", actor, {"labels": wanted})
    return wanted


def _log_mark(checkpoint: Checkpoint, verb: str, actor: str, detail: dict[str, Any]) -> None:
    log_activity(
        actor=actor,
        action=f"checkpoint.{verb}",
        target_kind="checkpoint",
        target_id=checkpoint.pk,
        cluster_id=checkpoint.run.cluster_id,
        detail=detail,
    )
