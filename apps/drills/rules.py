"""Changing what a cluster lets drills do, and approving single ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.models import TrainingRun
from apps.core import cron
from apps.core.dispatch import wake_owner
from apps.core.errors import Conflict, InvalidInput
from apps.drills import safety, windows
from apps.drills.finish import OWNER_KIND, UNFINISHED
from apps.drills.models import Drill, DrillRules
from apps.fleet.models import Cluster

FIELDS = ("needs_approval", "plan_only", "windows", "time_zone", "max_nodes", "max_tier_ratio", "breaker_failures")
_MAX_WINDOWS = 20


@transaction.atomic
def update_rules(*, cluster: Cluster, changes: Mapping[str, Any], actor: str) -> DrillRules:
    """Change some rules. `protected_runs` is the whole list, by name or id. Raises InvalidInput that names a field."""
    _check(changes)
    runs = _runs(cluster, changes["protected_runs"]) if "protected_runs" in changes else None
    rules, _made = DrillRules.objects.get_or_create(cluster=cluster)
    for name in FIELDS:
        if name in changes:
            setattr(rules, name, changes[name])
    rules.save()
    if runs is not None:
        rules.protected_runs.set(runs)
    detail = {"fields": sorted(changes)}
    log_activity(
        actor=actor,
        action="rules.update",
        target_kind="cluster",
        target_id=cluster.pk,
        cluster_id=cluster.pk,
        detail=detail,
    )
    return rules


@transaction.atomic
def reset_breaker(*, cluster: Cluster, actor: str) -> DrillRules:
    """Let disruptive drills start again after several went wrong; those before now do not count any more."""
    rules, _made = DrillRules.objects.get_or_create(cluster=cluster)
    rules.breaker_reset_at = timezone.now()
    rules.save(update_fields=["breaker_reset_at"])
    log_activity(
        actor=actor, action="rules.reset_breaker", target_kind="cluster", target_id=cluster.pk, cluster_id=cluster.pk
    )
    return rules


@transaction.atomic
def approve(*, drill: Drill, actor: str) -> Drill:
    """A second person lets a waiting disruptive drill begin. Raises Conflict for whoever asked for it themselves."""
    if drill.requested_by == actor:
        raise Conflict("Somebody else must approve what you asked for.", code="own_request")
    now = timezone.now()
    waiting = Drill.objects.filter(pk=drill.pk, approved_at=None, state__in=UNFINISHED, started_at=None)
    if not safety.waits_for_approval(drill) or waiting.update(approved_at=now, approved_by=actor) != 1:
        raise Conflict("This drill does not wait for an approval.", code="not_waiting")
    log_activity(
        actor=actor, action="drill.approve", target_kind="drill", target_id=drill.pk, cluster_id=drill.cluster_id
    )
    drill.refresh_from_db()
    wake_owner(OWNER_KIND, drill.pk)
    return drill


def _check(changes: Mapping[str, Any]) -> None:
    texts = changes.get("windows", [])
    if not isinstance(texts, list) or len(texts) > _MAX_WINDOWS or not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"Give at most {_MAX_WINDOWS} windows as texts.", pointer="/windows")
    try:
        for text in texts:
            windows.parse(text)
        if "time_zone" in changes:
            cron.require_zone(changes["time_zone"])
    except windows.BadWindow as problem:
        raise InvalidInput(str(problem), pointer="/windows") from problem
    except cron.BadSchedule as problem:
        raise InvalidInput(problem.detail, pointer="/time_zone") from problem


def _runs(cluster: Cluster, wanted: Sequence[str]) -> list[TrainingRun]:
    known = TrainingRun.objects.filter(cluster=cluster)
    found = {key: run for run in known for key in (run.pk, run.name)}
    unknown = [name for name in wanted if name not in found]
    if unknown:
        raise InvalidInput(f"{cluster.name} has no run {unknown[0]!r}.", pointer="/protected_runs")
    return [found[name] for name in wanted]
