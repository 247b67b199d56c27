"""Writing audit policies."""

from __future__ import annotations

import math
import re
import secrets
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.audits.handing import UNFINISHED, finish
from apps.audits.models import Audit, AuditPolicy
from apps.audits.outcomes import Verdict
from apps.audits.services import MAX_SEED
from apps.core import cron
from apps.core.errors import Conflict, InvalidInput
from apps.fleet.models import Cluster

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SCHEDULE = frozenset({"cron", "time_zone", "enabled"})
_ROTATION = frozenset({"mode", "sample_ratio"})
CHANGEABLE = frozenset(
    {
        "name", "run", "tier", "newest", "mode", "sample_ratio", "skip_verified_days", "max_bytes_per_second",
        "at_once", "through_cache", "where", "repairs", *_SCHEDULE, "missed",
    }
)  # fmt: skip
_CHOICES = {"mode": AuditPolicy.Mode, "where": AuditPolicy.Where, "missed": AuditPolicy.Missed}
_COUNTS = {"newest": 2**31 - 1, "max_bytes_per_second": 2**63 - 1, "at_once": 1000}


@transaction.atomic
def create_policy(*, cluster: Cluster, name: str, actor: str, **details: Any) -> AuditPolicy:
    """Raises InvalidInput for what makes no sense, Conflict where another policy has its name."""
    _require_known(details)
    policy = AuditPolicy(
        cluster=cluster,
        name=name,
        seed=secrets.randbelow(MAX_SEED),
        created_by=actor,
        created_at=timezone.now(),
        **details,
    )
    _schedule(policy)
    _save(policy)
    _log(policy, "create", actor, {"mode": policy.mode})
    return policy


@transaction.atomic
def update_policy(*, policy: AuditPolicy, changes: dict[str, Any], actor: str) -> AuditPolicy:
    """Change fields; audits that are under way go on as they are. Another mode or ratio begins a new rotation."""
    _require_known(changes)
    if any(name in changes and changes[name] != getattr(policy, name) for name in _ROTATION):
        policy.seed = secrets.randbelow(MAX_SEED)
    for name, value in changes.items():
        setattr(policy, name, value)
    if changes.keys() & _SCHEDULE:
        _schedule(policy)
    _save(policy)
    _log(policy, "update", actor, {"fields": sorted(changes)})
    return policy


@transaction.atomic
def delete_policy(*, policy: AuditPolicy, actor: str) -> None:
    """Remove a policy and the list of its rounds. Its audits stay as evidence; those that wait are cancelled."""
    waiting = Audit.objects.filter(round__policy=policy, state__in=UNFINISHED, handed_out_at=None)
    for audit in waiting.order_by("-pk"):
        audit.round = None  # so that its end hands out no other one
        finish(audit, Verdict(Audit.Outcome.CANCELLED, f"its policy was deleted by {actor}"))
    _log(policy, "delete", actor, {"name": policy.name})
    policy.delete()


def _log(policy: AuditPolicy, verb: str, actor: str, detail: dict[str, Any]) -> None:
    log_activity(
        actor=actor,
        action=f"audit_policy.{verb}",
        target_kind="audit_policy",
        target_id=policy.pk,
        cluster_id=policy.cluster_id,
        detail=detail,
    )


def _require_known(details: dict[str, Any]) -> None:
    unknown = sorted(details.keys() - CHANGEABLE)
    if unknown:
        raise InvalidInput(f"An audit policy has no changeable field {unknown[0]!r}.", pointer=f"/{unknown[0]}")


def _schedule(policy: AuditPolicy) -> None:
    policy.cron, policy.time_zone = policy.cron.strip(), policy.time_zone.strip()
    try:
        cron.require_zone(policy.time_zone)
        following = cron.next_time(policy.cron, policy.time_zone, timezone.now()) if policy.cron else None
    except cron.BadSchedule as problem:
        raise InvalidInput(problem.detail, pointer=f"/{problem.field}") from problem
    policy.next_at = following if policy.enabled else None


def _save(policy: AuditPolicy) -> None:
    _check(policy)
    try:
        with transaction.atomic():
            policy.save()
    except IntegrityError as error:
        raise Conflict(f"Another audit policy of this cluster is called {policy.name!r}.") from error


def _check(policy: AuditPolicy) -> None:
    if not _NAME.fullmatch(policy.name):
        raise InvalidInput("Use a-z, 0-9, - and _, at most 63 characters, no sign first.", pointer="/name")
    for field, choices in _CHOICES.items():
        if getattr(policy, field) not in choices.values:
            raise InvalidInput(f"Use one of {', '.join(choices.values)}.", pointer=f"/{field}")
    for field, most in _COUNTS.items():
        value = getattr(policy, field)
        if value is not None and not 1 <= value <= most:
            raise InvalidInput(f"Use a whole number from 1 to {most}, or null.", pointer=f"/{field}")
    if not 0 < policy.sample_ratio <= 1:
        raise InvalidInput("Use a ratio above 0 and at most 1.", pointer="/sample_ratio")
    days = policy.skip_verified_days
    if days is not None and not (0 < days <= 36_500 and math.isfinite(days)):
        raise InvalidInput("Use days above 0 and up to 36500, or null.", pointer="/skip_verified_days")
    for field in ("run", "tier"):
        row = getattr(policy, field)
        if row is not None and row.cluster_id != policy.cluster_id:
            raise InvalidInput(f"This {field} is of another cluster.", pointer=f"/{field}")
    if len(policy.cron) > 100 or len(policy.time_zone) > 64:
        raise InvalidInput("A schedule has at most 100 characters, a time zone 64.", pointer="/cron")
