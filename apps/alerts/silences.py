"""Writing and reading silences."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.alerts.models import RuleKind, Silence
from apps.checkpoints.models import TrainingRun
from apps.core.errors import Conflict, InvalidInput
from apps.fleet.models import Cluster

LONGEST = timedelta(days=90)


def silence_rows() -> QuerySet[Silence]:
    return Silence.objects.select_related("cluster", "run")


def standing_silences(now: datetime | None = None) -> list[Silence]:
    """Those that hold now, the longest first. One query."""
    at = now or timezone.now()
    return list(Silence.objects.filter(starts_at__lte=at, ends_at__gt=at).order_by("-ends_at", "pk"))


@transaction.atomic
def create_silence(
    *,
    reason: str,
    ends_at: datetime,
    actor: str,
    cluster: Cluster | None = None,
    starts_at: datetime | None = None,
    run: TrainingRun | None = None,
    **matcher: str,
) -> Silence:
    """Keep matching alerts from being told until `ends_at`; `matcher` is any of rule, subject_id and summary_contains.
    Raises InvalidInput for one that would match nothing, has ended, or lasts longer than 90 days."""
    now = timezone.now()
    begins = starts_at or now
    silence = Silence(
        reason=reason.strip(), starts_at=begins, ends_at=ends_at, cluster=cluster, run=run, created_by=actor,
        created_at=now, **matcher,
    )  # fmt: skip
    _check(silence, now)
    silence.save()
    log_activity(
        actor=actor,
        action="silence.create",
        target_kind="silence",
        target_id=silence.pk,
        cluster_id=silence.cluster_id,
        detail=_detail(silence),
    )
    return silence


@transaction.atomic
def end_silence(*, silence: Silence, actor: str) -> Silence:
    """End it now; what is still wrong is told then. Raises Conflict where it has ended."""
    now = timezone.now()
    ended = Silence.objects.filter(pk=silence.pk, ends_at__gt=now).update(ends_at=now, ended_by=actor)
    if not ended:
        raise Conflict("This silence has ended already.", code="ended")
    silence.refresh_from_db()
    log_activity(
        actor=actor, action="silence.end", target_kind="silence", target_id=silence.pk, cluster_id=silence.cluster_id
    )
    return silence


def _check(silence: Silence, now: datetime) -> None:
    if not silence.reason:
        raise InvalidInput("Say why; whoever is on call next will want to know.", pointer="/reason")
    if silence.ends_at <= max(now, silence.starts_at):
        raise InvalidInput("A silence ends in the future, and after it began.", pointer="/ends_at")
    if silence.ends_at - max(now, silence.starts_at) > LONGEST:
        told = f"A silence lasts at most {LONGEST.days} days; disable the rule to be rid of its alerts."
        raise InvalidInput(told, pointer="/ends_at")
    if silence.rule and silence.rule not in RuleKind.values:
        raise InvalidInput(f"Use one of {', '.join(RuleKind.values)}.", pointer="/rule")
    run = silence.run
    if run is not None and silence.cluster_id is not None and run.cluster_id != silence.cluster_id:
        raise InvalidInput("This run is of another cluster.", pointer="/run")


def _detail(silence: Silence) -> dict[str, str | None]:
    return {
        "reason": silence.reason, "ends_at": silence.ends_at.isoformat(), "cluster": silence.cluster_id,
        "rule": silence.rule, "run": silence.run_id, "subject_id": silence.subject_id,
        "summary_contains": silence.summary_contains,
    }  # fmt: skip
