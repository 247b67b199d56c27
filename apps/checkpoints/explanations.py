"""Which rule said what about one copy: what its reader concluded, in the words of `muster explain`, and what was proven
since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Count, F, Max, Min, Q, Sum
from muster_agent.formats.base import Finding as FoundFinding
from muster_agent.formats.base import Severity, ShardMap, Status
from muster_agent.formats.explain import Line, explain

from apps.checkpoints.evidence import SCAN
from apps.checkpoints.models import Finding, Placement, Shard, TrustEvidence

_SHOWN = 3
_BY_LISTING = frozenset({"Format", "Step", "Ranks", "Commit marker", "Findings", "Status", "Resumable"})


def explanation(copy: Placement, findings: Iterable[Finding], evidence: Iterable[TrustEvidence] = ()) -> list[Line]:
    """From the rows of one copy: `findings` are its open ones, `evidence` what was proven of it. Its `checkpoint` is
    loaded. Shards are not among the lines; `roles_of` counts them."""
    told = list(findings)
    lines = [line for line in explain(_shard_map(copy, told)) if line.heading in _BY_LISTING]
    if copy.listed_status == Placement.Status.MISSING:
        lines = [line for line in lines if line.heading not in ("Commit marker", "Status", "Resumable")]
        lines.append(Line("Status", "Missing: it was there, its root could be listed, and it was not in it any more."))
    return [*lines, *_proven(copy, told, evidence)]


def _shard_map(copy: Placement, findings: Sequence[Finding]) -> ShardMap:
    status = copy.listed_status
    return ShardMap(
        path=copy.path,
        run="",
        format=copy.format,
        step=copy.checkpoint.step,
        status=Status(status) if status in set(Status) else Status.UNKNOWN,
        resumable=copy.resumable,
        not_resumable_reasons=tuple(copy.not_resumable_reasons),
        world_size=copy.world_size,
        dp=copy.dp,
        tp=copy.tp,
        pp=copy.pp,
        ep=copy.ep,
        must_match=tuple(copy.must_match),
        findings=tuple(_found(finding) for finding in findings if finding.source_kind == SCAN),
    )


def _found(row: Finding) -> FoundFinding:
    return FoundFinding(
        code=row.code,
        severity=Severity(row.severity),
        path=row.path,
        detail=row.detail,
        cure=row.cure,
        begin_byte=row.begin_byte,
        end_byte=row.end_byte,
        tensor=row.tensor or None,
    )


def _proven(copy: Placement, findings: Sequence[Finding], evidence: Iterable[TrustEvidence]) -> list[Line]:
    """What reading the bytes said, which no listing can see."""
    lines = []
    if copy.damaged_at is not None:
        lines.append(Line("Bytes read", f"{_damage_said(findings)} So its status is {copy.status}."))
    standing = [one for one in evidence if one.voided_at is None and one.fingerprint == copy.fingerprint]
    for one in sorted(standing, key=lambda proof: proof.at):
        lines.append(Line("Trust", f"{one.get_rung_display()}, by {one.source_kind} {one.source_id}."))
    if not standing:
        lines.append(Line("Trust", f"{copy.get_trust_display()}, by listing alone: nobody has read its bytes."))
    return lines


def _damage_said(findings: Sequence[Finding]) -> str:
    damage = [one for one in findings if one.source_kind != SCAN and one.severity == Finding.Severity.DAMAGE]
    said = "; ".join(one.detail.rstrip(".") for one in damage[:_SHOWN])
    return f"Damage was found in these very files: {said or 'they are not as they were sealed'}."


def roles_of(copy: Placement) -> list[dict[str, Any]]:
    """What its files hold: by role, how many are expected, how many lie there, and their bytes; also the `smallest` and
    `largest` bytes of a rank's file. One query."""
    of_a_rank = Q(rank__isnull=False, size_bytes__gt=0)
    counted = (
        Shard.objects.filter(placement=copy)
        .values("role")
        .annotate(
            expected=Count("pk"),
            there=Count("pk", filter=Q(size_bytes__isnull=False)),
            smallest=Min("size_bytes", filter=of_a_rank),
            largest=Max("size_bytes", filter=of_a_rank),
            bytes_there=Sum("size_bytes"),
        )
    )
    return [
        {"size_bytes": row["bytes_there"], **row}
        for row in counted.order_by(F("bytes_there").desc(nulls_last=True), "role")
    ]
