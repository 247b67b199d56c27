"""Writing what was proven about a placement: evidence for it, damage against it, and the two words that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from muster_agent.formats.base import Finding as FoundFinding
from muster_agent.protocol.trust import Trust

from apps.checkpoints.findings import finding_row
from apps.checkpoints.models import Finding, Placement, TrustEvidence
from apps.checkpoints.trust import effective_status, highest_rung
from apps.core.transitions import transition

SCAN, STALE = "scan", "stale"
"""What a listing shows, and what was found by comparing seals: reading the bytes again neither proves nor clears it."""


@transaction.atomic
def add_evidence(
    *,
    placement: Placement,
    rung: str,
    source_kind: str,
    source_id: str,
    fingerprint: str,
    detail: Mapping[str, Any] | None = None,
    at: datetime | None = None,
) -> bool:
    """Record that `rung` was proven for the files with this fingerprint; the same source adds a rung only once.

    True when it speaks for the files as last scanned. When False, the files changed since that scan: the evidence
    counts from the scan that sees the new files, and is void if that scan sees yet others.
    """
    _lock(placement)
    TrustEvidence.objects.get_or_create(
        placement=placement,
        rung=Trust(rung).value,
        source_kind=source_kind,
        source_id=source_id,
        defaults={"fingerprint": fingerprint, "detail": dict(detail or {}), "at": at or timezone.now()},
    )
    recompute(placement)
    return placement.fingerprint == fingerprint


@transaction.atomic
def mark_damage(
    *,
    placement: Placement,
    findings: Iterable[FoundFinding],
    source_kind: str,
    source_id: str,
    fingerprint: str,
) -> None:
    """Record damage that reading the bytes found. It stands until the files change or a full verification passes."""
    _lock(placement)
    now = timezone.now()
    known = set(
        Finding.objects.filter(placement=placement, source_kind=source_kind, source_id=source_id).values_list(
            "code", "path", "begin_byte", "end_byte"
        )
    )
    rows = [
        finding_row(placement.pk, found, source_kind=source_kind, source_id=source_id, at=now, fingerprint=fingerprint)
        for found in findings
    ]
    Finding.objects.bulk_create(row for row in rows if (row.code, row.path, row.begin_byte, row.end_byte) not in known)
    Placement.objects.filter(pk=placement.pk, damaged_at=None).update(damaged_at=now)
    recompute(placement, reason=rows[0].detail if rows else "damage was found", actor=f"{source_kind}:{source_id}")


@transaction.atomic
def clear_damage(*, placement: Placement, found_before: datetime, actor: str) -> int:
    """Every byte was read again and is as sealed: damage found before that reading began no longer applies. Gives how
    many findings were resolved."""
    _lock(placement)
    resolved = open_damage(placement.pk).filter(found_at__lt=found_before).update(resolved_at=timezone.now())
    if not open_damage(placement.pk).exists():
        Placement.objects.filter(pk=placement.pk).update(damaged_at=None)
    recompute(placement, reason="every byte was read again and is as sealed", actor=actor)
    return resolved


@transaction.atomic
def recompute(placement: Placement, *, reason: str = "", actor: str = "") -> None:
    """Bring status and trust in line with what was listed and proven; `placement` in memory is refreshed."""
    _lock(placement)
    placement.refresh_from_db(
        fields=["status", "listed_status", "trust", "trust_at", "fingerprint", "damaged_at", "manifest"]
    )
    standing = TrustEvidence.objects.filter(
        placement=placement, voided_at=None, fingerprint=placement.fingerprint
    ).values_list("rung", "at")
    damaged = placement.damaged_at is not None
    trust, trust_at = trust_from(placement.listed_status, damaged, standing)
    status = effective_status(placement.listed_status, damaged=damaged)
    if (trust, trust_at) != (placement.trust, placement.trust_at):
        Placement.objects.filter(pk=placement.pk).update(trust=trust, trust_at=trust_at)
        placement.trust, placement.trust_at = trust, trust_at
    if status != placement.status:
        transition(placement, old=placement.status, new=status, reason=reason, actor=actor, field="status")


def trust_from(
    listed_status: str, damaged: bool, standing: Iterable[tuple[str, datetime]]
) -> tuple[str, datetime | None]:
    """The highest rung that holds and the time of the newest evidence for it; None where only a listing stands behind
    it, which `last_seen_at` dates."""
    pairs = list(standing)
    trust = highest_rung(listed_status, damaged=damaged, rungs=[rung for rung, _at in pairs])
    return trust.value, max((at for rung, at in pairs if rung == trust), default=None)


def open_damage(placement_id: str) -> QuerySet[Finding]:
    """Unresolved damage that was found by reading bytes, not by listing."""
    return Finding.objects.filter(OPEN_DAMAGE, placement=placement_id)


OPEN_DAMAGE = Q(resolved_at=None, severity=Finding.Severity.DAMAGE) & ~Q(source_kind__in=(SCAN, STALE))


def _lock(placement: Placement) -> None:
    """Hold the row against other writers until the transaction ends; an update does so on every database."""
    Placement.objects.filter(pk=placement.pk).update(last_seen_at=F("last_seen_at"))
