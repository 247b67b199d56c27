"""How long what should have been told by now has been waiting: a Muster that finds trouble and tells nobody is blind
too."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Min

from apps.alerts.deliveries import due_rows
from apps.core.models import Transition


def seconds(now: datetime) -> float:
    """Of the delivery that has been due longest, or the oldest change that nobody looked at for events; 0 where nothing
    waits. A delivery whose next try is still to come does not wait: its receiver is at fault."""
    due = due_rows().aggregate(at=Min("next_attempt_at"))["at"]
    change = Transition.objects.filter(processed_at=None).order_by("pk").values_list("at", flat=True).first()
    oldest = min((at for at in (due, change) if at is not None), default=now)
    return max(0.0, (now - oldest).total_seconds())
