"""Alerts that open and close again and again: told once as flapping, not each time, until it has been calm.

The rule: what was told COUNT times within WINDOW opens once more, and that is told as flapping. From then on nothing of
the same rule and subject is told, until no alert of it stands and none has for WINDOW; then its end is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Exists, OuterRef, Q

from apps.alerts.models import Alert

COUNT = 3
WINDOW = timedelta(hours=1)
Key = tuple[str, str, str]
_KEY = ("rule", "subject_kind", "subject_id")
_STANDING = Q(flapping_at__isnull=False, calm_at=None)


@dataclass(frozen=True)
class Flapping:
    """`standing`: what was told as flapping and is not calm yet. `told_counts`: how often each was told in WINDOW."""

    standing: frozenset[Key]
    told_counts: dict[Key, int]

    def keeps(self, alert: Alert) -> bool:
        return key_of(alert) in self.standing

    def opened_count(self, alert: Alert) -> int:
        """How often it has opened within WINDOW where it flaps now; else 0."""
        told_count = self.told_counts.get(key_of(alert), 0)
        return told_count + 1 if told_count >= COUNT else 0


def key_of(alert: Alert) -> Key:
    return alert.rule, alert.subject_kind, alert.subject_id


def look(now: datetime) -> Flapping:
    """Two queries, however many alerts there are."""
    standing = frozenset(Alert.objects.filter(_STANDING).values_list(*_KEY))
    told = Alert.objects.filter(notified_at__gte=now - WINDOW).order_by().values_list(*_KEY)
    often = told.annotate(count=Count("pk")).filter(count__gte=COUNT)
    return Flapping(standing, {(rule, kind, subject): count for rule, kind, subject, count in often})


def calm(now: datetime) -> list[Alert]:
    """Told as flapping, and calm since."""
    restless = Alert.objects.filter(**{name: OuterRef(name) for name in _KEY})
    restless = restless.filter(Q(resolved_at=None) | Q(resolved_at__gt=now - WINDOW))
    flapping = Alert.objects.filter(_STANDING, state=Alert.State.RESOLVED).select_related("cluster", "run")
    return list(flapping.filter(~Exists(restless)).order_by("pk"))


def end(alert: Alert, now: datetime) -> bool:
    """False when somebody was first."""
    return Alert.objects.filter(_STANDING, pk=alert.pk).update(calm_at=now) == 1
