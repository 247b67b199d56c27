"""Audits by the workers themselves, where the copy is mounted on their hosts or lies in a bucket: in turns."""

from __future__ import annotations

import time

from django.utils import timezone
from muster_agent.formats.root import RootUnreadable
from muster_agent.jobs.checkpoint_place import CheckpointNotFound, place_at
from muster_agent.jobs.copy_trouble import CopyTrouble
from muster_agent.jobs.structure import look
from muster_agent.jobs.verify import Verification, VerifyCursor
from muster_agent.manifest.sampling import Sample
from muster_agent.protocol.wire import VerifyBody

from apps.audits import store_words
from apps.audits.facts import by_this_worker
from apps.audits.handing import SLICE, UNFINISHED, finish
from apps.audits.models import Audit
from apps.audits.outcomes import Verdict
from apps.audits.taking import take_verification
from apps.checkpoints.manifests import load_manifest
from apps.core import slices
from apps.core.dispatch import enqueue
from apps.core.errors import ApplicationError
from apps.core.transitions import transition
from apps.core.wakeups import announce
from apps.transfers.reach import why_led_out
from apps.transfers.stores import store_for

_RELATED = ("placement__tier__cluster", "placement__checkpoint", "placement__manifest", "manifest", "round__policy")


def work(audit_id: str) -> None:
    """One turn. Calling it twice, or from two workers, reads once."""
    audit = Audit.objects.select_related(*_RELATED).filter(pk=audit_id, ran_by="workers").first()
    if audit is None or audit.handed_out_at is None or not slices.take_lease(audit, state__in=UNFINISHED):
        return
    again = False
    try:
        again = _turn(audit)
    finally:
        slices.give_lease_back(audit, again=again)
    if again:
        enqueue(SLICE, audit_id=audit.pk)


def _turn(audit: Audit) -> bool:
    """Whether another one is needed."""
    if transition(audit, old=Audit.State.QUEUED, new=Audit.State.RUNNING, started_at=timezone.now()):
        announce(f"audit:{audit.pk}")
    try:
        told = why_led_out(audit.placement.path)
        body = None if told else _read(audit)
    except (CheckpointNotFound, RootUnreadable, CopyTrouble) as error:
        told, body = _advice(error), None
    except ApplicationError as error:
        told, body = error.detail, None
    if told:
        finish(audit, Verdict(Audit.Outcome.FAILED, told), facts=by_this_worker())
    elif body is not None and slices.is_mine(audit, state=Audit.State.RUNNING):
        take_verification(audit, body, audit.started_at or audit.created_at, by_this_worker())
    return not told and body is None and audit.state == Audit.State.RUNNING


def _advice(error: Exception) -> str:
    return f"{error}; {error.hint}" if isinstance(error, RootUnreadable) else str(error)


def _read(audit: Audit) -> VerifyBody | None:
    """What was found; None where the time of the turn is over, or nobody wants it any more."""
    path = audit.placement.path
    store = store_for(path, audit.placement.tier.store)
    manifest = None if audit.manifest is None else load_manifest(audit.manifest)
    if audit.mode == Audit.Mode.STORE and manifest is not None:
        return store_words.ask(audit.placement, manifest)
    if audit.mode == Audit.Mode.STRUCTURE or manifest is None:
        return look(path, manifest, store=store)
    place = place_at(path, store)
    place.require()
    cursor = slices.load_cursor(audit.pk, VerifyCursor)
    sample = Sample(audit.sample_ratio, audit.seed, audit.turn)
    work = Verification(
        place,
        manifest,
        cursor,
        sample=sample,
        max_bytes_per_second=audit.max_bytes_per_second,
        through_cache=audit.through_cache,
    )
    ends_at = time.monotonic() + slices.SLICE_SECONDS
    while time.monotonic() < ends_at:
        try:
            work.read(slices.StepControl())
        except slices.StepEnded:
            if not _note(audit, cursor):
                return None
        else:
            return work.result()
    return None


def _note(audit: Audit, cursor: VerifyCursor) -> bool:
    """Keep how far it is; False where it is not wanted any more."""
    if not slices.is_mine(audit, state=Audit.State.RUNNING):
        audit.refresh_from_db(fields=["state"])
        return False
    slices.save_cursor(audit.pk, cursor)
    read = sum(len(shard.digests) for shard in cursor.shards)
    Audit.objects.filter(pk=audit.pk).update(checked_bytes=cursor.read_bytes, checked_chunks=read)
    announce(f"audit:{audit.pk}")
    return True
