"""From the row of an audit to who does it, and to its end: each leaves a transition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone
from muster_agent.protocol.wire import SealParams, TaskKind, VerifyParams

from apps.audits.models import Audit, AuditPolicy, AuditRound, RanBy
from apps.audits.outcomes import Verdict
from apps.checkpoints.manifests import load_manifest
from apps.checkpoints.models import Placement
from apps.core.dispatch import enqueue
from apps.core.errors import Conflict, InvalidInput
from apps.core.slices import forget_cursor
from apps.core.transitions import record, transition
from apps.core.wakeups import announce
from apps.fleet import selectors as fleet
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask
from apps.transfers.reach import workers_reach

OWNER_KIND = "audit"
SLICE = "muster.move.audit_slice"
LOOK_AGAIN = timedelta(seconds=30)
UNFINISHED = (Audit.State.QUEUED, Audit.State.RUNNING)


def insert(audit: Audit, actor: str) -> Audit:
    """Raises Conflict where such an audit of this placement is under way."""
    try:
        with transaction.atomic():
            audit.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(f"A {audit.mode} of this placement is running already; wait for it, or cancel it.") from error
    record("audit", audit.pk, old="", new=audit.state, actor=actor)
    return audit


_ALWAYS_BY: dict[str, str] = {Audit.Mode.SEAL: RanBy.AGENTS, Audit.Mode.STORE: RanBy.WORKERS}


def who(placement: Placement, mode: str, where: str) -> str:
    """Agents or workers. Only agents seal, and only workers ask stores."""
    if mode in _ALWAYS_BY:
        return _ALWAYS_BY[mode]
    return placement.tier.scanned_by if where == AuditPolicy.Where.AS_SCANNED else where


@transaction.atomic
def hand_out(audit: Audit) -> None:
    """Give it to an agent, or to the workers. Raises Conflict where nobody can do it now."""
    now = timezone.now()
    agent = agent_for(audit.placement) if audit.ran_by == RanBy.AGENTS else None
    if agent is None:
        path = audit.placement.path
        if not workers_reach(path):
            told = (
                f"Workers read checkpoints only below the places in MUSTER_WORKER_ROOTS, and {path} is in none of them."
            )
            raise Conflict(told, code="out_of_reach")
    waiting = Audit.objects.filter(pk=audit.pk, handed_out_at=None, state=Audit.State.QUEUED)
    if waiting.update(agent=agent, handed_out_at=now, next_attempt_at=now + LOOK_AGAIN) != 1:
        return
    if agent is None:
        enqueue(SLICE, audit_id=audit.pk)
        return
    kind, params = _order(audit)
    tasks.create_task(agent=agent, kind=kind, params=params, owner_kind=OWNER_KIND, owner_id=audit.pk)


def agent_for(placement: Placement) -> Agent:
    """The one with the least to do of those that reach it. Raises Conflict."""
    tier = placement.tier
    reaching = fleet.agents_reaching(placement.path, tier.cluster)
    if not reaching:
        raise Conflict(
            f"No agent that is online in {tier.cluster.name} reaches {placement.path}; "
            "start one whose roots contain it.",
            code="no_agent",
        )
    busy = AgentTask.objects.filter(agent__in=reaching, outcome="").values_list("agent", flat=True)
    queued = list(busy)
    return min(reaching, key=lambda agent: queued.count(agent.pk))


def _order(audit: Audit) -> tuple[TaskKind, msgspec.Struct]:
    placement = audit.placement
    if audit.mode == Audit.Mode.SEAL:
        return TaskKind.SEAL, SealParams(path=placement.path, store=placement.tier.store)
    if audit.manifest is None and audit.mode != Audit.Mode.STRUCTURE:
        raise InvalidInput("There is no seal to compare with yet; seal this placement first.", code="not_sealed")
    return TaskKind.VERIFY, VerifyParams(
        path=placement.path,
        store=placement.tier.store,
        manifest=None if audit.manifest is None else load_manifest(audit.manifest),
        sample_ratio=audit.sample_ratio,
        seed=audit.seed,
        turn=audit.turn,
        max_bytes_per_second=audit.max_bytes_per_second,
        through_cache=audit.through_cache,
    )


@transaction.atomic
def finish(audit: Audit, verdict: Verdict, **fields: Any) -> bool:
    """End it, and hand out the next one of its round. False when another worker was first."""
    done = _end(audit, verdict, **fields)
    if done and audit.round_id is not None:
        hand_out_next(audit.round_id)
    return done


def _end(audit: Audit, verdict: Verdict, **fields: Any) -> bool:
    done = transition(
        audit,
        old=UNFINISHED,
        new=Audit.State.FINISHED,
        reason=verdict.reason,
        outcome=verdict.outcome,
        finished_at=timezone.now(),
        next_attempt_at=None,
        checked_bytes=verdict.checked_bytes,
        checked_chunks=verdict.checked_chunks,
        total_chunks=verdict.total_chunks,
        seconds=verdict.seconds,
        **fields,
    )
    if done:
        Audit.objects.filter(pk=audit.pk).update(reason=verdict.reason)
        audit.reason = verdict.reason
        forget_cursor(audit.pk)
        announce(f"audit:{audit.pk}")
    return done


@transaction.atomic
def hand_out_next(round_id: str) -> None:
    """As many audits of a round as may be at work at once; what nobody can do ends with the reason."""
    row = AuditRound.objects.select_related("policy").get(pk=round_id)
    AuditRound.objects.filter(pk=round_id).update(audit_count=row.audit_count)  # holds the row: one hands out at a time
    unfinished = Audit.objects.filter(round=round_id, state__in=UNFINISHED)
    free = row.policy.at_once - unfinished.exclude(handed_out_at=None).count()
    waiting = unfinished.filter(handed_out_at=None).order_by("pk")
    for audit in waiting.select_related("placement__tier__cluster", "manifest").iterator(chunk_size=50):
        if free <= 0:
            return
        try:
            hand_out(audit)
            free -= 1
        except (Conflict, InvalidInput) as problem:
            _end(audit, Verdict(Audit.Outcome.FAILED, problem.detail))
