"""Audits: an agent seals or verifies one placement; the control plane turns the answer into evidence or damage."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone
from muster_agent.protocol.wire import SealBody, SealParams, TaskKind, VerifyBody, VerifyParams

from apps.accounts.services import log_activity
from apps.audits import outcomes
from apps.audits.models import Audit
from apps.audits.outcomes import Verdict
from apps.checkpoints.evidence import add_evidence, clear_damage, mark_damage
from apps.checkpoints.manifests import load_manifest, store_manifest
from apps.checkpoints.models import Placement, TrustEvidence
from apps.checkpoints.scans import handed_out_at
from apps.core.dispatch import wake_owner
from apps.core.errors import ApplicationError, Conflict, InvalidInput
from apps.core.transitions import record, transition
from apps.core.wakeups import announce
from apps.fleet import selectors as fleet
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask

OWNER_KIND = "audit"
LOOK_AGAIN = timedelta(seconds=30)
UNFINISHED = (Audit.State.QUEUED, Audit.State.RUNNING)
_NOT_THERE = (Placement.Status.MISSING, Placement.Status.ARCHIVED)
_MAX_SEED = 2**31 - 1


@transaction.atomic
def request_audit(
    *, placement: Placement, mode: str, sample_ratio: float = 1.0, seed: int | None = None, actor: str
) -> Audit:
    """Have an agent seal or verify a placement. `seed` chooses the sample, so that it can be repeated.

    Raises InvalidInput (what is asked makes no sense for this placement) or Conflict (not now).
    """
    _check(placement, mode, sample_ratio, seed)
    agent = _agent_for(placement)
    now = timezone.now()
    audit = Audit(
        placement=placement,
        agent=agent,
        mode=mode,
        sample_ratio=sample_ratio,
        seed=secrets.randbelow(_MAX_SEED) if seed is None else seed,
        requested_by=actor,
        created_at=now,
        next_attempt_at=now + LOOK_AGAIN,
    )
    _insert(audit)
    kind, params = _order(audit)
    tasks.create_task(agent=agent, kind=kind, params=params, owner_kind=OWNER_KIND, owner_id=audit.pk)
    record("audit", audit.pk, old="", new=audit.state, actor=actor)
    log_activity(
        actor=actor,
        action=f"audit.{mode}",
        target_kind="audit",
        target_id=audit.pk,
        detail={"placement": placement.pk, "path": placement.path},
    )
    return audit


def _insert(audit: Audit) -> None:
    try:
        with transaction.atomic():
            audit.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(f"A {audit.mode} of this placement is running already; wait for it, or cancel it.") from error


def _check(placement: Placement, mode: str, sample_ratio: float, seed: int | None) -> None:
    if mode not in Audit.Mode.values:
        raise InvalidInput(f"Use one of {', '.join(Audit.Mode.values)}.", pointer="/mode")
    if not 0 < sample_ratio <= 1:
        raise InvalidInput("Use a ratio above 0 and at most 1.", pointer="/sample_ratio")
    if seed is not None and not 0 <= seed <= _MAX_SEED:
        raise InvalidInput(f"Use a whole number from 0 to {_MAX_SEED}.", pointer="/seed")
    if mode == Audit.Mode.SEAL and sample_ratio != 1:
        raise InvalidInput("A seal reads every byte; leave sample_ratio out.", pointer="/sample_ratio")
    if mode == Audit.Mode.VERIFY and placement.manifest_id is None:
        raise InvalidInput("There is no seal to compare with yet; seal this placement first.", code="not_sealed")
    if placement.status in _NOT_THERE:
        raise Conflict(f"This placement is {placement.status}; there is nothing to read. Scan its tier again.")
    if mode == Audit.Mode.SEAL and placement.damaged_at is not None:
        raise Conflict(
            "Damage was found in these files; sealing them would bless it. Restore them, or save the step again, "
            "scan the tier, and seal what the scan finds.",
            code="damaged",
        )


def _agent_for(placement: Placement) -> Agent:
    tier = placement.tier
    agent = next(iter(fleet.agents_reaching(placement.path, tier.cluster)), None)
    if agent is None:
        raise Conflict(
            f"No agent that is online in {tier.cluster.name} reaches {placement.path}; "
            "start one whose roots contain it.",
            code="no_agent",
        )
    return agent


def _order(audit: Audit) -> tuple[TaskKind, msgspec.Struct]:
    placement = audit.placement
    if audit.mode == Audit.Mode.SEAL:
        return TaskKind.SEAL, SealParams(path=placement.path, store=placement.tier.store)
    if placement.manifest is None:
        raise InvalidInput("There is no seal to compare with yet; seal this placement first.", code="not_sealed")
    return TaskKind.VERIFY, VerifyParams(
        path=placement.path,
        store=placement.tier.store,
        manifest=load_manifest(placement.manifest),
        sample_ratio=audit.sample_ratio,
        seed=audit.seed,
    )


@transaction.atomic
def cancel_audit(*, audit: Audit, actor: str) -> Audit:
    """Stop an audit; what it had read is dropped. Raises Conflict for one that has finished."""
    audit.refresh_from_db()
    if audit.state not in UNFINISHED:
        raise Conflict(f"This audit has finished already ({audit.outcome}); there is nothing to cancel.")
    tasks.cancel_owner(owner_kind=OWNER_KIND, owner_id=audit.pk, reason=f"cancelled by {actor}")
    log_activity(actor=actor, action="audit.cancel", target_kind="audit", target_id=audit.pk)
    advance(audit.pk)
    audit.refresh_from_db()
    return audit


def due() -> list[str]:
    """Unfinished audits that nobody has looked at for a while."""
    rows = Audit.objects.filter(next_attempt_at__lte=timezone.now(), state__in=UNFINISHED)
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def advance(audit_id: str) -> None:
    """Look at an audit's task and do what is due. Calling it twice, or from two workers, changes nothing."""
    audit = Audit.objects.select_related("placement__checkpoint").filter(pk=audit_id, state__in=UNFINISHED).first()
    if audit is None:
        return
    task = tasks.tasks_of(OWNER_KIND, audit_id).last()
    if task is None:
        _finish(audit, Verdict(Audit.Outcome.FAILED, "its task is gone; request the audit again"))
    elif not task.outcome:
        _note_progress(audit, task)
    elif task.outcome == AgentTask.Outcome.DONE:
        _take_result(audit, task)
    else:
        _finish(audit, outcomes.of_failed_task(task.outcome, task.error))


def _note_progress(audit: Audit, task: AgentTask) -> None:
    began = task.state not in (AgentTask.State.QUEUED, AgentTask.State.LEASED)
    if began and transition(audit, old=Audit.State.QUEUED, new=Audit.State.RUNNING):
        announce(f"audit:{audit.pk}")
    _look_again_later(audit)


def _look_again_later(audit: Audit) -> None:
    """Before anything that may fail: a row that cannot be computed must not keep the sweeper busy."""
    unfinished = Audit.objects.filter(pk=audit.pk, state__in=UNFINISHED)
    unfinished.update(next_attempt_at=timezone.now() + LOOK_AGAIN)


def _take_result(audit: Audit, task: AgentTask) -> None:
    _look_again_later(audit)
    try:
        if audit.mode == Audit.Mode.SEAL:
            _take_seal(audit, tasks.body(task, SealBody))
        else:
            _take_verification(audit, tasks.body(task, VerifyBody), handed_out_at(task) or audit.created_at)
    except msgspec.ValidationError as error:
        reason = f"the agent's answer was not understood ({error}); update the agent"
        _finish(audit, Verdict(Audit.Outcome.FAILED, reason))
        return
    except ApplicationError as error:
        audit.refresh_from_db()  # what the rolled back transaction had set in memory only
        _finish(audit, Verdict(Audit.Outcome.FAILED, error.detail))
        return
    if Audit.objects.filter(pk=audit.pk, state__in=UNFINISHED).exists():
        # Another worker noted progress meanwhile, so nothing was taken: the result is still needed.
        wake_owner(OWNER_KIND, audit.pk)
        return
    tasks.forget_result(task)


@transaction.atomic
def _take_seal(audit: Audit, body: SealBody) -> None:
    verdict = outcomes.of_seal(body)
    if not _finish(audit, verdict):
        return
    placement = audit.placement
    if body.manifest is not None:
        manifest = store_manifest(checkpoint=placement.checkpoint, manifest=body.manifest)
        Placement.objects.filter(pk=placement.pk).update(manifest=manifest)
        fingerprint = outcomes.sealed_fingerprint(body.manifest)
        detail = {"manifest_id": manifest.pk, "origin": manifest.origin, "seconds": body.seconds}
        _prove(audit, "sealed", fingerprint, detail)
    elif verdict.damage:
        _damage(audit, verdict, placement.fingerprint)


@transaction.atomic
def _take_verification(audit: Audit, body: VerifyBody, began_at: datetime) -> None:
    verdict = outcomes.of_verification(body, audit.sample_ratio)
    if not _finish(audit, verdict):
        return
    if verdict.damage:
        _damage(audit, verdict, body.fingerprint)
    elif verdict.outcome == Audit.Outcome.PASSED:
        detail = {
            "checked_bytes": body.checked_bytes,
            "checked_chunks": body.checked_chunks,
            "total_chunks": body.total_chunks,
            "seconds": body.seconds,
        }
        if verdict.sampled:
            _note_sample(audit, body.fingerprint, {**detail, "sampled": True, "sample_ratio": audit.sample_ratio})
        else:
            clear_damage(placement=audit.placement, found_before=began_at, actor=f"audit:{audit.pk}")
            _prove(audit, "verified", body.fingerprint, detail)


def _note_sample(audit: Audit, fingerprint: str, detail: dict[str, Any]) -> None:
    """A sample proves no rung of its own: it is written beside a seal that stands, and says so."""
    sealed = TrustEvidence.objects.filter(
        placement=audit.placement, rung="sealed", fingerprint=fingerprint, voided_at=None
    )
    if sealed.exists():
        _prove(audit, "sealed", fingerprint, detail)


def _prove(audit: Audit, rung: str, fingerprint: str, detail: dict[str, Any]) -> None:
    current = add_evidence(
        placement=audit.placement,
        rung=rung,
        source_kind=OWNER_KIND,
        source_id=audit.pk,
        fingerprint=fingerprint,
        detail=detail,
    )
    if not current:
        note = "The files changed since the last scan; this counts once a scan has seen them."
        reason = f"{audit.reason} {note}".strip()
        Audit.objects.filter(pk=audit.pk).update(reason=reason)
        audit.reason = reason


def _damage(audit: Audit, verdict: Verdict, fingerprint: str) -> None:
    mark_damage(
        placement=audit.placement,
        findings=verdict.damage,
        source_kind=OWNER_KIND,
        source_id=audit.pk,
        fingerprint=fingerprint,
    )


@transaction.atomic
def _finish(audit: Audit, verdict: Verdict) -> bool:
    """False when another worker was first."""
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
    )
    if done:
        Audit.objects.filter(pk=audit.pk).update(reason=verdict.reason)
        audit.reason = verdict.reason
        announce(f"audit:{audit.pk}")
    return done
