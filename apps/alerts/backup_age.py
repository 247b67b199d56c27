"""How old the newest backup of Muster's own database is: one that nobody makes any more is missed when it is needed."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Min

from apps.accounts.models import ActivityEntry
from apps.alerts.condition import Condition
from apps.alerts.models import Alert
from apps.fleet.models import Cluster


def made_at() -> datetime | None:
    """When `manage.py backup` last made one; None where it never did."""
    made = ActivityEntry.objects.filter(action="backup.create").order_by("-at").values_list("at", flat=True)
    return made.first()


def seconds(now: datetime) -> float | None:
    """Of the newest backup; None where there is none."""
    at = made_at()
    return None if at is None else max(0.0, (now - at).total_seconds())


def conditions(now: datetime) -> list[Condition]:
    """One candidate: since the newest backup or, where there is none, since the first cluster; none on a Muster that
    holds nothing yet."""
    at = made_at()
    since = at or Cluster.objects.aggregate(at=Min("created_at"))["at"]
    if since is None:
        return []
    what = f"was last backed up at {at:%Y-%m-%d %H:%M} UTC" if at else "was never backed up"
    summary = f"Muster's own database {what}: see the timer that runs `manage.py backup`."
    measured = (now - since).total_seconds()
    return [Condition(Alert.Rule.BACKUP_OLD, "database", "muster", None, summary, measured=measured)]
