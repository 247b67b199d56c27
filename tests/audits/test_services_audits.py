"""Audits from the request to evidence or damage, with the agent's real seal and verify jobs on real bytes."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import factories
import msgspec
import pytest
from agent.checkpoint_factory import tensor_offset, write_checkpoint
from django.db import IntegrityError, transaction
from django.utils import timezone
from listings import answer, finding, listing, manifest_of, scanned, shard_map, start
from muster_agent.decide.model import ResumeRequest
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.seal import seal
from muster_agent.jobs.verify import verify
from muster_agent.manifest.model import manifest_id
from muster_agent.manifest.sampling import Sample
from muster_agent.protocol.wire import InventoryParams, SealBody, VerifyBody, VerifyParams

from apps.accounts.models import ActivityEntry
from apps.audits import services, taking
from apps.audits.models import Audit
from apps.checkpoints import resume
from apps.checkpoints.manifests import load_manifest, store_manifest
from apps.checkpoints.models import Finding, Placement, TrainingRun, TrustEvidence
from apps.core.errors import Conflict, InvalidInput
from apps.core.models import Transition
from apps.fleet.models import Agent, AgentTask
from apps.fleet.tasks import tasks_of

pytestmark = pytest.mark.django_db


# -- on real bytes -----------------------------------------------------------------------------------------------------
@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "llama-70b"
    for step in (10, 20):
        written = write_checkpoint(folder, step, world_size=2, rank_bytes=60_000)
        for path in (*written.iterdir(), written):
            os.utime(path, (1_700_000_000 + step, 1_700_000_000 + step))
    return folder


@pytest.fixture
def disk(run_folder: Path) -> Any:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster))
    return factories.tier(cluster, uri=str(run_folder))


def scan(disk: Any) -> None:
    scanned(disk, run_inventory(InventoryParams(root=disk.uri)))


def work(audit: Audit, *, write_beside: bool = False) -> Audit:
    """Do as an agent does: take the task's parameters, run the real job, report its answer."""
    task = tasks_of("audit", audit.pk).get()
    start(task)
    taking.advance(audit.pk)
    if audit.mode == Audit.Mode.SEAL:
        body: Any = seal(task.params["path"], write_beside=write_beside)
    else:
        params = msgspec.convert(task.params, VerifyParams)
        body = verify(params.path, params.manifest, sample=Sample(params.sample_ratio, params.seed, params.turn))
    task.refresh_from_db()
    answer(task, body)
    taking.advance(audit.pk)
    audit.refresh_from_db()
    return audit


def ask(placement: Placement, mode: str, **fields: Any) -> Audit:
    return services.request_audit(placement=placement, mode=mode, actor="olga", **fields)


def flip_a_byte(shard: Path, offset: int, *, keep_time: bool) -> None:
    before = shard.stat()
    data = bytearray(shard.read_bytes())
    data[offset] ^= 0xFF
    shard.write_bytes(data)
    if keep_time:
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


def copy_of(step: int) -> Placement:
    return Placement.objects.select_related("checkpoint__run").get(checkpoint__step=step)


def test_sealing_and_verifying_real_bytes_climbs_the_rungs(disk: Any) -> None:
    scan(disk)
    sealed = work(ask(copy_of(20), "seal"))
    assert (sealed.outcome, sealed.state, copy_of(20).trust) == ("passed", "finished", "sealed")
    assert sealed.checked_bytes == copy_of(20).total_bytes
    verified = work(ask(copy_of(20), "verify"))
    assert (verified.outcome, verified.reason, copy_of(20).trust) == ("passed", "", "verified")
    assert verified.checked_chunks == verified.total_chunks and verified.seconds is not None
    proof = TrustEvidence.objects.get(rung="verified")
    assert (proof.source_kind, proof.source_id, proof.fingerprint) == ("audit", verified.pk, copy_of(20).fingerprint)
    assert copy_of(10).trust == "complete"


def test_a_flipped_byte_is_named_and_the_run_falls_back(disk: Any, run_folder: Path) -> None:
    scan(disk)
    for step in (10, 20):
        work(ask(copy_of(step), "seal"))
    shard = run_folder / "step-00000020" / "rank-00001-of-00002.safetensors"
    flip_a_byte(shard, tensor_offset(shard, "model.layer1.weight") + 5, keep_time=True)
    audit = work(ask(copy_of(20), "verify"))
    assert audit.outcome == "damaged"
    found = Finding.objects.get(code="digest_mismatch")
    assert found.path == shard.name and found.begin_byte == 0 and found.tensor == "model.layer1.weight"
    copy = copy_of(20)
    assert (copy.status, copy.trust) == ("corrupt", "complete")
    decision = resume.resume_decision(copy.checkpoint.run, ResumeRequest())
    assert decision.step == 10
    reasons = " ".join(decision.skipped[0].reasons)
    assert shard.name in reasons and "model.layer1.weight" in reasons and audit.pk in reasons
    scan(disk)
    assert copy_of(20).status == "corrupt", "a scan that sees those very files does not lift the damage"


def test_a_step_saved_again_lifts_the_damage_and_starts_a_new_record(disk: Any, run_folder: Path) -> None:
    scan(disk)
    work(ask(copy_of(20), "seal"))
    shard = run_folder / "step-00000020" / "rank-00000-of-00002.safetensors"
    flip_a_byte(shard, 2000, keep_time=True)
    assert work(ask(copy_of(20), "verify")).outcome == "damaged"
    with pytest.raises(Conflict, match="would bless it"):
        ask(copy_of(20), "seal")
    for path in (run_folder / "step-00000020").iterdir():
        path.unlink()
    (run_folder / "step-00000020").rmdir()
    write_checkpoint(run_folder, 20, world_size=2, rank_bytes=60_000, seed=5)
    for path in (run_folder / "step-00000020").iterdir():
        os.utime(path, (1_700_009_999, 1_700_009_999))
    scan(disk)
    copy = copy_of(20)
    assert (copy.status, copy.trust, copy.manifest, copy.damaged_at) == ("complete", "complete", None, None)
    assert work(ask(copy_of(20), "seal")).outcome == "passed"
    assert work(ask(copy_of(20), "verify")).outcome == "passed"
    assert copy_of(20).trust == "verified"


def save_again(run_folder: Path) -> None:
    """Step 20 with other values, every file written again and later."""
    folder = run_folder / "step-00000020"
    for path in write_checkpoint(run_folder.parent / "aside", 20, world_size=2, rank_bytes=60_000, seed=5).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
        os.utime(folder / path.name, (1_700_009_999, 1_700_009_999))


@pytest.mark.parametrize("beside", [True, False])
def test_a_good_step_saved_again_is_not_called_damaged_and_can_be_sealed_again(
    disk: Any, run_folder: Path, beside: bool
) -> None:
    scan(disk)
    for step in (10, 20):
        work(ask(copy_of(step), "seal"), write_beside=beside)
    save_again(run_folder)
    audit = work(ask(copy_of(20), "verify"))  # before any scan has seen the new files
    assert audit.outcome == "failed"
    assert "changed since sealing" in audit.reason and "Scan, then seal again" in audit.reason
    assert not Finding.objects.filter(severity="damage").exists()
    assert (copy_of(20).status, copy_of(20).damaged_at) == ("complete", None)
    scan(disk)
    copy = copy_of(20)
    assert (copy.status, copy.trust, copy.manifest) == ("complete", "complete", None)
    assert resume.resume_decision(copy.checkpoint.run, ResumeRequest()).step == 20
    assert work(ask(copy, "seal"), write_beside=beside).outcome == "passed"
    assert work(ask(copy_of(20), "verify")).outcome == "passed"
    scan(disk)
    assert copy_of(20).trust == "verified"


def test_one_file_with_other_bytes_and_another_time_is_no_damage_and_voids_the_seal(
    disk: Any, run_folder: Path
) -> None:
    scan(disk)
    work(ask(copy_of(20), "seal"))
    flip_a_byte(run_folder / "step-00000020" / "rank-00001-of-00002.safetensors", 3000, keep_time=False)
    audit = work(ask(copy_of(20), "verify"))
    assert audit.outcome == "failed" and "rank-00001-of-00002.safetensors changed since sealing" in audit.reason
    assert (copy_of(20).status, Finding.objects.count()) == ("complete", 0)
    scan(disk)
    assert copy_of(20).trust == "complete" and not TrustEvidence.objects.filter(voided_at=None).exists()
    assert work(ask(copy_of(20), "seal")).outcome == "passed"
    assert work(ask(copy_of(20), "verify")).outcome == "passed"


def test_a_restored_shard_that_verifies_lifts_the_damage(disk: Any, run_folder: Path) -> None:
    scan(disk)
    work(ask(copy_of(20), "seal"))
    shard = run_folder / "step-00000020" / "rank-00000-of-00002.safetensors"
    flip_a_byte(shard, 3000, keep_time=True)
    assert work(ask(copy_of(20), "verify")).outcome == "damaged"
    flip_a_byte(shard, 3000, keep_time=True)
    assert work(ask(copy_of(20), "verify")).outcome == "passed"
    copy = copy_of(20)
    assert (copy.status, copy.trust, copy.damaged_at) == ("complete", "verified", None)
    assert Finding.objects.get(code="digest_mismatch").resolved_at is not None


def test_a_lost_database_is_rebuilt_by_a_scan(disk: Any) -> None:
    scan(disk)
    work(ask(copy_of(20), "seal"), write_beside=True)
    before = copy_of(20)
    TrainingRun.objects.all().delete()
    assert not Placement.objects.exists() and not TrustEvidence.objects.exists()
    scan(disk)
    after = copy_of(20)
    assert (after.trust, after.manifest_id, after.fingerprint) == ("sealed", before.manifest_id, before.fingerprint)
    assert work(ask(copy_of(20), "verify")).outcome == "passed"


def test_a_sample_that_agrees_is_not_called_verified(disk: Any) -> None:
    scan(disk)
    work(ask(copy_of(20), "seal"))
    audit = work(ask(copy_of(20), "verify", sample_ratio=0.4, seed=1))
    assert audit.outcome == "passed" and audit.reason.startswith("sampled: ")
    assert copy_of(20).trust == "sealed"
    proof = TrustEvidence.objects.get(source_id=audit.pk)
    assert (proof.rung, proof.detail["sampled"], proof.detail["sample_ratio"]) == ("sealed", True, 0.4)


def test_files_touched_since_the_scan_say_so_and_count_once_seen(disk: Any, run_folder: Path) -> None:
    scan(disk)
    work(ask(copy_of(20), "seal"))
    os.utime(run_folder / "step-00000020" / "rank-00000-of-00002.safetensors", (1_700_000_999, 1_700_000_999))
    audit = work(ask(copy_of(20), "verify"))
    assert audit.outcome == "passed" and "changed since the last scan" in audit.reason
    scan(disk)
    copy = copy_of(20)
    assert copy.trust == "verified" and TrustEvidence.objects.get(rung="sealed").voided_at is not None


def test_a_checkpoint_that_is_not_whole_is_refused_with_the_reason(disk: Any, run_folder: Path) -> None:
    scan(disk)
    (run_folder / "step-00000020" / "rank-00000-of-00002.safetensors").unlink()
    audit = work(ask(copy_of(20), "seal"))
    assert audit.outcome == "refused" and "rank-00000-of-00002.safetensors" in audit.reason
    assert not TrustEvidence.objects.exists() and not Finding.objects.filter(source_kind="audit").exists()


# -- on answers --------------------------------------------------------------------------------------------------------
@pytest.fixture
def placement() -> Placement:
    cluster = factories.cluster()
    factories.agent(factories.node(cluster), roots=["/ckpt"])
    tier = factories.tier(cluster)
    scanned(tier, listing(shard_map(10)))
    row = Placement.objects.get()
    row.manifest = store_manifest(checkpoint=row.checkpoint, manifest=manifest_of(shard_map(10)))
    row.save()
    return row


def verification(placement: Placement, verified: bool | None = True, **fields: Any) -> VerifyBody:
    values = {
        "checked_bytes": 4000, "checked_chunks": 4, "total_chunks": 4, "seconds": 0.5,
        "fingerprint": placement.fingerprint, **fields,
    }  # fmt: skip
    return VerifyBody(verified=verified, **values)


def answered(audit: Audit, body: Any, **fields: Any) -> Audit:
    answer(tasks_of("audit", audit.pk).get(), body, **fields)
    taking.advance(audit.pk)
    audit.refresh_from_db()
    return audit


def test_a_request_hands_the_manifest_to_an_agent_and_leaves_its_traces(placement: Placement) -> None:
    audit = ask(placement, "verify", sample_ratio=0.5, seed=7)
    task = tasks_of("audit", audit.pk).get()
    params = msgspec.convert(task.params, VerifyParams)
    assert (task.kind, params.path, params.sample_ratio, params.seed) == ("verify", placement.path, 0.5, 7)
    assert placement.manifest is not None and params.manifest == load_manifest(placement.manifest)
    assert manifest_id(params.manifest) == placement.manifest_id
    assert ActivityEntry.objects.get(action="audit.verify").target_id == audit.pk
    assert Transition.objects.filter(owner_kind="audit", owner_id=audit.pk, actor="olga").exists()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "polish"}, "seal, verify, structure"),
        ({"mode": "verify", "sample_ratio": 0.0}, "above 0"),
        ({"mode": "verify", "sample_ratio": 1.5}, "at most 1"),
        ({"mode": "verify", "sample_ratio": float("nan")}, "above 0"),
        ({"mode": "verify", "seed": -1}, "whole number"),
        ({"mode": "seal", "sample_ratio": 0.5}, "every byte"),
        ({"mode": "seal", "through_cache": True}, "Only a verification"),
        ({"mode": "structure", "through_cache": True}, "Only a verification"),
    ],
)
def test_what_makes_no_sense_is_refused(placement: Placement, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        services.request_audit(placement=placement, actor="olga", **fields)
    assert not Audit.objects.exists() and not AgentTask.objects.filter(owner_kind="audit").exists()


def test_verifying_without_a_seal_says_to_seal_first(placement: Placement) -> None:
    placement.manifest = None
    with pytest.raises(InvalidInput, match="seal this placement first"):
        ask(placement, "verify")


def test_what_is_missing_cannot_be_audited(placement: Placement) -> None:
    placement.status = "missing"
    with pytest.raises(Conflict, match="nothing to read"):
        ask(placement, "seal")


def test_without_an_agent_online_the_request_says_what_to_do(placement: Placement) -> None:
    Agent.objects.update(state="lost")
    with pytest.raises(Conflict, match="start one whose roots contain it"):
        ask(placement, "seal")


def test_one_audit_of_a_kind_runs_at_a_time(placement: Placement) -> None:
    audit = ask(placement, "verify")
    with pytest.raises(Conflict, match="running already"):
        ask(placement, "verify")
    ask(placement, "seal")
    with pytest.raises(IntegrityError), transaction.atomic():
        Audit.objects.create(placement=placement, mode="verify", requested_by="x", created_at=timezone.now())
    answered(audit, verification(placement))
    ask(placement, "verify")


def test_an_answer_taken_in_twice_counts_once(placement: Placement) -> None:
    audit = answered(ask(placement, "verify"), verification(placement))
    taking.advance(audit.pk)
    assert (TrustEvidence.objects.count(), audit.outcome, audit.next_attempt_at) == (1, "passed", None)
    assert tasks_of("audit", audit.pk).get().result is None


def test_damage_without_a_finding_of_that_severity_is_still_damage(placement: Placement) -> None:
    body = verification(placement, False, findings=(finding("listing_failed"),))
    assert answered(ask(placement, "verify"), body).outcome == "damaged"
    placement.refresh_from_db()
    assert placement.status == "corrupt" and Finding.objects.filter(source_kind="audit").count() == 1


def test_what_could_not_be_looked_at_is_neither_good_nor_damaged(placement: Placement) -> None:
    body = verification(placement, None, findings=(finding("permission_denied", path="rank-00000.safetensors"),))
    audit = answered(ask(placement, "verify"), body)
    assert audit.outcome == "failed" and "permission_denied" in audit.reason
    placement.refresh_from_db()
    assert (placement.status, placement.trust) == ("complete", "complete")


@pytest.mark.parametrize(
    ("outcome", "error", "expected", "reason"),
    [
        ("failed", "no such file", "failed", "no such file"),
        ("failed", "", "failed", "gave no reason"),
        ("cancelled", "cancelled by olga", "cancelled", "cancelled by olga"),
        ("lost", "no word for 300 s", "failed", "the agent was lost"),
        ("unsupported", "", "failed", "update it"),
    ],
)
def test_a_task_without_an_answer_ends_the_audit_with_a_reason(
    placement: Placement, outcome: str, error: str, expected: str, reason: str
) -> None:
    audit = answered(ask(placement, "verify"), None, outcome=outcome, error=error)
    assert (audit.state, audit.outcome) == ("finished", expected) and reason in audit.reason
    placement.refresh_from_db()
    assert placement.status == "complete"


def test_an_answer_of_another_shape_fails_the_audit(placement: Placement) -> None:
    audit = answered(ask(placement, "verify"), listing())
    assert audit.outcome == "failed" and "was not understood" in audit.reason


def test_a_manifest_that_contradicts_itself_fails_the_seal(placement: Placement) -> None:
    forged = msgspec.structs.replace(manifest_of(shard_map(10)), root_xxh3_128="0" * 32)
    audit = answered(ask(placement, "seal"), SealBody(manifest=forged, manifest_path=None, seconds=1.0))
    assert audit.outcome == "failed" and "manifest is damaged" in audit.reason
    assert not TrustEvidence.objects.exists()


def test_a_seal_that_contradicts_an_earlier_one_is_damage(placement: Placement) -> None:
    body = SealBody(
        manifest=None, manifest_path=None, seconds=1.0,
        findings=(finding("digest_mismatch", "damage", "rank-00000.safetensors"),),
    )  # fmt: skip
    assert answered(ask(placement, "seal"), body).outcome == "damaged"
    placement.refresh_from_db()
    assert placement.status == "corrupt"


def test_cancelling_ends_a_queued_audit_at_once_and_a_finished_one_not_at_all(placement: Placement) -> None:
    audit = services.cancel_audit(audit=ask(placement, "verify"), actor="olga")
    assert (audit.state, audit.outcome, audit.reason) == ("finished", "cancelled", "cancelled by olga")
    with pytest.raises(Conflict, match=r"finished already \(cancelled\)"):
        services.cancel_audit(audit=audit, actor="olga")


def test_cancelling_a_running_audit_waits_for_its_agent(placement: Placement) -> None:
    audit = ask(placement, "verify")
    task = tasks_of("audit", audit.pk).get()
    start(task)
    audit = services.cancel_audit(audit=audit, actor="olga")
    assert audit.state == "running" and tasks_of("audit", audit.pk).get().state == "cancelling"
    assert answered(audit, None, outcome="cancelled", error="cancelled").outcome == "cancelled"


def test_the_sweeper_sees_unfinished_audits_whose_time_has_come(placement: Placement) -> None:
    audit = ask(placement, "verify")
    assert taking.due() == []
    Audit.objects.update(next_attempt_at=timezone.now() - timedelta(seconds=1))
    assert taking.due() == [audit.pk]
    taking.advance(audit.pk)
    assert taking.due() == []


def test_a_result_that_another_worker_kept_from_being_taken_is_still_there_later(
    placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = ask(placement, "verify")
    # The other worker notes progress between this one's reading of the row and its compare-and-set.
    with monkeypatch.context() as race:
        race.setattr(taking, "finish", lambda *_args, **_fields: False)
        answered(audit, verification(placement))
    taking.advance(audit.pk)
    audit.refresh_from_db()
    assert (audit.state, audit.outcome) == ("finished", "passed")
