"""Reading drills and what a drill needs to begin."""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median

from django.db.models import Prefetch, QuerySet
from django.utils import timezone
from muster_agent.decide.model import ResumeRequest
from muster_agent.protocol.trust import Trust

from apps.checkpoints.models import Placement, RunAttempt, RunEvent
from apps.checkpoints.resume import resume_decision
from apps.core import cron
from apps.drills.choosing import choose_random
from apps.drills.fitness import Needs
from apps.drills.models import (
    FROM_MEMORY_RATIO,
    CheckpointChoice,
    Drill,
    DrillControl,
    DrillPlan,
    DrillRung,
    DrillStep,
    RankResult,
)
from apps.drills.workers import Worker
from apps.fleet import cluster_inventory
from apps.fleet.models import Agent, Cluster
from apps.fleet.selectors import usable_agents

VERIFIED = (Placement.Trust.VERIFIED, Placement.Trust.RELOADED, Placement.Trust.RESUMED)
ACTIVE = (Drill.State.PREPARING, Drill.State.RUNNING, Drill.State.VALIDATING)
SPEED_AGE = timedelta(days=90)
LIVE_ATTEMPT = timedelta(minutes=2)
"""A job that has not reported for longer may be gone already; killing on such news measures nothing."""


def drills() -> QuerySet[Drill]:
    return Drill.objects.select_related("run", "cluster", "plan", "placement__tier", "tier")


def drill_with_rungs() -> QuerySet[Drill]:
    """One drill's page and API document: its rungs and clients in two more queries."""
    results = RankResult.objects.select_related("node").order_by("rank")
    rungs = DrillRung.objects.order_by("order").prefetch_related(Prefetch("results", queryset=results))
    steps = DrillStep.objects.order_by("order")
    return drills().prefetch_related(Prefetch("rungs", queryset=rungs), Prefetch("steps", queryset=steps))


def plans() -> QuerySet[DrillPlan]:
    return DrillPlan.objects.select_related("run__cluster", "tier")


def stopped_reason() -> str | None:
    """Why no drill may run now, None when they may."""
    control = DrillControl.objects.filter(pk=1).exclude(stopped_at=None).first()
    if control is None:
        return None
    why = f": {control.reason}" if control.reason else ""
    return f"All drills were stopped by {control.stopped_by}{why}. Allow drills again first."


def paused_reason() -> str:
    """Why no plan starts a drill by itself now, "" when they do."""
    control = DrillControl.objects.filter(pk=1).exclude(plans_paused_at=None).first()
    return f"All plans were paused by {control.plans_paused_by}." if control else ""


def drill_ahead(drill: Drill) -> Drill | None:
    """Another drill that is at work on the same cluster: two at once would measure each other."""
    active = Drill.objects.filter(cluster_id=drill.cluster_id, state__in=ACTIVE)
    return active.exclude(pk=drill.pk).order_by("created_at").first()


def candidate_placements(drill: Drill) -> QuerySet[Placement]:
    """Copies that a restart could use, newest step first, the fastest tier first among equals."""
    rows = Placement.objects.filter(
        checkpoint__run_id=drill.run_id,
        status=Placement.Status.COMPLETE,
        resumable=True,
        damaged_at=None,
    )
    if drill.tier_id:
        rows = rows.filter(tier_id=drill.tier_id)
    return rows.select_related("checkpoint", "tier", "manifest").order_by(
        "-checkpoint__step", "tier__speed_order", "pk"
    )


def other_copies(placement: Placement) -> list[Placement]:
    """The same checkpoint on the other tiers of the cluster, the fastest first, as far as a restart could use it."""
    rows = Placement.objects.filter(
        checkpoint=placement.checkpoint_id, status=Placement.Status.COMPLETE, resumable=True, damaged_at=None
    ).exclude(tier=placement.tier_id)
    return list(rows.select_related("checkpoint", "tier", "manifest").order_by("tier__speed_order", "pk"))


def chosen_placement(drill: Drill, now: datetime | None = None) -> Placement | None:
    """The copy that this drill reads, by its choice; None when there is none."""
    rows = candidate_placements(drill)
    if drill.choice == CheckpointChoice.LATEST_VERIFIED:
        rows = rows.filter(trust__in=VERIFIED)
    if drill.choice in (CheckpointChoice.LATEST, CheckpointChoice.LATEST_VERIFIED) and drill.tier_id is None:
        return _resume_point(drill, rows)
    if drill.choice == CheckpointChoice.NAMED:
        return rows.filter(checkpoint__step=drill.step).first() if drill.step is not None else None
    if drill.choice != CheckpointChoice.RANDOM:
        return rows.first()
    since = (now or timezone.now()) - timedelta(days=drill.window_days)
    steps = sorted(set(rows.filter(newest_mtime_at__gte=since).values_list("checkpoint__step", flat=True)))
    step = choose_random(steps, drill.seed)
    return rows.filter(checkpoint__step=step).first() if step is not None else None


def _resume_point(drill: Drill, rows: QuerySet[Placement]) -> Placement | None:
    """What a restart would take, by the very decision that launch scripts get: a drill rehearses that."""
    verified = drill.choice == CheckpointChoice.LATEST_VERIFIED
    decision = resume_decision(drill.run, ResumeRequest(require=Trust.VERIFIED) if verified else None)
    if decision.path is None:
        return None
    return rows.filter(path=decision.path, tier__name=decision.tier or "").first()


def live_attempt(drill: Drill, now: datetime | None = None) -> RunAttempt | None:
    """The launch of the run that is training now, by its latest report."""
    since = (now or timezone.now()) - LIVE_ATTEMPT
    rows = RunAttempt.objects.filter(run_id=drill.run_id, ended_at=None, last_report_at__gte=since)
    return rows.select_related("agent__node", "run__cluster").order_by("-started_at").first()


def live_workers(attempt: RunAttempt) -> list[Worker]:
    """The processes of a launch that registered themselves and have not ended; where none did, the nodes of its job;
    where that is not known either, whatever runs beside the agent that reported the launch."""
    ended = RunEvent.objects.filter(attempt=attempt, kind="process_ended").values("source")
    started = RunEvent.objects.filter(attempt=attempt, kind="process_started", agent__isnull=False)
    rows = started.exclude(source__in=ended).select_related("agent__node")
    found = [
        Worker(agent_id=row.agent.pk, node=row.agent.node.name, rank=row.rank, pid=row.pid) for row in rows if row.agent
    ]
    if found or attempt.agent is None:
        return found
    return _workers_of_job(attempt) or [Worker(agent_id=attempt.agent.pk, node=attempt.agent.node.name)]


def _workers_of_job(attempt: RunAttempt) -> list[Worker]:
    """One worker on each node with an agent on which the cluster's last inventory shows the launch's job: the agent
    that reads its log may be anywhere."""
    cluster = attempt.run.cluster
    row = cluster_inventory.newest_whole(cluster) if attempt.job_id else None
    jobs = cluster_inventory.contents_of(row).jobs if row else ()
    nodes = next((job.nodes for job in jobs if job.job_id == attempt.job_id), ())
    agents = agents_by_node(cluster) if nodes else {}
    return [Worker(agent_id=agents[name].pk, node=name) for name in nodes if name in agents]


def agents_by_node(cluster: Cluster) -> dict[str, Agent]:
    """Agents that can take work, by their node's name and by its short form, as schedulers use it."""
    agents = {agent.node.name: agent for agent in usable_agents(cluster)}
    return {name.partition(".")[0]: agent for name, agent in agents.items()} | agents


def needs_of(cluster: Cluster, name: str, *, like: Agent | None, gpu_count: int | None) -> tuple[Needs, float | None]:
    """What a node has to be to do the work of the one whose agent is `like`, and how fast `name` last reloaded."""
    facts = like.node.facts if like else {}
    speeds = _reload_speeds(cluster)
    others = [speed for node, speed in speeds.items() if node != name]
    needs = Needs(
        gpu_count=gpu_count,
        agent_version=like.version if like else "",
        file_systems=facts.get("file_systems") or {},
        peer_bytes_per_second=median(others) if others else None,
    )
    return needs, speeds.get(name)


def _reload_speeds(cluster: Cluster) -> dict[str, float]:
    """Each node's last cold reload of 90 days, by its name."""
    rows = RankResult.objects.filter(
        rung__drill__cluster=cluster,
        started_at__gte=timezone.now() - SPEED_AGE,
        cached_ratio_before__lte=FROM_MEMORY_RATIO,
    )
    told = rows.exclude(bytes_per_second=None).order_by("started_at").values_list("node__name", "bytes_per_second")
    return {name: speed for name, speed in told if name and speed}


def can_work(agent: Agent) -> bool:
    return agent.state in (Agent.State.ONLINE, Agent.State.BUSY)


NEXT_COUNT = 5


def next_times(plan: DrillPlan, now: datetime | None = None) -> list[datetime]:
    """The next five firing times; none for a plan that is off or started by hand."""
    if not plan.cron or not plan.enabled:
        return []
    try:
        return cron.next_times(plan.cron, plan.time_zone, now or timezone.now(), NEXT_COUNT)
    except cron.BadSchedule:
        return []
