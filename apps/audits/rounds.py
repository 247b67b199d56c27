"""One round of an audit policy: which copies it audits, which it leaves out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import F, Max, Q, QuerySet, Window
from django.db.models.functions import DenseRank
from django.utils import timezone

from apps.accounts.services import log_activity
from apps.audits import handing
from apps.audits.handing import UNFINISHED
from apps.audits.models import Audit, AuditPolicy, AuditRound
from apps.checkpoints.models import Placement, TrustEvidence
from apps.core.errors import Conflict
from apps.core.transitions import record

MAX_AUDITS = 2000
"""Of one round. What is beyond it is counted, and comes first the next time."""
_PROOFS = (Placement.Trust.VERIFIED, Placement.Trust.RELOADED)
NOT_SEALED = "it is not sealed"
DAMAGED = "damage was found already: repair it, or verify it by hand"
UNDER_WAY = "it is being audited already"
BEYOND = f"more than {MAX_AUDITS} at a time"


@transaction.atomic
def run_policy(*, policy: AuditPolicy, actor: str) -> AuditRound:
    """Audit now what the policy is for. Raises Conflict while the round before is under way."""
    told = in_the_way(policy)
    if told:
        raise Conflict(told)
    now = timezone.now()
    row = AuditRound(policy=policy, planned_at=now, created_at=now, requested_by=actor)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict("This policy has just been started.") from error
    log_activity(
        actor=actor,
        action="audit_policy.run",
        target_kind="audit_policy",
        target_id=policy.pk,
        cluster_id=policy.cluster_id,
    )
    start(policy, row)
    return row


def in_the_way(policy: AuditPolicy) -> str:
    """Why no round can begin now."""
    under_way = Audit.objects.filter(round__policy=policy, state__in=UNFINISHED).select_related("round").first()
    if under_way is None or under_way.round is None:
        return ""
    return f"The round of {under_way.round.planned_at:%Y-%m-%d %H:%M} UTC has not finished."


@transaction.atomic
def start(policy: AuditPolicy, row: AuditRound) -> None:
    """Make the audits of a round, and hand out the first. Raises Conflict where there is nothing to audit."""
    copies = list(scope(policy).order_by("last_seen_at", "pk"))
    left_out = reasons_to_leave_out(policy, copies, timezone.now())
    chosen = [copy for copy in copies if copy.pk not in left_out]
    counts = Counter(left_out.values())
    if len(chosen) > MAX_AUDITS:
        counts[BEYOND] = len(chosen) - MAX_AUDITS
    audits = _audits(policy, row, _longest_ago_first(chosen)[:MAX_AUDITS])
    Audit.objects.bulk_create(audits)
    row.audit_count, row.left_out = len(audits), dict(counts)
    row.save(update_fields=["audit_count", "left_out"])
    for audit in audits:
        record("audit", audit.pk, old="", new=audit.state, actor=f"policy {policy.name}")
    if audits:
        handing.hand_out_next(row.pk)
    elif not copies:
        raise Conflict("No copy that is there falls under this policy.")


def scope(policy: AuditPolicy) -> QuerySet[Placement]:
    """The copies that are there and fall under the policy."""
    rows = Placement.objects.filter(tier__cluster=policy.cluster_id, checkpoint__run__archived_at=None)
    rows = rows.exclude(status__in=(Placement.Status.MISSING, Placement.Status.ARCHIVED))
    if policy.run_id is not None:
        rows = rows.filter(checkpoint__run=policy.run_id)
    if policy.tier_id is not None:
        rows = rows.filter(tier=policy.tier_id)
    if policy.newest is not None:
        of_run = [F("checkpoint__run"), F("tier")]
        position = Window(DenseRank(), partition_by=of_run, order_by=F("checkpoint__step").desc())
        rows = rows.annotate(position=position).filter(position__lte=policy.newest)
    return rows.select_related("checkpoint__run", "tier__cluster", "manifest").defer("manifest__body")


def reasons_to_leave_out(policy: AuditPolicy, copies: Sequence[Placement], now: datetime) -> dict[str, str]:
    """By placement; one that is to be audited is not in it."""
    ids = [copy.pk for copy in copies]
    busy = set(Audit.objects.filter(placement__in=ids, state__in=UNFINISHED).values_list("placement", flat=True))
    proven = _proven_since(policy, ids, now)
    found: dict[str, str] = {}
    for copy in copies:
        why = _why_not(policy, copy)
        if not why and copy.pk in busy:
            why = UNDER_WAY
        if not why and copy.pk in proven:
            why = f"every byte was proven within {policy.skip_verified_days:g} days"
        if why:
            found[copy.pk] = why
    return found


def _why_not(policy: AuditPolicy, copy: Placement) -> str:
    if copy.damaged_at is not None:
        return DAMAGED
    if copy.status != Placement.Status.COMPLETE:
        return f"it is {copy.get_status_display().lower()}"
    if copy.manifest_id is None and policy.mode != AuditPolicy.Mode.STRUCTURE:
        return NOT_SEALED
    return ""


def _proven_since(policy: AuditPolicy, placement_ids: Sequence[str], now: datetime) -> set[str]:
    if policy.skip_verified_days is None:
        return set()
    since = now - timedelta(days=policy.skip_verified_days)
    proofs = TrustEvidence.objects.filter(placement__in=placement_ids, rung__in=_PROOFS, voided_at=None, at__gte=since)
    return set(proofs.filter(fingerprint=F("placement__fingerprint")).values_list("placement", flat=True))


def _longest_ago_first(copies: Sequence[Placement]) -> list[Placement]:
    """So that what did not fit into one round begins the next."""
    last = Audit.objects.filter(placement__in=[copy.pk for copy in copies]).exclude(mode=Audit.Mode.SEAL)
    at = dict(last.order_by().values_list("placement").annotate(at=Max("created_at")))
    never = datetime.min.replace(tzinfo=timezone.now().tzinfo)
    return sorted(copies, key=lambda copy: (at.get(copy.pk, never), copy.pk))


def _audits(policy: AuditPolicy, row: AuditRound, copies: Sequence[Placement]) -> list[Audit]:
    is_structure = policy.mode == AuditPolicy.Mode.STRUCTURE
    mode = Audit.Mode.STRUCTURE if is_structure else Audit.Mode.VERIFY
    turns = _next_turns(policy, copies)
    rate = policy.max_bytes_per_second
    return [
        Audit(
            placement=copy,
            round=row,
            mode=mode,
            ran_by=handing.who(copy, mode, policy.where),
            manifest=copy.manifest,
            sample_ratio=policy.ratio,
            seed=policy.seed,
            turn=turns.get(copy.pk, 0),
            max_bytes_per_second=None if rate is None else max(1, rate // policy.at_once),
            through_cache=policy.through_cache and mode == Audit.Mode.VERIFY,
            requested_by=f"policy {policy.name}",
            created_at=timezone.now(),
        )
        for copy in copies
    ]


def _next_turns(policy: AuditPolicy, copies: Sequence[Placement]) -> dict[str, int]:
    """A turn counts once it was read to its end, and only against the seal that stands now."""
    if policy.mode != AuditPolicy.Mode.SAMPLE:
        return {}
    read = Audit.objects.filter(
        Q(round__policy=policy, seed=policy.seed, sample_ratio=policy.sample_ratio, outcome=Audit.Outcome.PASSED),
        placement__in=[copy.pk for copy in copies],
        manifest=F("placement__manifest"),
    )
    turns = read.order_by().values_list("placement").annotate(turn=Max("turn"))
    return {placement: turn + 1 for placement, turn in turns}
