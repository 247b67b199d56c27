"""What all events that come of a transition say."""

from __future__ import annotations

from typing import Any

from apps.alerts.events import MAX_TEXT, Draft
from apps.core.models import Transition


def draft_of(row: Transition, event_type: str, cluster_id: str, subject: str, data: dict[str, Any]) -> Draft:
    """`data` with the change itself. A change may be several events, each told once."""
    change = {"old": row.old, "new": row.new, "reason": row.reason[:MAX_TEXT], "actor": row.actor}
    source_key = f"transition:{row.pk}:{event_type}"
    return Draft(event_type, subject, cluster_id, {**data, **change}, row.at, source_key=source_key)
