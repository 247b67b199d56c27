"""The resume decision from rows: what is chosen, what is passed over and why, at what cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import factories
import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from listings import changed_shard, finding, listing, scanned, shard_map
from muster_agent.decide.evidence import ServerEvidence
from muster_agent.decide.model import ResumeRequest
from muster_agent.formats.base import Status
from muster_agent.manifest.local_verdict import moment
from muster_agent.protocol.trust import Trust

from apps.checkpoints import evidence, resume
from apps.checkpoints.intake import sort_listing
from apps.checkpoints.models import Checkpoint, Finding, Placement, RunPointer, TrainingRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> TrainingRun:
    return factories.run(factories.cluster())


@pytest.fixture
def fast(run: TrainingRun) -> Any:
    return factories.tier(run.cluster)


def decide(run: TrainingRun, **fields: Any) -> Any:
    return resume.resume_decision(run, ResumeRequest(**fields))


def break_it(placement: Placement) -> None:
    found = finding(
        "digest_mismatch", "damage", "rank-00001-of-00004.safetensors", begin_byte=4194304, end_byte=8388608,
        tensor="layers.3.weight", detail="bytes differ from what was sealed",
    )  # fmt: skip
    evidence.mark_damage(
        placement=placement, findings=[found], source_kind="audit", source_id="aud_7", fingerprint=placement.fingerprint
    )


def test_the_newest_complete_step_is_chosen(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 10)
    newest = factories.placement(run, fast, 20)
    found = decide(run)
    assert (found.outcome, found.step, found.path, found.tier) == ("found", 20, newest.path, "nvme")
    assert (found.status, found.trust, found.source, found.skipped) == ("complete", "complete", "server", ())
    assert found.as_of == newest.last_seen_at.isoformat(timespec="seconds").replace("+00:00", "Z")


def test_a_run_without_checkpoints_says_so(run: TrainingRun) -> None:
    assert decide(run).outcome == "no_checkpoints"


def test_damage_falls_back_to_the_step_before_and_names_shard_range_and_tensor(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 10)
    break_it(factories.placement(run, fast, 20))
    found = decide(run)
    assert found.step == 10
    reason = " ".join(found.skipped[0].reasons)
    for part in ("rank-00001-of-00004.safetensors", "4194304 to 8388608", "layers.3.weight", "audit aud_7"):
        assert part in reason


def test_what_a_listing_found_is_not_called_an_audits_finding(run: TrainingRun, fast: Any) -> None:
    factories.agent(factories.node(run.cluster))
    factories.placement(run, fast, 10)
    cut = shard_map(
        20, status=Status.CORRUPT, not_resumable_reasons=("it is damaged",),
        findings=(finding("shard_truncated", "damage", "rank-00001.safetensors"),),
    )  # fmt: skip
    scanned(fast, listing(cut), root="/ckpt/llama-70b/step-20")
    reasons = decide(run).skipped[0].reasons
    assert "it is damaged" in reasons and "shard_truncated at rank-00001.safetensors" in reasons
    assert not any("audit" in reason for reason in reasons)


def test_of_two_copies_of_a_step_the_faster_tier_wins(run: TrainingRun, fast: Any) -> None:
    slow = factories.tier(run.cluster, "nas", "/nas", speed_order=5)
    factories.placement(run, slow, 10)
    factories.placement(run, fast, 10)
    assert decide(run).tier == "nvme"
    Placement.objects.filter(tier=fast).update(status="missing", listed_status="missing", resumable=False)
    assert decide(run).tier == "nas"


def test_more_trust_may_be_required(run: TrainingRun, fast: Any) -> None:
    older = factories.placement(run, fast, 10)
    factories.placement(run, fast, 20)
    evidence.add_evidence(
        placement=older, rung="verified", source_kind="audit", source_id="aud_1", fingerprint=older.fingerprint
    )
    assert decide(run, require=Trust.VERIFIED).step == 10
    assert decide(run, require=Trust.RESUMED).outcome == "nothing_resumable"


def test_age_is_that_of_the_saved_state(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 10)
    Checkpoint.objects.update(saved_at=timezone.now() - timedelta(hours=2))
    assert decide(run, max_age_seconds=3600).outcome == "nothing_resumable"
    assert decide(run, max_age_seconds=3 * 3600).step == 10


def test_a_step_that_is_not_there_is_told_apart(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 10)
    assert decide(run, step=99).outcome == "step_absent"
    assert decide(run, step=10).step == 10


def test_a_binding_pointer_bounds_the_steps(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 10)
    factories.placement(run, fast, 20)
    RunPointer.objects.create(
        run=run, tier=fast, path="/ckpt/llama-70b/latest_checkpointed_iteration.txt", step=10, binding=True,
        seen_at=timezone.now(),
    )  # fmt: skip
    found = decide(run)
    assert found.step == 10
    assert resume.decision_json(found)["pointer"] == {
        "path": "/ckpt/llama-70b/latest_checkpointed_iteration.txt",
        "step": 10,
    }


def test_an_answer_behind_many_bad_steps_is_still_found(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 1, shards=1)
    for step in range(2, resume.NEWEST_STEPS + 5):
        factories.placement(run, fast, step, shards=1, status="incomplete", resumable=False)
    found = decide(run)
    assert found.step == 1 and len(found.skipped) == resume.NEWEST_STEPS + 3


def test_queries_do_not_grow_with_runs_or_checkpoints(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 10)
    with CaptureQueriesContext(connection) as few:
        decide(run)
    runs = [run, *(factories.run(run.cluster, f"run-{n}") for n in range(8))]
    for number, other in enumerate(runs):
        for step in range(3):
            copy = factories.placement(other, fast, 100 * number + step, shards=1)
        break_it(copy)
    with CaptureQueriesContext(connection) as many:
        decisions = resume.decisions_for(runs)
    assert len(few) == 2 and len(many) == 3
    assert [decision.outcome for decision in decisions.values()] == ["found"] * 9


def test_the_evidence_for_the_command_line_is_bound_to_fingerprints(run: TrainingRun, fast: Any) -> None:
    factories.agent(factories.node(run.cluster))
    listed = shard_map(10)
    scanned(fast, listing(listed))
    row = Placement.objects.get()
    newer = sort_listing(listing(changed_shard(listed, 0, mtime_ns=5)), "/ckpt").accepted[0].fingerprint
    evidence.mark_damage(
        placement=row, findings=[finding("digest_mismatch", "damage", "rank-00000.safetensors")],
        source_kind="audit", source_id="aud_7", fingerprint=newer,
    )  # fmt: skip
    entries = resume.evidence_for(run)
    assert [(entry["fingerprint"], len(entry["damage"])) for entry in entries] == [(row.fingerprint, 0), (newer, 1)]
    assert entries[0].keys() == {
        "path", "fingerprint", "manifest_id", "trust", "as_of", "damage", "damage_at", "tier", "tier_order",
    }  # fmt: skip
    assert entries[0]["damage_at"] is None
    assert entries[0]["tier"] == "nvme" and entries[0]["tier_order"] == 0


def test_the_command_line_is_told_when_the_newest_damage_was_found_so_that_a_later_verification_overrules_it(
    run: TrainingRun, fast: Any
) -> None:
    copy = factories.placement(run, fast, 10)
    break_it(copy)
    break_it_later = finding("shard_truncated", "damage", "rank-00002-of-00004.safetensors")
    evidence.mark_damage(
        placement=copy, findings=[break_it_later], source_kind="audit", source_id="aud_8", fingerprint=copy.fingerprint
    )
    found_at = timezone.now() - timedelta(minutes=3)
    Finding.objects.filter(source_id="aud_7").update(found_at=found_at - timedelta(hours=1))
    Finding.objects.filter(source_id="aud_8").update(found_at=found_at)
    (entry,) = msgspec.convert(resume.evidence_for(run), tuple[ServerEvidence, ...])
    assert len(entry.damage) == 2 and moment(entry.damage_at) == found_at


# -- what the run's launch script requires -----------------------------------------------------------------------------
def test_without_a_request_the_runs_own_requirement_counts(run: TrainingRun, fast: Any) -> None:
    factories.placement(run, fast, 10, trust=Placement.Trust.SEALED)
    factories.placement(run, fast, 20)
    assert resume.resume_decision(run).step == 20
    run.required_trust = TrainingRun.RequiredTrust.SEALED
    found = resume.resume_decision(run)
    assert (found.step, found.trust) == (10, "sealed")
    (passed_over,) = found.skipped
    assert (passed_over.step, passed_over.reasons) == (20, ("it is only complete, and sealed is required",))


def test_each_run_is_judged_by_its_own_requirement(run: TrainingRun, fast: Any) -> None:
    strict = factories.run(run.cluster, "strict", required_trust="verified")
    factories.placement(run, fast, 10)
    factories.placement(strict, fast, 10)
    found = resume.decisions_for([run, strict])
    assert (found[run.pk].outcome, found[strict.pk].outcome) == ("found", "nothing_resumable")
