"""Copies of checkpoints and the tiers they lie on, for `/metrics`."""

from __future__ import annotations

from django.db.models import Count, Sum

from apps.checkpoints.models import Finding, Placement
from apps.checkpoints.standing import newest_looks
from apps.core.metrics import Families, gauge
from apps.storage.models import StorageTier


def families() -> Families:
    there = Placement.objects.exclude(status=Placement.Status.MISSING).order_by()
    kept = there.values_list("tier__cluster__name", "tier__name", "status", "trust")
    rows = list(kept.annotate(count=Count("pk"), total=Sum("total_bytes")))
    labels = ("cluster", "tier", "status", "trust")
    yield gauge(
        "muster_placements", "Copies of checkpoints by tier, status and trust.", labels,
        ((tuple(key), count) for *key, count, _total in rows),
    )  # fmt: skip
    yield gauge(
        "muster_placement_size_bytes", "Bytes of those copies.", labels,
        ((tuple(key), total) for *key, _count, total in rows),
    )  # fmt: skip
    findings = Finding.objects.filter(resolved_at=None).values_list("code", "severity").order_by()
    yield gauge(
        "muster_findings", "Open findings.", ("code", "severity"),
        (((code, severity), count) for code, severity, count in findings.annotate(count=Count("pk"))),
    )  # fmt: skip
    yield from _tiers()


def _tiers() -> Families:
    tiers = StorageTier.objects.values_list("pk", "cluster__name", "name")
    names = {tier: (cluster, name) for tier, cluster, name in tiers}
    capacities = StorageTier.objects.exclude(capacity_bytes=None).values_list("pk", "capacity_bytes")
    yield gauge(
        "muster_tier_capacity_bytes", "Declared capacity.", ("cluster", "tier"),
        ((names[tier], capacity) for tier, capacity in capacities),
    )  # fmt: skip
    looks = list(newest_looks())
    yield gauge(
        "muster_tier_scanned_timestamp_seconds", "When a scan last ended with a look at the tier.", ("cluster", "tier"),
        ((names[scan.tier_id], scan.finished_at.timestamp() if scan.finished_at else None) for scan in looks),
    )  # fmt: skip
    yield gauge(
        "muster_tier_readable", "1 when that look was at a readable tier whose listing was believed.",
        ("cluster", "tier"),
        ((names[scan.tier_id], float(scan.state == scan.State.FINISHED and not scan.doubt)) for scan in looks),
    )  # fmt: skip
