"""Audits that somebody asks for, and their cancelling."""

from __future__ import annotations

import secrets

from django.db import transaction
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.audits import handing, store_words
from apps.audits.handing import LOOK_AGAIN, OWNER_KIND, UNFINISHED
from apps.audits.models import Audit, AuditPolicy, RanBy
from apps.audits.outcomes import Verdict
from apps.audits.taking import advance
from apps.checkpoints.models import Placement
from apps.core.errors import Conflict, InvalidInput
from apps.fleet import tasks

_NOT_THERE = (Placement.Status.MISSING, Placement.Status.ARCHIVED)
MAX_SEED = 2**31 - 1


@transaction.atomic
def request_audit(
    *,
    placement: Placement,
    mode: str,
    sample_ratio: float = 1.0,
    seed: int | None = None,
    max_bytes_per_second: int | None = None,
    through_cache: bool = False,
    actor: str,
) -> Audit:
    """Have a placement sealed, verified or looked at, by whoever scans its tier. `seed` chooses the sample, so that it
    can be repeated.

    Raises InvalidInput (what is asked makes no sense for this placement) or Conflict (not now).
    """
    _check(placement, mode, sample_ratio, seed)
    if mode == Audit.Mode.STORE:
        store_words.require(placement)
    if max_bytes_per_second is not None and max_bytes_per_second < 1:
        raise InvalidInput("Use a whole number of at least 1, or null.", pointer="/max_bytes_per_second")
    if through_cache and mode != Audit.Mode.VERIFY:
        raise InvalidInput("Only a verification may read through the page cache.", pointer="/through_cache")
    now = timezone.now()
    audit = Audit(
        placement=placement,
        mode=mode,
        ran_by=handing.who(placement, mode, AuditPolicy.Where.AS_SCANNED),
        manifest=None if mode == Audit.Mode.SEAL else placement.manifest,
        sample_ratio=0.0 if mode in (Audit.Mode.STRUCTURE, Audit.Mode.STORE) else sample_ratio,
        seed=secrets.randbelow(MAX_SEED) if seed is None else seed,
        max_bytes_per_second=max_bytes_per_second,
        through_cache=through_cache,
        requested_by=actor,
        created_at=now,
        next_attempt_at=now + LOOK_AGAIN,
    )
    handing.insert(audit, actor)
    handing.hand_out(audit)
    audit.refresh_from_db()
    log_activity(
        actor=actor,
        action=f"audit.{mode}",
        target_kind="audit",
        target_id=audit.pk,
        cluster_id=audit.placement.tier.cluster_id,
        detail={"placement": placement.pk, "path": placement.path},
    )
    return audit


def _check(placement: Placement, mode: str, sample_ratio: float, seed: int | None) -> None:
    if mode not in Audit.Mode.values:
        raise InvalidInput(f"Use one of {', '.join(Audit.Mode.values)}.", pointer="/mode")
    if not 0 < sample_ratio <= 1:
        raise InvalidInput("Use a ratio above 0 and at most 1.", pointer="/sample_ratio")
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise InvalidInput(f"Use a whole number from 0 to {MAX_SEED}.", pointer="/seed")
    if mode != Audit.Mode.VERIFY and sample_ratio != 1:
        told = "A seal reads every byte" if mode == Audit.Mode.SEAL else "A look reads no data"
        raise InvalidInput(f"{told}; leave sample_ratio out.", pointer="/sample_ratio")
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


@transaction.atomic
def cancel_audit(*, audit: Audit, actor: str) -> Audit:
    """Stop an audit; what it had read is dropped. Raises Conflict for one that has finished."""
    audit.refresh_from_db()
    if audit.state not in UNFINISHED:
        raise Conflict(f"This audit has finished already ({audit.outcome}); there is nothing to cancel.")
    reason = f"cancelled by {actor}"
    tasks.cancel_owner(owner_kind=OWNER_KIND, owner_id=audit.pk, reason=reason)
    if audit.ran_by == RanBy.WORKERS or audit.handed_out_at is None:
        handing.finish(audit, Verdict(Audit.Outcome.CANCELLED, reason))
    log_activity(
        actor=actor,
        action="audit.cancel",
        target_kind="audit",
        target_id=audit.pk,
        cluster_id=audit.placement.tier.cluster_id,
    )
    advance(audit.pk)
    audit.refresh_from_db()
    return audit
