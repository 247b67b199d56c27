"""Reading how far each cluster has come on the way to its first answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db.models import Exists, Model, OuterRef, QuerySet, Subquery
from django.utils import timezone

from apps.audits.models import Audit
from apps.checkpoints.models import InventoryScan, Placement, TrustEvidence
from apps.drills.models import Drill, DrillKind
from apps.drills.selectors import VERIFIED
from apps.fleet.models import Agent, Cluster, JoinToken
from apps.fleet.selectors import agents_reaching
from apps.recovery.first_steps import ClusterFacts, are_done, first_steps
from apps.storage.models import StorageTier

MAX_CLUSTERS = 50
_LET_IN = [state for state in Agent.State if state not in (Agent.State.PENDING, Agent.State.REVOKED)]


def focus(clusters: QuerySet[Cluster]) -> ClusterFacts:
    """The oldest cluster that has not come to the end, in detail, else the oldest; empty facts where there is none. At
    most two queries."""
    found = _all(clusters)
    first = next((facts for facts in found if not are_done(first_steps(facts))), None)
    if first is not None:
        return detailed(first)
    return found[0] if found else ClusterFacts()


def unfinished(clusters: QuerySet[Cluster]) -> Iterator[ClusterFacts]:
    """Those that have not come to the end, the oldest first, without detail; one query."""
    return (facts for facts in _all(clusters) if not are_done(first_steps(facts)))


def _all(clusters: QuerySet[Cluster]) -> list[ClusterFacts]:
    return [_facts(row) for row in _annotated(clusters).order_by("created_at", "pk")[:MAX_CLUSTERS]]


def detailed(facts: ClusterFacts) -> ClusterFacts:
    """The same with the newest usable copy, or whether anybody reaches the tier; one query."""
    if facts.found_at is not None:
        return _with_copy(facts)
    if not facts.tier or facts.is_reached:
        return facts
    reached = bool(agents_reaching(facts.tier_uri, facts.cluster))
    return replace(facts, is_reached=reached)


def _with_copy(facts: ClusterFacts) -> ClusterFacts:
    copies = Placement.objects.filter(
        tier__cluster=facts.cluster, status=Placement.Status.COMPLETE, resumable=True, damaged_at=None
    )
    copy = copies.select_related("checkpoint__run").order_by("-checkpoint__created_at", "-pk").first()
    if copy is None:
        return facts
    run = copy.checkpoint.run
    return replace(
        facts,
        placement=copy.pk,
        checkpoint=copy.checkpoint_id,
        run=run.pk,
        run_name=run.name,
        step=copy.checkpoint.step,
        is_reached=True,
    )


def _annotated(clusters: QuerySet[Cluster]) -> QuerySet[Any]:
    now, here = timezone.now(), OuterRef("pk")
    tiers = StorageTier.objects.filter(cluster=here).order_by("created_at", "pk")
    agents = Agent.objects.filter(node__cluster=here)
    tokens = JoinToken.objects.filter(cluster=here, revoked_at=None, expires_at__gt=now, uses=0)
    scans = InventoryScan.objects.filter(tier__cluster=here).order_by("-created_at", "-pk")
    proofs = TrustEvidence.objects.filter(placement__tier__cluster=here, voided_at=None).order_by("pk")
    audits = Audit.objects.filter(placement__tier__cluster=here).exclude(state=Audit.State.FINISHED)
    drills = Drill.objects.filter(cluster=here).exclude(kind=DrillKind.BANDWIDTH)
    return clusters.annotate(
        tier_id_=_first(tiers, "pk"),
        tier_uri_=_first(tiers, "uri"),
        tier_scanned_by=_first(tiers, "scanned_by"),
        tier_at=_first(tiers, "created_at"),
        agent_at=_first(agents.filter(state__in=_LET_IN).order_by("enrolled_at"), "enrolled_at"),
        agent_is_pending=Exists(agents.filter(state=Agent.State.PENDING)),
        token_until=_first(tokens.order_by("-expires_at"), "expires_at"),
        scan_state=_first(scans, "state"),
        found_at=_first(Placement.objects.filter(tier__cluster=here).order_by("pk"), "first_seen_at"),
        sealed_at=_first(proofs.filter(rung__in=(Placement.Trust.SEALED, *VERIFIED)), "at"),
        verified_at=_first(proofs.filter(rung__in=VERIFIED), "at"),
        sealing=Exists(audits.filter(mode=Audit.Mode.SEAL)),
        verifying=Exists(audits.filter(mode=Audit.Mode.VERIFY)),
        drilled_at=_first(drills.filter(outcome=Drill.Outcome.PASSED).order_by("created_at"), "finished_at"),
        drilling=Exists(drills.exclude(state=Drill.State.FINISHED)),
    )


def _first(rows: QuerySet[Model], name: str) -> Subquery:
    return Subquery(rows.values(name)[:1])


def _facts(row: Any) -> ClusterFacts:
    return ClusterFacts(
        cluster=row.pk,
        cluster_name=row.name,
        cluster_at=row.created_at,
        tier=row.tier_id_ or "",
        tier_uri=row.tier_uri_ or "",
        tier_at=row.tier_at,
        agent_at=row.agent_at,
        agent_is_pending=row.agent_is_pending,
        token_until=row.token_until,
        is_reached=row.tier_scanned_by == StorageTier.ScannedBy.WORKERS,
        scan_state=row.scan_state or "",
        found_at=row.found_at,
        sealed_at=row.sealed_at,
        sealing=row.sealing,
        verified_at=row.verified_at,
        verifying=row.verifying,
        drilled_at=row.drilled_at,
        drilling=row.drilling,
    )
