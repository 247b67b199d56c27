"""The one way a state changes: compare-and-set, leaving a transition row."""

from __future__ import annotations

from typing import Any

from django.db import models, transaction
from django.utils import timezone

from apps.core.models import Transition


def transition(
    row: models.Model,
    *,
    old: str | tuple[str, ...],
    new: str,
    reason: str = "",
    actor: str = "",
    field: str = "state",
    **updates: Any,
) -> bool:
    """Move `row` from one of `old` to `new`, setting `updates` with it. False when somebody was first.

    The row in memory is brought up to date on success. Two workers that race see exactly one True.
    """
    allowed = (old,) if isinstance(old, str) else old
    before = getattr(row, field)
    if before not in allowed:
        return False
    with transaction.atomic():
        changed = type(row)._default_manager.filter(pk=row.pk, **{field: before}).update(**{field: new}, **updates)
        if changed != 1:
            return False
        record(row._meta.model_name or "", str(row.pk), old=before, new=new, reason=reason, actor=actor)
    for name, value in {field: new, **updates}.items():
        setattr(row, name, value)
    return True


def record(owner_kind: str, owner_id: str, *, old: str, new: str, reason: str = "", actor: str = "") -> None:
    """Leave the transition row of a change that was made elsewhere (a creation, a bulk update)."""
    Transition.objects.create(
        owner_kind=owner_kind, owner_id=owner_id, old=old, new=new, reason=reason, actor=actor, at=timezone.now()
    )
