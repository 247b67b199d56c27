"""Writing and reading alert rules."""

from __future__ import annotations

import math
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.alerts.deciding import Rules
from apps.alerts.models import AlertRule, RuleKind, Severity
from apps.alerts.rule_kinds import KINDS
from apps.checkpoints.models import TrainingRun
from apps.core.errors import Conflict, InvalidInput
from apps.fleet.models import Cluster

CHANGEABLE = frozenset({"enabled", "severity", "threshold"})


def rule_rows() -> QuerySet[AlertRule]:
    return AlertRule.objects.select_related("cluster", "run")


def standing_rules() -> Rules:
    """All of them, as deciding takes them. One query."""
    return Rules(AlertRule.objects.all())


def ensure_standard_rules(**_kwargs: Any) -> None:
    """A row for every kind that has none for everywhere: after each migration, so that new kinds get theirs."""
    there = set(AlertRule.objects.filter(cluster=None).values_list("kind", flat=True))
    now = timezone.now()
    rows = [
        AlertRule(kind=kind, severity=standard.severity, threshold=standard.threshold, updated_at=now)
        for kind, standard in KINDS.items()
        if kind not in there
    ]
    AlertRule.objects.bulk_create(rows, ignore_conflicts=True)


@transaction.atomic
def create_rule(
    *, kind: str, cluster: Cluster, actor: str, run: TrainingRun | None = None, **details: Any
) -> AlertRule:
    """A rule for one cluster, or one of its runs, in place of the wider one; what `details` leave out is taken from
    that. Raises InvalidInput for what makes no sense, Conflict where that place has its own rule already."""
    if kind not in RuleKind.values:
        raise InvalidInput(f"Use one of {', '.join(RuleKind.values)}.", pointer="/kind")
    if run is not None and run.cluster_id != cluster.pk:
        raise InvalidInput("This run is of another cluster.", pointer="/run")
    if run is not None and not KINDS[kind].by_run:
        raise InvalidInput(f"{RuleKind(kind).label} is not about single runs; leave the run out.", pointer="/run")
    wider = standing_rules().of(kind, cluster.pk, None)
    inherited = {"enabled": wider.enabled, "severity": wider.severity, "threshold": wider.threshold}
    rule = AlertRule(kind=kind, cluster=cluster, run=run, **{**inherited, **details})
    _save(rule, actor)
    _log(rule, "create", actor)
    return rule


@transaction.atomic
def update_rule(*, rule: AlertRule, changes: dict[str, Any], actor: str) -> AlertRule:
    """Change what a rule says; alerts follow within ten seconds. Raises InvalidInput."""
    unknown = sorted(changes.keys() - CHANGEABLE)
    if unknown:
        raise InvalidInput(f"A rule has no changeable field {unknown[0]!r}.", pointer=f"/{unknown[0]}")
    for name, value in changes.items():
        setattr(rule, name, value)
    _save(rule, actor)
    _log(rule, "update", actor)
    return rule


@transaction.atomic
def delete_rule(*, rule: AlertRule, actor: str) -> None:
    """Let the wider rule hold again. Raises Conflict for the one for everywhere."""
    if rule.cluster_id is None:
        raise Conflict("This rule is for everywhere, and always there; disable it instead.", code="standard_rule")
    _log(rule, "delete", actor)
    rule.delete()


def _save(rule: AlertRule, actor: str) -> None:
    _check(rule)
    rule.updated_by, rule.updated_at = actor, timezone.now()
    try:
        with transaction.atomic():
            rule.save()
    except IntegrityError as error:
        raise Conflict("There is a rule of this kind for this place already; change that one.") from error


def _check(rule: AlertRule) -> None:
    kind = KINDS[rule.kind]
    if rule.severity not in Severity.values:
        raise InvalidInput(f"Use one of {', '.join(Severity.values)}.", pointer="/severity")
    if not kind.unit:
        if rule.threshold is not None:
            raise InvalidInput("This kind of rule has no threshold.", pointer="/threshold")
        return
    most = kind.most or math.inf
    if rule.threshold is None or not (0 <= rule.threshold <= most):
        raise InvalidInput(f"Use a number of {kind.unit} from 0 to {most:g}.", pointer="/threshold")


def _log(rule: AlertRule, verb: str, actor: str) -> None:
    detail = {
        "kind": rule.kind, "cluster": rule.cluster_id, "run": rule.run_id, "enabled": rule.enabled,
        "severity": rule.severity, "threshold": rule.threshold,
    }  # fmt: skip
    log_activity(
        actor=actor,
        action=f"alert_rule.{verb}",
        target_kind="alert_rule",
        target_id=rule.pk,
        cluster_id=rule.cluster_id,
        detail=detail,
    )
