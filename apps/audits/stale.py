"""Stale saves: steps of one run whose trained state is bit for bit that of another step, by their manifests.

Each seal is compared once with that of the newest sealed step before it and, by one digest over all of its trained
tensors, with every other step of the run.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from muster_agent.manifest.stale import StaleComparison, StaleVerdict, compare_steps, trained_digest

from apps.audits.models import StaleCheck
from apps.checkpoints.evidence import STALE
from apps.checkpoints.findings import clean, finding_row
from apps.checkpoints.manifests import load_manifest
from apps.checkpoints.models import Finding, Manifest, Placement
from apps.core.errors import Conflict

AT_ONCE = 5
"""A manifest can be large, and a sweep must not take long."""
OUTDATED = "it is sealed anew"


def compare_due() -> int:
    """Compare what was sealed since the last sweep, and what is sealed anew; gives how many."""
    _forget_other_declarations()
    _resolve_outdated()
    due = Manifest.objects.filter(stale_check=None, placements__isnull=False, checkpoint__run__archived_at=None)
    rows = due.defer("body").select_related("checkpoint__run").order_by("checkpoint__step", "pk").distinct()[:AT_ONCE]
    for row in rows:
        _compare(row)
    return len(rows)


def _forget_other_declarations() -> None:
    """Compare again where what is frozen is declared otherwise now."""
    checks = StaleCheck.objects.exclude(frozen=F("manifest__checkpoint__run__frozen_tensors"))
    manifests = list(checks.values_list("manifest", flat=True)[:500])
    StaleCheck.objects.filter(manifest__in=manifests).delete()
    findings = Finding.objects.filter(source_kind=STALE, placement__manifest__in=manifests, resolved_at=None)
    findings.update(resolved_at=timezone.now(), resolved_reason="what is frozen is declared otherwise")


@transaction.atomic
def _compare(row: Manifest) -> None:
    frozen = tuple(row.checkpoint.run.frozen_tensors)
    try:
        manifest = load_manifest(row)
        digest = trained_digest(manifest, frozen)
        other = _twin(row, digest) or _before(row)
        found = _against(row, other, frozen) if other is not None else _alone(digest)
    except Conflict as problem:
        digest, other = "", None
        found = StaleComparison(verdict=StaleVerdict.NOT_DECIDABLE, reason=problem.detail)
    _note(row, other, digest, found)


def _alone(digest: str) -> StaleComparison:
    reason = "no step before it is sealed" if digest else "the format does not tell its tensors"
    return StaleComparison(verdict=StaleVerdict.NOT_DECIDABLE, reason=reason)


def _against(row: Manifest, other: Manifest, frozen: tuple[str, ...]) -> StaleComparison:
    older, newer = sorted((row, other), key=lambda one: one.checkpoint.step)
    return compare_steps(load_manifest(older), load_manifest(newer), frozen)


def _twin(row: Manifest, digest: str) -> Manifest | None:
    """Another step with the same trained state, the nearest before it first."""
    same = Manifest.objects.filter(checkpoint__run=row.checkpoint.run_id, stale_check__trained_xxh3_128=digest)
    others = same.exclude(checkpoint=row.checkpoint_id).select_related("checkpoint").order_by("-checkpoint__step")
    return others.first() if digest else None


def _before(row: Manifest) -> Manifest | None:
    earlier = Manifest.objects.filter(checkpoint__run=row.checkpoint.run_id, checkpoint__step__lt=row.checkpoint.step)
    return earlier.select_related("checkpoint").order_by("-checkpoint__step", "-sealed_at").first()


def _note(row: Manifest, other: Manifest | None, digest: str, found: StaleComparison) -> None:
    StaleCheck.objects.update_or_create(
        manifest=row,
        defaults={
            "compared_with": other,
            "verdict": found.verdict.value,
            "reason": clean(found.reason, 2000),
            "trained_xxh3_128": digest,
            "equal_bytes": found.equal_bytes,
            "trained_bytes": found.trained_bytes,
            "tensors": [clean(name, 512) for name in found.tensors],
            "frozen": row.checkpoint.run.frozen_tensors,
            "checked_at": timezone.now(),
        },
    )
    if found.finding is None:
        return
    newer = max((row, other or row), key=lambda one: one.checkpoint.step)
    copies = Placement.objects.filter(manifest=newer)
    Finding.objects.bulk_create(
        finding_row(
            copy.pk,
            found.finding,
            source_kind=STALE,
            source_id=newer.pk[:40],
            at=timezone.now(),
            fingerprint=copy.fingerprint,
        )
        for copy in copies
    )


def _resolve_outdated() -> None:
    """What was said of a seal that a copy no longer has."""
    open_ones = Finding.objects.filter(source_kind=STALE, resolved_at=None).select_related("placement")
    gone = [one.pk for one in open_ones[:2000] if not (one.placement.manifest_id or "").startswith(one.source_id)]
    if gone:
        Finding.objects.filter(pk__in=gone).update(resolved_at=timezone.now(), resolved_reason=OUTDATED)
