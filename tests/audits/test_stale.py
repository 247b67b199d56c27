"""Stale saves in a run's seals: found once, shown on the step, skipped by the resume decision, and never guessed."""

from __future__ import annotations

import msgspec
import pytest
from django.utils import timezone
from muster_agent.decide.model import ResumeRequest
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import write_beside

from apps.audits import stale
from apps.audits.models import StaleCheck
from apps.checkpoints import resume
from apps.checkpoints.evidence import clear_damage
from apps.checkpoints.models import Finding
from apps.checkpoints.runs import update_run
from tests.audits.conftest import Tiers

pytestmark = pytest.mark.django_db


def save(tiers: Tiers, step: int, state: int) -> None:
    """Steps of one `state` hold the same tensors."""
    tiers.save(step, seed=state - step)


def compared() -> dict[int, str]:
    while stale.compare_due():
        pass
    rows = StaleCheck.objects.values_list("manifest__checkpoint__step", "verdict")
    return dict(rows)


def reasons(tiers: Tiers) -> str:
    decision = resume.resume_decision(tiers.run, ResumeRequest())
    return f"{decision.step} " + " ".join(" ".join(one.reasons) for one in decision.skipped)


def test_steps_that_hold_the_state_of_an_earlier_one_are_stale_and_skipped(tiers: Tiers) -> None:
    for step, state in ((90, 1), (100, 2), (110, 1), (120, 1)):
        save(tiers, step, state)
    assert compared() == {90: "not_decidable", 100: "changed", 110: "stale", 120: "stale"}
    found = Finding.objects.get(code="stale_save", placement__checkpoint__step=110)
    assert "bit-identical to step 90" in found.detail and "100.0 % of their bytes" in found.detail
    assert reasons(tiers).startswith("100 ") and "bit-identical" in reasons(tiers)
    check = StaleCheck.objects.get(manifest__checkpoint__step=120)
    assert check.equal_bytes == check.trained_bytes > 0 and check.tensors
    assert stale.compare_due() == 0, "each seal is compared once"


def test_what_is_declared_frozen_counts_for_nothing_and_is_compared_again(tiers: Tiers) -> None:
    save(tiers, 10, 1)
    save(tiers, 20, 1)
    assert compared()[20] == "stale"
    update_run(run=tiers.run, actor="olga", frozen_tensors=["*"])
    assert compared()[20] == "not_decidable"
    assert "frozen" in StaleCheck.objects.get(manifest__checkpoint__step=20).reason
    assert not Finding.objects.filter(code="stale_save", resolved_at=None).exists()
    assert reasons(tiers).startswith("20 ")


def test_a_verification_does_not_clear_it_and_a_new_seal_does(tiers: Tiers) -> None:

    save(tiers, 10, 1)
    save(tiers, 20, 1)
    compared()
    clear_damage(placement=tiers.placement(20), found_before=timezone.now(), actor="x")
    assert Finding.objects.filter(code="stale_save", resolved_at=None).exists()
    for file in tiers.path(20).iterdir():
        file.unlink()
    tiers.path(20).rmdir()
    save(tiers, 20, 7)
    assert compared()[20] == "changed"
    assert not Finding.objects.filter(code="stale_save", resolved_at=None).exists()


def test_an_older_step_that_is_sealed_later_is_recognised_too(tiers: Tiers) -> None:
    save(tiers, 20, 1)
    compared()
    save(tiers, 10, 1)
    assert compared()[10] == "stale"
    assert Finding.objects.get(code="stale_save").placement.checkpoint.step == 20


def test_a_format_whose_tensors_are_not_known_is_not_decidable(tiers: Tiers) -> None:
    tiers.save(10, sealed=False)
    manifest = seal(str(tiers.path(10)), write_beside=False).manifest
    assert manifest is not None
    write_beside(str(tiers.path(10)), msgspec.structs.replace(manifest, tensors=()))
    tiers.scan()
    assert compared() == {10: "not_decidable"}
    assert "does not tell its tensors" in StaleCheck.objects.get().reason
