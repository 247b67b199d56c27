"""Opening, resolving and acknowledging alerts."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.alerts import conditions, events, flapping, messages, rules
from apps.alerts.condition import Condition
from apps.alerts.deciding import Rules, is_exceeded, silence_for
from apps.alerts.models import Alert
from apps.alerts.silences import standing_silences
from apps.core import transitions
from apps.core.errors import Conflict
from apps.core.transitions import transition

AT_ONCE = 500
UNRESOLVED = (Alert.State.OPEN, Alert.State.ACKNOWLEDGED)


def evaluate() -> None:
    """Bring the alerts in line with the rows: called by every sweep, harmless to repeat or to run twice at once."""
    standing = {(row.rule, row.subject_kind, row.subject_id): row for row in Alert.objects.filter(state__in=UNRESOLVED)}
    wrong = _wrong(rules.standing_rules())
    for key, (condition, severity) in wrong.items():
        alert = standing.get(key)
        if alert is None:
            _open(condition, severity)
        elif (alert.summary, alert.severity) != (condition.summary, severity):
            Alert.objects.filter(pk=alert.pk).update(summary=condition.summary, severity=severity)
    for key, alert in standing.items():
        if key not in wrong:
            resolve(alert)
    _tell_untold()
    _tell_calm()


def _tell_untold() -> None:
    """Alerts that just opened, or whose silence has ended; each is told once, and one that flaps as such."""
    now = timezone.now()
    untold = Alert.objects.filter(state__in=UNRESOLVED, notified_at=None).select_related("cluster", "run")
    if not (found := list(untold.order_by("pk")[:AT_ONCE])):
        return
    silences, flaps = standing_silences(now), flapping.look(now)
    for alert in found:
        if silence_for(alert, silences, now) is None and not flaps.keeps(alert):
            _tell(alert, flaps.opened_count(alert))


@transaction.atomic
def _tell(alert: Alert, opened_count: int) -> None:
    """Whoever marks the alert tells it. One that was acknowledged under its silence has its somebody already.
    `opened_count`: how often it opened lately where that is too often, else 0."""
    now, is_open = timezone.now(), alert.state == Alert.State.OPEN
    told = {"notified_at": now, "flapping_at": now if opened_count and is_open else None}
    mine = Alert.objects.filter(pk=alert.pk, notified_at=None, state__in=UNRESOLVED)
    if mine.update(**told) == 1 and is_open:
        alert.notified_at, alert.flapping_at = told["notified_at"], told["flapping_at"]
        events.tell_opened(alert, opened_count)


def _tell_calm() -> None:
    """The end of what was told as flapping, once it stays away."""
    now = timezone.now()
    for alert in flapping.calm(now):
        with transaction.atomic():
            if flapping.end(alert, now):
                events.tell_followup(alert, messages.ALERT_RESOLVED)


def _wrong(every: Rules) -> dict[tuple[str, str, str], tuple[Condition, str]]:
    """Of all conditions those that their rule alerts on, each with its severity."""
    found = {}
    for key, condition in conditions.current().items():
        rule = every.of(condition.rule, condition.cluster_id, condition.run_id)
        if is_exceeded(rule, condition.measured):
            found[key] = condition, rule.severity
    return found


@transaction.atomic
def resolve(alert: Alert) -> bool:
    """Its cause is gone, or its rule does not alert on it any more. False when somebody resolved it first."""
    now, reason = timezone.now(), "the cause is gone"
    if not transition(alert, old=UNRESOLVED, new=Alert.State.RESOLVED, reason=reason, resolved_at=now):
        return False
    if alert.notified_at is not None and alert.flapping_at is None:
        events.tell_followup(alert, messages.ALERT_RESOLVED)
    return True


@transaction.atomic
def acknowledge(*, alert: Alert, actor: str) -> Alert:
    """Somebody is on it. It stays until its cause is gone. Doing it twice changes nothing; a resolved one is a
    Conflict."""
    alert.refresh_from_db()
    if alert.state == Alert.State.RESOLVED:
        raise Conflict("This alert has already been resolved; there is nothing to acknowledge.", code="resolved")
    now = timezone.now()
    if transition(
        alert,
        old=Alert.State.OPEN,
        new=Alert.State.ACKNOWLEDGED,
        actor=actor,
        acknowledged_at=now,
        acknowledged_by=actor,
    ):
        log_activity(
            actor=actor,
            action="alert.acknowledge",
            target_kind="alert",
            target_id=alert.pk,
            cluster_id=alert.cluster_id,
        )
        if alert.notified_at is not None:
            events.tell_followup(alert, messages.ALERT_ACKNOWLEDGED)
    return alert


def _open(condition: Condition, severity: str) -> None:
    """A unique constraint allows one open alert for each subject: of two evaluators one is second."""
    try:
        with transaction.atomic():
            alert = Alert.objects.create(
                cluster_id=condition.cluster_id,
                run_id=condition.run_id,
                rule=condition.rule,
                severity=severity,
                subject_kind=condition.subject_kind,
                subject_id=condition.subject_id,
                summary=condition.summary,
                opened_at=timezone.now(),
            )
            transitions.record("alert", alert.pk, old="", new=alert.state, reason=condition.summary)
    except IntegrityError:
        return
