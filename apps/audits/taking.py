"""Looking at the work of an audit: its answer becomes evidence or damage."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import msgspec
from django.db import transaction
from django.utils import timezone
from muster_agent.protocol.wire import SealBody, VerifyBody

from apps.audits import handing, outcomes, repairs
from apps.audits.facts import by_whom, of_manifest
from apps.audits.handing import LOOK_AGAIN, OWNER_KIND, UNFINISHED, finish
from apps.audits.models import Audit, RanBy
from apps.audits.outcomes import Verdict
from apps.checkpoints.evidence import add_evidence, clear_damage, mark_damage
from apps.checkpoints.manifests import load_manifest, store_manifest
from apps.checkpoints.models import Placement, TrustEvidence
from apps.checkpoints.scans import handed_out_at
from apps.core.dispatch import enqueue, wake_owner
from apps.core.errors import ApplicationError
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.fleet import tasks
from apps.fleet.models import AgentTask

log = logging.getLogger(__name__)


def due() -> list[str]:
    """Unfinished audits that nobody has looked at for a while."""
    rows = Audit.objects.filter(next_attempt_at__lte=timezone.now(), state__in=UNFINISHED)
    return list(rows.order_by("next_attempt_at").values_list("pk", flat=True)[:500])


def advance(audit_id: str) -> None:
    """Look at an audit's task and do what is due. Calling it twice, or from two workers, changes nothing."""
    rows = Audit.objects.select_related(
        "placement__checkpoint", "placement__manifest", "agent__node", "manifest", "round__policy"
    ).defer("manifest__body", "placement__manifest__body")
    audit = rows.filter(pk=audit_id, state__in=UNFINISHED).first()
    if audit is None:
        return
    if audit.handed_out_at is None and audit.round_id is not None:
        handing.hand_out_next(audit.round_id)
        return
    if audit.ran_by == RanBy.WORKERS:
        enqueue(handing.SLICE, audit_id=audit_id)
        return
    task = tasks.tasks_of(OWNER_KIND, audit_id).last()
    if task is None:
        finish(audit, Verdict(Audit.Outcome.FAILED, "its task is gone; request the audit again"))
    elif not task.outcome:
        _note_progress(audit, task)
    elif task.outcome == AgentTask.Outcome.DONE:
        _take_result(audit, task)
    else:
        finish(audit, outcomes.of_failed_task(task.outcome, task.error))


def _note_progress(audit: Audit, task: AgentTask) -> None:
    began = task.state not in (AgentTask.State.QUEUED, AgentTask.State.LEASED)
    if began and transition(audit, old=Audit.State.QUEUED, new=Audit.State.RUNNING, started_at=timezone.now()):
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
            take_verification(audit, tasks.body(task, VerifyBody), handed_out_at(task) or audit.created_at)
    except msgspec.ValidationError as error:
        reason = f"the agent's answer was not understood ({error}); update the agent"
        finish(audit, Verdict(Audit.Outcome.FAILED, reason))
        return
    except ApplicationError as error:
        audit.refresh_from_db()  # what the rolled back transaction had set in memory only
        finish(audit, Verdict(Audit.Outcome.FAILED, error.detail))
        return
    if Audit.objects.filter(pk=audit.pk, state__in=UNFINISHED).exists():
        # Another worker noted progress meanwhile, so nothing was taken: the result is still needed.
        wake_owner(OWNER_KIND, audit.pk)
        return
    tasks.forget_result(task)


@transaction.atomic
def _take_seal(audit: Audit, body: SealBody) -> None:
    verdict, placement = outcomes.of_seal(body), audit.placement
    manifest = None
    if body.manifest is not None:
        manifest = store_manifest(checkpoint=placement.checkpoint, manifest=body.manifest)
    facts = {**by_whom(audit), **of_manifest(body.manifest)}
    if not finish(audit, verdict, manifest=manifest, facts=facts):
        return
    if body.manifest is not None and manifest is not None:
        Placement.objects.filter(pk=placement.pk).update(manifest=manifest)
        fingerprint = outcomes.sealed_fingerprint(body.manifest)
        detail = {"manifest_id": manifest.pk, "origin": manifest.origin, "seconds": body.seconds}
        _prove(audit, "sealed", fingerprint, detail)
    elif verdict.damage:
        _damage(audit, verdict, placement.fingerprint)


@transaction.atomic
def take_verification(audit: Audit, body: VerifyBody, began_at: datetime, who: dict[str, Any] | None = None) -> None:
    """Evidence or damage from what reading again found; `began_at`: what was found before is overruled by it."""
    verdict = outcomes.of_verification(body, audit.sample_ratio)
    manifest = None if audit.manifest is None else load_manifest(audit.manifest)
    read = {"read_xxh3_128": body.read_xxh3_128, "fingerprint": body.fingerprint}
    if not finish(audit, verdict, facts={**(who or by_whom(audit)), **of_manifest(manifest), **read}):
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
        if audit.mode in (Audit.Mode.STRUCTURE, Audit.Mode.STORE):
            told = {"by": "the store's word"} if audit.mode == Audit.Mode.STORE else {}
            _prove(audit, "complete", body.fingerprint, {"mode": audit.mode, "seconds": body.seconds, **told})
        elif verdict.sampled:
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
    if audit.round is not None and audit.round.policy.repairs:
        _repair(audit)


def _repair(audit: Audit) -> None:
    """Where the policy says so and another copy is good enough; else the alert stands until somebody acts."""
    try:
        repairs.request_repair(placement=audit.placement, audit=audit, actor=audit.requested_by)
    except ApplicationError as problem:
        log.warning("what audit %s found is not repaired: %s", audit.pk, problem.detail)
