"""Which rule said what about a copy, from its rows."""

from __future__ import annotations

from typing import Any

import factories
import pytest
from listings import finding, listing, scanned, shard_map
from muster_agent.formats.base import Status
from muster_agent.formats.explain import explain
from rest import caller

from apps.accounts.models import Role
from apps.checkpoints import evidence
from apps.checkpoints.explanations import explanation, roles_of
from apps.checkpoints.models import Finding, Placement, TrustEvidence

pytestmark = pytest.mark.django_db


def told(copy: Placement) -> dict[str, list[str]]:
    copy = Placement.objects.select_related("checkpoint").get(pk=copy.pk)
    lines = explanation(copy, copy.findings.filter(resolved_at=None), copy.evidence.all())
    by_heading: dict[str, list[str]] = {}
    for line in lines:
        by_heading.setdefault(line.heading, []).append(line.sentence)
    return by_heading


def test_the_server_says_what_the_command_line_says(tier: Any) -> None:
    listed = shard_map(
        10, status=Status.INCOMPLETE, dp=2, tp=2, must_match=("tp",), not_resumable_reasons=("a shard is not there",),
        findings=(finding("shard_missing", "damage", "rank-00001.safetensors"),),
    )  # fmt: skip
    scanned(tier, listing(listed))
    lines = told(Placement.objects.get())
    for line in explain(listed):
        if line.heading != "Shards":
            assert line.sentence in lines[line.heading]
    assert "Parallel layout: data-parallel 2, tensor-parallel 2." in lines["Ranks"]
    assert "Decided by: shard_missing" in lines["Status"][1] and lines["Resumable"][0] == "No."
    assert lines["Trust"] == ["Listed, by listing alone: nobody has read its bytes."]


def test_damage_that_reading_found_is_told_beside_what_the_listing_said(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    copy = Placement.objects.get()
    evidence.mark_damage(
        placement=copy, findings=[finding("digest_mismatch", "damage", "rank-00001.safetensors")],
        source_kind="audit", source_id="aud_7", fingerprint=copy.fingerprint,
    )  # fmt: skip
    lines = told(copy)
    assert lines["Status"][0].startswith("Complete:")
    assert lines["Bytes read"] == [
        "Damage was found in these very files: digest_mismatch at rank-00001.safetensors. So its status is corrupt."
    ]


def test_each_standing_proof_is_named_and_a_voided_one_is_not(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    copy = Placement.objects.get()
    for rung, source in (("sealed", "aud_1"), ("verified", "aud_2"), ("reloaded", "drl_3")):
        evidence.add_evidence(
            placement=copy, rung=rung, source_kind="audit", source_id=source, fingerprint=copy.fingerprint
        )
    TrustEvidence.objects.filter(source_id="drl_3").update(voided_at=copy.last_seen_at)
    assert told(copy)["Trust"] == ["Sealed, by audit aud_1.", "Verified, by audit aud_2."]


def test_a_copy_that_is_gone_and_a_format_of_tomorrow_are_explained_too(tier: Any) -> None:
    scanned(tier, listing(shard_map(10, format="tomorrow"), shard_map(20)))
    scanned(tier, listing(shard_map(20)))
    lines = told(Placement.objects.get(checkpoint__step=10))
    assert lines["Status"] == ["Missing: it was there, its root could be listed, and it was not in it any more."]
    assert "does not know" in lines["Format"][0] and "Resumable" not in lines


def test_files_are_counted_by_role_with_those_that_are_not_there(tier: Any) -> None:
    copy = factories.placement(factories.run(tier.cluster), tier, shards=3)
    shard = copy.shards.order_by("path").last()
    copy.shards.filter(pk=shard.pk).update(role="optimizer", size_bytes=None)
    told = [(row["role"], row["expected"], row["there"], row["size_bytes"]) for row in roles_of(copy)]
    assert told == [("model", 2, 2, 2000), ("optimizer", 1, 0, None)]


def test_the_api_explains_a_copy(tier: Any) -> None:
    scanned(tier, listing(shard_map(10)))
    body = caller(Role.VIEWER).get(f"placements/{Placement.objects.get().pk}/explanation").json()
    assert body["explanation"][0]["heading"] == "Format" and body["path"].endswith("step-10")
    assert body["roles"] == [{"role": "model", "expected": 4, "there": 4, "size_bytes": 4000}]
    assert not Finding.objects.exists()
