"""Starting, cancelling and planning drills."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.checkpoints.models import Placement, TrainingRun
from apps.core import cron, transitions
from apps.core.dispatch import wake_owner
from apps.core.errors import Conflict, InvalidInput
from apps.core.wakeups import announce
from apps.drills import safety, selectors
from apps.drills.finish import OWNER_KIND, UNFINISHED, finish, stop_work
from apps.drills.models import CheckpointChoice, Drill, DrillControl, DrillKind, DrillPlan
from apps.drills.spec import SPEC_FIELDS, checked, new_seed

_STEPS_NAMED = 10
PLAN_FIELDS = (
    "name", "cron", "time_zone", "missed", "enabled", "start_window_seconds", "overlap", "smear_seconds",
)  # fmt: skip
_PLAN_LIMITS = {"start_window_seconds": (10, 86_400), "smear_seconds": (0, 1800)}


@transaction.atomic
def create_drill(
    *,
    run: TrainingRun,
    spec: Mapping[str, Any],
    actor: str,
    plan: DrillPlan | None = None,
    not_before_at: datetime | None = None,
) -> Drill:
    """A drill of `run`, to begin at once (or after the one that is at work on its cluster).

    Raises InvalidInput that names the field, also for a named step of which no copy is known; Conflict while all drills
    are stopped, and with the rule of the cluster that forbids it.
    """
    values = checked(run, spec)
    stopped = selectors.stopped_reason()
    if stopped:
        raise Conflict(stopped, code="drills_stopped")
    safety.require_allowed(run, values["kind"])
    if run.archived_at is not None:
        raise Conflict(f"{run.name} is archived; drill a run that trains.", code="run_archived")
    _require_known_step(run, values)
    now = timezone.now()
    if values["kind"] == DrillKind.FAILOVER:  # the run's objective is about restarts; reading is only a part of one
        values.setdefault("objective_seconds", run.rto_objective_seconds)
    values.setdefault("seed", new_seed())
    drill = Drill.objects.create(
        cluster=run.cluster,
        run=run,
        plan=plan,
        requested_by=actor,
        created_at=now,
        next_attempt_at=now,
        not_before_at=not_before_at,
        **values,
    )
    transitions.record(OWNER_KIND, drill.pk, old="", new=drill.state, actor=actor)
    detail = {"kind": drill.kind, "run": run.name, "plan": plan.name if plan else None}
    log_activity(
        actor=actor,
        action="drill.create",
        target_kind="drill",
        target_id=drill.pk,
        cluster_id=drill.cluster_id,
        detail=detail,
    )
    wake_owner(OWNER_KIND, drill.pk)
    return drill


@transaction.atomic
def cancel_drill(*, drill: Drill, actor: str) -> Drill:
    """Stop it within seconds. Asking again while it stops changes nothing; a finished drill is a Conflict."""
    now = timezone.now()
    asked = Drill.objects.filter(pk=drill.pk, state__in=UNFINISHED, cancel_requested_at=None)
    if asked.update(cancel_requested_at=now, next_attempt_at=now) == 1:
        log_activity(
            actor=actor, action="drill.cancel", target_kind="drill", target_id=drill.pk, cluster_id=drill.cluster_id
        )
        drill.refresh_from_db()
        _begin_cancel(drill, actor)
        return drill
    drill.refresh_from_db()
    if drill.state == Drill.State.FINISHED:
        ended = drill.get_outcome_display().lower()
        raise Conflict(f"This drill has already finished ({ended}); there is nothing to cancel.", code="finished")
    return drill


def _begin_cancel(drill: Drill, actor: str) -> None:
    if drill.state in (Drill.State.SCHEDULED, Drill.State.WAITING, Drill.State.PREPARING):
        finish(drill, Drill.Outcome.CANCELLED, f"Cancelled by {actor} before it began.", actor=actor)
        return
    stop_work(drill, f"cancelled by {actor}")
    wake_owner(OWNER_KIND, drill.pk)
    announce(f"drill:{drill.pk}")


@transaction.atomic
def stop_all_drills(*, actor: str, reason: str = "") -> int:
    """The kill switch: no drill starts from now on, and those at work are cancelled. Gives how many were."""
    now = timezone.now()
    DrillControl.objects.update_or_create(
        pk=1, defaults={"stopped_at": now, "stopped_by": actor, "reason": reason.strip()[:500]}
    )
    # Held before the first entry: who cancels one of them holds it too while waiting for the log.
    waiting = Drill.objects.select_for_update().filter(state__in=UNFINISHED, cancel_requested_at=None)
    open_drills = list(waiting.order_by("pk"))
    log_activity(actor=actor, action="drills.stop", target_kind="drills", target_id="all", detail={"reason": reason})
    for drill in open_drills:
        cancel_drill(drill=drill, actor=actor)
    return len(open_drills)


@transaction.atomic
def allow_drills(*, actor: str) -> None:
    """Take the kill switch back. Nothing that it cancelled starts again."""
    DrillControl.objects.update_or_create(pk=1, defaults={"stopped_at": None, "stopped_by": "", "reason": ""})
    log_activity(actor=actor, action="drills.allow", target_kind="drills", target_id="all")


@transaction.atomic
def pause_plans(*, actor: str) -> None:
    """No plan starts a drill by itself from now on; what comes due meanwhile is skipped and says so."""
    DrillControl.objects.update_or_create(pk=1, defaults={"plans_paused_at": timezone.now(), "plans_paused_by": actor})
    log_activity(actor=actor, action="plans.pause", target_kind="plans", target_id="all")


@transaction.atomic
def resume_plans(*, actor: str) -> None:
    """Let plans start drills again; nothing that was skipped is made up for."""
    DrillControl.objects.update_or_create(pk=1, defaults={"plans_paused_at": None, "plans_paused_by": ""})
    log_activity(actor=actor, action="plans.resume", target_kind="plans", target_id="all")


@transaction.atomic
def create_plan(*, run: TrainingRun, spec: Mapping[str, Any], actor: str) -> DrillPlan:
    """A drill on a schedule. `spec` holds a drill's settings together with name, cron, time_zone, missed, enabled.
    Raises InvalidInput that names the field."""
    own = _plan_values({name: spec[name] for name in PLAN_FIELDS if name in spec})
    if not own.get("name"):
        raise InvalidInput("Give the plan a name.", pointer="/name")
    settings = _plan_spec(run, {name: value for name, value in spec.items() if name not in PLAN_FIELDS})
    plan = DrillPlan(run=run, created_by=actor, created_at=timezone.now(), **own, **settings)
    plan.next_at = _next_at(plan)
    _save_named(plan)
    log_activity(
        actor=actor,
        action="plan.create",
        target_kind="plan",
        target_id=plan.pk,
        cluster_id=plan.run.cluster_id,
        detail={"name": plan.name},
    )
    return plan


@transaction.atomic
def update_plan(*, plan: DrillPlan, changes: Mapping[str, Any], actor: str) -> DrillPlan:
    """Change some settings; drills that already ran keep theirs. Raises InvalidInput that names the field, Conflict
    when somebody changed the plan since `plan` was read."""
    own = _plan_values({name: changes[name] for name in PLAN_FIELDS if name in changes})
    current = {name: getattr(plan, name) for name in SPEC_FIELDS}
    wanted = {name: value for name, value in changes.items() if name not in PLAN_FIELDS}
    settings = _plan_spec(plan.run, _without_stale(current, wanted))
    version = plan.version
    fresh = DrillPlan()
    for name in SPEC_FIELDS:
        setattr(plan, name, settings.get(name, getattr(fresh, name)))
    for name, value in own.items():
        setattr(plan, name, value)
    plan.version = version + 1
    plan.next_at = _next_at(plan)
    if DrillPlan.objects.filter(pk=plan.pk, version=version).update(version=plan.version) != 1:
        raise Conflict("Somebody changed this plan meanwhile: load it again, then change it.", code="stale")
    _save_named(plan)
    log_activity(
        actor=actor,
        action="plan.update",
        target_kind="plan",
        target_id=plan.pk,
        cluster_id=plan.run.cluster_id,
        detail={"fields": sorted(changes)},
    )
    return plan


@transaction.atomic
def delete_plan(*, plan: DrillPlan, actor: str) -> None:
    """Its drills stay, with their own copy of the settings."""
    log_activity(
        actor=actor,
        action="plan.delete",
        target_kind="plan",
        target_id=plan.pk,
        cluster_id=plan.run.cluster_id,
        detail={"name": plan.name},
    )
    plan.delete()


def start_plan(*, plan: DrillPlan, actor: str) -> Drill:
    """Run the plan's drill now, beside its schedule."""
    return create_drill(run=plan.run, spec=spec_of(plan), actor=actor, plan=plan)


def spec_of(plan: DrillPlan) -> dict[str, Any]:
    """The plan's settings as a drill's spec."""
    return {name: getattr(plan, name) for name in SPEC_FIELDS}


def _require_known_step(run: TrainingRun, values: Mapping[str, Any]) -> None:
    if values.get("choice") != CheckpointChoice.NAMED:
        return
    copies = Placement.objects.filter(checkpoint__run=run).exclude(status=Placement.Status.MISSING)
    if values.get("tier") is not None:
        copies = copies.filter(tier=values["tier"])
    if copies.filter(checkpoint__step=values["step"]).exists():
        return
    steps = copies.order_by("-checkpoint__step").values_list("checkpoint__step", flat=True).distinct()[:_STEPS_NAMED]
    known = f"the newest known are {', '.join(map(str, steps))}" if steps else "none is known: scan its tier"
    raise InvalidInput(f"No checkpoint of step {values['step']} is known; {known}.", pointer="/step")


def _plan_spec(run: TrainingRun, spec: Mapping[str, Any]) -> dict[str, Any]:
    if "seed" in spec:
        raise InvalidInput("A plan takes a new seed for every drill.", pointer="/seed")
    values = checked(run, spec)
    if values["kind"] in safety.DISRUPTIVE and not run.cluster.allows_disruption:
        safety.require_allowed(run, values["kind"])
    return values


def _without_stale(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """`current` changed by `wanted`; what only made sense with the earlier kind or choice goes with it."""
    merged = {**current, **wanted}
    if "choice" in wanted and merged["choice"] != "named" and "step" not in wanted:
        merged["step"] = None
    if "kind" in wanted and merged["kind"] != DrillKind.HERD and "ladder" not in wanted:
        merged["ladder"] = []
    return merged


def _plan_values(values: dict[str, Any]) -> dict[str, Any]:
    """The plan's own fields, checked as far as each can be alone."""
    for name in ("name", "cron", "time_zone"):
        if name in values:
            if not isinstance(values[name], str) or len(values[name]) > 100:
                raise InvalidInput(f"{name} is a text of at most 100 characters.", pointer=f"/{name}")
            values[name] = values[name].strip()
    if "name" in values and not values["name"]:
        raise InvalidInput("Give the plan a name.", pointer="/name")
    if values.get("missed", DrillPlan.Missed.SKIP) not in DrillPlan.Missed.values:
        raise InvalidInput(f"missed is one of {', '.join(DrillPlan.Missed.values)}.", pointer="/missed")
    if values.get("overlap", DrillPlan.Overlap.SKIP) not in DrillPlan.Overlap.values:
        raise InvalidInput(f"overlap is one of {', '.join(DrillPlan.Overlap.values)}.", pointer="/overlap")
    for name, (low, high) in _PLAN_LIMITS.items():
        value = values.get(name, low)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidInput(f"{name} is a whole number from {low} to {high}.", pointer=f"/{name}")
    if not isinstance(values.get("enabled", True), bool):
        raise InvalidInput("enabled is true or false.", pointer="/enabled")
    return values


def _next_at(plan: DrillPlan) -> Any:
    """When the plan is due next, None without a schedule. A bad schedule is refused even while it is off."""
    try:
        if not plan.cron:
            cron.require_zone(plan.time_zone)
            return None
        moment = cron.next_time(plan.cron, plan.time_zone, timezone.now())
    except cron.BadSchedule as problem:
        raise InvalidInput(problem.detail, pointer=f"/{problem.field}") from problem
    return moment if plan.enabled else None


def _save_named(plan: DrillPlan) -> None:
    taken = DrillPlan.objects.filter(run_id=plan.run_id, name=plan.name).exclude(pk=plan.pk).exists()
    error = InvalidInput(f"{plan.run.name} already has a plan named {plan.name!r}.", pointer="/name")
    if taken:
        raise error
    try:
        with transaction.atomic():
            plan.save()
    except IntegrityError as problem:
        raise error from problem
