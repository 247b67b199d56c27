"""The evidence of one audit in one document: who, when, by what, against which seal, and what it proves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from apps.audits import meaning
from apps.audits.meaning import Coverage
from apps.audits.models import Audit
from apps.checkpoints.models import Finding

REPORT_VERSION = 1
MAX_FINDINGS = 500


def coverage_of(audit: Audit) -> Coverage | None:
    """None where no chunk was read, or it is not known of which shards."""
    counts = audit.facts.get("shard_chunks", {})
    if audit.mode != Audit.Mode.VERIFY or not audit.checked_chunks or not counts:
        return None
    chunks = [int(size) for size, shards in counts.items() for _ in range(shards)]
    return meaning.coverage(chunks, audit.checked_chunks, audit.sample_ratio, audit.turn)


def sentence_of(audit: Audit) -> str:
    """What it proves; empty for one that did not pass."""
    if audit.outcome != Audit.Outcome.PASSED:
        return ""
    return meaning.sentence(audit.mode, coverage_of(audit), through_cache=audit.through_cache)


def findings_of(audit: Audit) -> Sequence[Finding]:
    return list(Finding.objects.filter(source_kind="audit", source_id=audit.pk).order_by("pk")[:MAX_FINDINGS])


def report(audit: Audit) -> dict[str, Any]:
    """Everything that stays of an audit, as JSON. `audit` comes from `selectors.audits`."""
    placement, checkpoint = audit.placement, audit.placement.checkpoint
    found = coverage_of(audit)
    return {
        "report_version": REPORT_VERSION,
        "audit": audit.pk,
        "mode": audit.mode,
        "outcome": audit.outcome,
        "reason": audit.reason,
        "proves": sentence_of(audit),
        "requested_by": audit.requested_by,
        "created_at": audit.created_at,
        "started_at": audit.started_at,
        "finished_at": audit.finished_at,
        "cluster": checkpoint.run.cluster.name,
        "run": checkpoint.run.name,
        "step": checkpoint.step,
        "tier": placement.tier.name,
        "path": placement.path,
        "sample": _sample(audit),
        "checked_bytes": audit.checked_bytes,
        "checked_chunks": audit.checked_chunks,
        "total_chunks": audit.total_chunks,
        "seconds": audit.seconds,
        "max_bytes_per_second": audit.max_bytes_per_second,
        "through_cache": audit.through_cache,
        "coverage": None if found is None else {**asdict(found), "covered_ratio": found.covered_ratio},
        "evidence": {name: value for name, value in audit.facts.items() if name != "shard_chunks"},
        "findings": [_finding(one) for one in findings_of(audit)],
    }


def _sample(audit: Audit) -> dict[str, Any] | None:
    if not audit.is_sample:
        return None
    return {"ratio": audit.sample_ratio, "seed": audit.seed, "turn": audit.turn}


def _finding(found: Finding) -> dict[str, Any]:
    names = (
        "code",
        "severity",
        "path",
        "detail",
        "cure",
        "begin_byte",
        "end_byte",
        "tensor",
        "found_at",
        "resolved_at",
    )
    return {name: getattr(found, name) for name in names}
