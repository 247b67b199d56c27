"""Evidence and damage: once per source, only for the files they speak of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import pytest
from django.utils import timezone
from listings import finding

from apps.checkpoints import evidence
from apps.checkpoints.models import Finding, Placement, TrustEvidence
from apps.core.models import Transition

pytestmark = pytest.mark.django_db


@pytest.fixture
def placement() -> Placement:
    cluster = factories.cluster()
    return factories.placement(factories.run(cluster), factories.tier(cluster))


def prove(placement: Placement, rung: str, source: str = "aud_1", **fields: Any) -> bool:
    values = {"source_kind": "audit", "source_id": source, "fingerprint": placement.fingerprint, **fields}
    return evidence.add_evidence(placement=placement, rung=rung, **values)


def damage(placement: Placement, *found: Any, source: str = "aud_1") -> None:
    evidence.mark_damage(
        placement=placement,
        findings=found or [finding("digest_mismatch", "damage", "rank-00000-of-00004.safetensors", begin_byte=0)],
        source_kind="audit",
        source_id=source,
        fingerprint=placement.fingerprint,
    )


def test_evidence_raises_trust_and_is_dated(placement: Placement) -> None:
    at = timezone.now() - timedelta(hours=1)
    assert prove(placement, "sealed")
    assert prove(placement, "verified", at=at)
    placement.refresh_from_db()
    assert (placement.trust, placement.trust_at) == ("verified", at)


def test_the_same_source_proves_a_rung_once(placement: Placement) -> None:
    prove(placement, "verified", detail={"checked_bytes": 1})
    prove(placement, "verified", detail={"checked_bytes": 2})
    assert TrustEvidence.objects.get().detail == {"checked_bytes": 1}


def test_evidence_about_other_files_does_not_count(placement: Placement) -> None:
    assert not prove(placement, "verified", fingerprint="f" * 32)
    placement.refresh_from_db()
    assert placement.trust == "complete"


def test_damage_makes_it_corrupt_and_leaves_a_transition_with_the_reason(placement: Placement) -> None:
    prove(placement, "verified")
    damage(placement)
    placement.refresh_from_db()
    assert (placement.status, placement.listed_status, placement.trust) == ("corrupt", "complete", "complete")
    assert placement.damaged_at is not None
    change = Transition.objects.get(owner_kind="placement")
    assert (change.old, change.new, change.actor) == ("complete", "corrupt", "audit:aud_1")
    assert "digest_mismatch" in change.reason


def test_the_same_damage_reported_twice_is_one_finding(placement: Placement) -> None:
    damage(placement)
    damage(placement)
    assert Finding.objects.count() == Transition.objects.count() == 1


def test_a_full_verification_lifts_damage_found_before_it_began(placement: Placement) -> None:
    prove(placement, "verified")
    damage(placement)
    assert evidence.clear_damage(placement=placement, found_before=timezone.now(), actor="audit:aud_2") == 1
    placement.refresh_from_db()
    assert (placement.status, placement.trust, placement.damaged_at) == ("complete", "verified", None)


def test_damage_found_while_it_read_is_not_lifted(placement: Placement) -> None:
    began = timezone.now()
    damage(placement)
    assert evidence.clear_damage(placement=placement, found_before=began, actor="audit:aud_2") == 0
    placement.refresh_from_db()
    assert placement.status == "corrupt"


def test_texts_that_no_database_stores_are_cleaned(placement: Placement) -> None:
    damage(placement, finding("digest_mismatch", "damage", "a\0b", tensor="layer\0.weight", begin_byte=2**65))
    found = Finding.objects.get()
    assert (found.path, found.tensor, found.begin_byte) == ("a\ufffdb", "layer\ufffd.weight", None)
