"""What somebody should act on, as the rows stand now. Reading only."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, Max, OuterRef, Q, Subquery
from django.utils import timezone

from apps.alerts import backup_age, overdue
from apps.alerts.condition import MAX_CONDITIONS, MAX_SUMMARY, Condition
from apps.alerts.models import Alert, Channel
from apps.audits.models import Audit, AuditPolicy, AuditRound
from apps.checkpoints.evidence import SCAN
from apps.checkpoints.models import Finding, InventoryScan, Placement
from apps.checkpoints.standing import lagging_runs, tiers_with_loose_damage, unreadable_tiers
from apps.core import units
from apps.drills.models import Drill, DrillPlan, PlanOccurrence
from apps.fleet.models import Agent
from apps.transfers.models import Transfer
from apps.transfers.selectors import stuck_transfers

WITH_RESULT = (Drill.Outcome.PASSED, Drill.Outcome.FAILED, Drill.Outcome.LOST)


def current() -> dict[tuple[str, str, str], Condition]:
    """Every condition by its key, in a constant number of queries."""
    found = [
        *_damage(),
        *_loose_damage(),
        *_agents_lost(),
        *_drills(),
        *_schedules_missed(),
        *_audits_missed(),
        *_tiers_unreadable(),
        *_tiers_behind(),
        *_transfers_stuck(),
        *overdue.conditions(),
        *_channels_disabled(),
        *backup_age.conditions(timezone.now()),
    ]
    return {condition.key: condition for condition in found}


def _damage() -> list[Condition]:
    """Checkpoints of which a copy is damaged, whoever found it; resolved once no copy is. What a scan says of a save
    that runs may still become whole, so it is not told here."""
    damage = Finding.objects.filter(
        placement=OuterRef("pk"), resolved_at=None, severity=Finding.Severity.DAMAGE, source_kind=SCAN
    )
    listed = Exists(damage) & ~Q(status=Placement.Status.IN_PROGRESS)
    rows = (
        Placement.objects.filter(Q(damaged_at__isnull=False) | Q(status=Placement.Status.CORRUPT) | listed)
        .exclude(status=Placement.Status.MISSING)
        .select_related("checkpoint__run", "tier")
        .order_by("pk")[:MAX_CONDITIONS]
    )
    copies = list(rows)
    open_damage = Finding.objects.filter(
        placement__in=[copy.pk for copy in copies], resolved_at=None, severity=Finding.Severity.DAMAGE
    )
    details: dict[str, str] = {}
    for placement_id, detail in open_damage.order_by("found_at", "pk").values_list("placement_id", "detail"):
        details.setdefault(placement_id, detail)
    found = []
    for copy in copies:
        checkpoint = copy.checkpoint
        what = details.get(copy.pk, f"its status is {copy.status}")
        summary = f"Step {checkpoint.step} of {checkpoint.run.name} on {copy.tier.name}: {what}"
        found.append(
            Condition(
                Alert.Rule.DAMAGE,
                "checkpoint",
                checkpoint.pk,
                checkpoint.run.cluster_id,
                summary[:MAX_SUMMARY],
                checkpoint.run_id,
            )  # fmt: skip
        )
    return found


def _loose_damage() -> list[Condition]:
    """Tiers whose newest scan found damage that belongs to no checkpoint of a known step: pointers, loose files."""
    return [
        Condition(Alert.Rule.DAMAGE, "tier", scan.tier_id, scan.tier.cluster_id, _loose_summary(scan)[:MAX_SUMMARY])
        for scan in tiers_with_loose_damage(MAX_CONDITIONS)
    ]


def _loose_summary(scan: InventoryScan) -> str:
    worst = next((found for found in scan.findings if found["severity"] == Finding.Severity.DAMAGE), None)
    what = f"{worst['path']}: {worst['detail']}" if worst else "see its findings"
    more = f" (and {scan.damage_count - 1} more)" if scan.damage_count > 1 else ""
    return f"The newest scan of {scan.tier.name} found damage beside its listed checkpoints: {what}{more}"


def _agents_lost() -> list[Condition]:
    now = timezone.now()
    rows = Agent.objects.filter(state=Agent.State.LOST).select_related("node").order_by("pk")[:MAX_CONDITIONS]
    return [
        Condition(
            Alert.Rule.AGENT_LOST,
            "node",
            agent.node_id,
            agent.node.cluster_id,
            f"The agent on {agent.node.name} has not been heard of since "
            f"{agent.last_seen_at:%Y-%m-%d %H:%M:%S} UTC: see whether the node is up and reaches the server."
            if agent.last_seen_at
            else f"The agent on {agent.node.name} was never heard of.",
            measured=_silent_seconds(agent.last_seen_at, now),
        )
        for agent in rows
    ]


def _silent_seconds(last_seen_at: datetime | None, now: datetime) -> float | None:
    return None if last_seen_at is None else (now - last_seen_at).total_seconds()


def _drills() -> list[Condition]:
    """About the newest drill with a result of each run and kind: a later one that is well ends the alert."""
    judged = Drill.objects.filter(outcome__in=WITH_RESULT, run__archived_at=None)
    # ids sort by creation time
    newest = [row["newest"] for row in judged.values("run", "kind").annotate(newest=Max("pk")).order_by()]
    wrong = Drill.objects.filter(pk__in=newest).filter(
        ~Q(outcome=Drill.Outcome.PASSED) | Q(objective_state=Drill.ObjectiveState.BREACHED)
    )
    return [_drill(drill) for drill in wrong.select_related("run").order_by("pk")[:MAX_CONDITIONS]]


def _drill(drill: Drill) -> Condition:
    name = f"The {drill.get_kind_display().lower()} drill of {drill.run.name}"
    if drill.outcome == Drill.Outcome.PASSED:
        took, allowed = units.duration(drill.seconds), units.duration(drill.objective_seconds)
        rule, summary = Alert.Rule.OBJECTIVE_BREACHED, f"{name} took {took}; its objective is {allowed}."
    else:
        how = "was lost" if drill.outcome == Drill.Outcome.LOST else "failed"
        rule, summary = Alert.Rule.DRILL_FAILED, f"{name} {how}: {drill.reason}"
    measured = None
    if drill.seconds is not None and drill.objective_seconds:
        measured = drill.seconds / drill.objective_seconds
    return Condition(rule, "drill", drill.pk, drill.cluster_id, summary[:MAX_SUMMARY], drill.run_id, measured)


def _schedules_missed() -> list[Condition]:
    """Plans whose newest occurrence did not drill; the next one that does ends the alert."""
    newest = PlanOccurrence.objects.filter(plan=OuterRef("pk")).order_by("-planned_at")
    plans = DrillPlan.objects.filter(enabled=True, run__archived_at=None).annotate(
        newest_id=Subquery(newest.values("pk")[:1])
    )
    missed = PlanOccurrence.objects.filter(pk__in=plans.values("newest_id")).filter(
        ~Q(skipped_reason="") | Q(drill__outcome=Drill.Outcome.SKIPPED)
    )
    rows = missed.select_related("plan__run", "drill").order_by("pk")[:MAX_CONDITIONS]
    return [_occurrence(row) for row in rows]


def _occurrence(row: PlanOccurrence) -> Condition:
    plan = row.plan
    why = row.skipped_reason or (row.drill.reason if row.drill else "")
    summary = f"The plan {plan.name} of {plan.run.name} did not drill at {row.planned_at:%Y-%m-%d %H:%M} UTC. {why}"
    return Condition(
        Alert.Rule.SCHEDULE_MISSED, "plan", plan.pk, plan.run.cluster_id, summary[:MAX_SUMMARY], plan.run_id
    )


def _audits_missed() -> list[Condition]:
    """Audit policies whose newest round did not audit, or of which no audit could read anything; the next one that does
    ends the alert."""
    newest = AuditRound.objects.filter(policy=OuterRef("pk")).order_by("-planned_at")
    policies = AuditPolicy.objects.filter(enabled=True).annotate(newest_id=Subquery(newest.values("pk")[:1]))
    came = Audit.objects.filter(round=OuterRef("pk")).exclude(outcome=Audit.Outcome.FAILED)
    rounds = AuditRound.objects.filter(pk__in=policies.values("newest_id")).annotate(has_come=Exists(came))
    missed = rounds.filter(~Q(skipped_reason="") | Q(has_come=False, audit_count__gt=0)).select_related("policy")
    return [_missed_round(row) for row in missed.order_by("pk")[:MAX_CONDITIONS]]


def _missed_round(row: AuditRound) -> Condition:
    why = row.skipped_reason
    if not why:
        failed = row.audits.filter(outcome=Audit.Outcome.FAILED).order_by("pk").first()
        why = f"None of {row.audit_count} could be made: {failed.reason if failed else 'see its audits'}"
    summary = f"The audit policy {row.policy.name} did not audit at {row.planned_at:%Y-%m-%d %H:%M} UTC. {why}"
    policy = row.policy
    return Condition(Alert.Rule.SCHEDULE_MISSED, "audit_policy", policy.pk, policy.cluster_id, summary[:MAX_SUMMARY])


def _tiers_unreadable() -> list[Condition]:
    """Tiers that their newest scan could not look at, or did not believe; the next good scan ends the alert."""
    return [
        Condition(
            Alert.Rule.TIER_UNREADABLE,
            "tier",
            scan.tier_id,
            scan.tier.cluster_id,
            f"Tier {scan.tier.name}, as {scan.lister} sees it: {scan.doubt or scan.error}. Nothing was taken for gone."[
                :MAX_SUMMARY
            ],
        )
        for scan in unreadable_tiers(MAX_CONDITIONS)
    ]


def _tiers_behind() -> list[Condition]:
    """Runs whose newest work lies on one tier only, because copies to a colder one have stopped."""
    return [
        Condition(
            Alert.Rule.TIER_BEHIND,
            "run",
            run.pk,
            run.cluster_id,
            f"{run.name}: {'; '.join(lag.sentence for lag in found)}."[:MAX_SUMMARY],
            run.pk,
        )
        for run, found in lagging_runs(MAX_CONDITIONS)
    ]


def _transfers_stuck() -> list[Condition]:
    """Transfers that failed, whose leftovers cannot be removed, or that met the same trouble again and again; a later
    transfer of that copy ends the alert."""
    return [
        Condition(
            Alert.Rule.TRANSFER_STUCK,
            "transfer",
            transfer.pk,
            transfer.cluster_id,
            f"The {transfer.get_kind_display().lower()} of step {transfer.checkpoint.step} of "
            f"{transfer.checkpoint.run.name} from {transfer.source.tier.name} {_how_stuck(transfer)}"[:MAX_SUMMARY],
            transfer.checkpoint.run_id,
        )
        for transfer in stuck_transfers(MAX_CONDITIONS)
    ]


def _how_stuck(transfer: Transfer) -> str:
    if transfer.state == Transfer.State.PAUSED:
        return f"waits since {transfer.attempts} tries met trouble: {transfer.problem}"
    left = "" if transfer.is_clean else f" What it had copied to {transfer.target_path} is still there."
    return f"{transfer.state}: {transfer.problem}.{left}"


def _channels_disabled() -> list[Condition]:
    """Channels that Muster itself disabled; enabling or deleting one ends the alert."""
    rows = Channel.objects.filter(enabled=False).exclude(disabled_reason="").order_by("pk")[:MAX_CONDITIONS]
    return [
        Condition(
            Alert.Rule.CHANNEL_DISABLED,
            "channel",
            channel.pk,
            None,
            f"The channel {channel.name} was disabled. {channel.disabled_reason}"[:MAX_SUMMARY],
        )  # fmt: skip
        for channel in rows
    ]
