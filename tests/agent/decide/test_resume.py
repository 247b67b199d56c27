from __future__ import annotations

from typing import Any

import pytest
from muster_agent.decide.model import Candidate, Pointer, ResumeDecision, ResumeRequest
from muster_agent.decide.resume import decide, duration, wanted_world_size
from muster_agent.protocol.trust import Trust


def one(step: int | None, **changes: Any) -> Candidate:
    given: dict[str, Any] = {
        "path": f"/run/step-{step}",
        "format": "safetensors",
        "status": "complete",
        "resumable": True,
        "world_size": 4,
        "trust": Trust.COMPLETE,
        "age_seconds": 60.0,
        **changes,
    }
    if given["status"] != "complete":
        given |= {"resumable": False, "trust": Trust.LISTED}
    return Candidate(step=step, **given)


def ask(*candidates: Candidate, pointer: Pointer | None = None, **request: Any) -> ResumeDecision:
    return decide(candidates, ResumeRequest(**request), pointer)


def reasons(decision: ResumeDecision) -> dict[int | None, str]:
    return {item.step: "; ".join(item.reasons) for item in decision.skipped}


def test_the_newest_good_step_is_chosen_and_older_ones_are_not_mentioned() -> None:
    found = ask(one(10), one(30), one(20))
    assert (found.outcome, found.step, found.path, found.skipped) == ("found", 30, "/run/step-30", ())
    assert (found.status, found.trust, found.source) == ("complete", "complete", "disk")


def test_no_candidates_is_its_own_outcome() -> None:
    assert ask().outcome == "no_checkpoints"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "corrupt", "not_resumable_reasons": ("it is damaged",)}, "it is damaged"),
        ({"status": "uncommitted"}, "its status is uncommitted"),
        (
            {"resumable": False, "not_resumable_reasons": ("it holds no optimizer state",)},
            "it holds no optimizer state",
        ),
        ({"damage": ("bytes 4 to 8 of a differ",)}, "an audit found damage: bytes 4 to 8 of a differ"),
        ({"world_size": 8}, "it was saved by 8 ranks that each load their own shard, not by 4"),
        ({"format": "dcp", "dp": 2}, "its data-loader state is for 2 data-parallel ranks, not for 4"),
        ({"age_seconds": 7300.0}, "it is 2 h old, and at most 60 min is allowed"),
        ({"age_seconds": None}, "its age is not known"),
    ],
)
def test_each_reason_passes_over_the_newest_and_says_why(changes: dict[str, Any], reason: str) -> None:
    found = ask(one(20), one(30, **changes), world_size=4, dp=4, max_age_seconds=3600.0)
    assert (found.step, reasons(found)) == (20, {30: reason})


def test_trust_below_what_is_required_is_named() -> None:
    found = ask(one(20, trust=Trust.VERIFIED), one(30, trust=Trust.SEALED), require=Trust.VERIFIED)
    assert (found.step, reasons(found)) == (20, {30: "it is only sealed, and verified is required"})


def test_more_trust_than_required_is_enough() -> None:
    assert ask(one(20, trust=Trust.RESUMED), require=Trust.VERIFIED).step == 20


def test_every_reason_of_a_candidate_is_given() -> None:
    found = ask(one(30, damage=("a",), age_seconds=1e9), max_age_seconds=1.0, format="dcp")
    assert len(found.skipped[0].reasons) == 3


def test_all_are_named_where_none_is_good_newest_first() -> None:
    found = ask(one(None), one(10, status="corrupt"), one(30, status="incomplete"))
    assert (found.outcome, found.path, found.step) == ("nothing_resumable", None, None)
    assert [item.step for item in found.skipped] == [30, 10, None]
    assert "step is not known" in reasons(found)[None]


def test_a_step_that_is_not_there_is_its_own_outcome() -> None:
    assert ask(one(10), step=11).outcome == "step_absent"


def test_a_named_step_is_chosen_over_newer_ones() -> None:
    assert ask(one(10), one(30), step=10).step == 10


def test_a_named_step_that_is_damaged_is_never_replaced_by_another() -> None:
    found = ask(one(10, status="corrupt"), one(30), step=10)
    assert (found.outcome, [item.step for item in found.skipped]) == ("nothing_resumable", [10])


def test_step_zero_can_be_resumed_from() -> None:
    assert (ask(one(0)).outcome, ask(one(0)).step) == ("found", 0)


def test_nothing_newer_than_a_binding_pointer_is_chosen() -> None:
    pointer = Pointer(path="/run/latest_checkpointed_iteration.txt", step=20, binding=True)
    found = ask(one(20), one(30), pointer=pointer)
    assert (found.step, found.pointer) == (20, pointer)
    assert "latest_checkpointed_iteration.txt names step 20" in reasons(found)[30]


def test_a_named_step_may_be_newer_than_a_binding_pointer() -> None:
    pointer = Pointer(path="/run/latest_checkpointed_iteration.txt", step=20, binding=True)
    assert ask(one(20), one(30), pointer=pointer, step=30).step == 30


@pytest.mark.parametrize("pointed", [20, None])
def test_a_pointer_that_does_not_bind_is_only_reported(pointed: int | None) -> None:
    pointer = Pointer(path="/run/latest", step=pointed)
    assert ask(one(20), one(30), pointer=pointer).step == 30


def test_of_two_copies_the_more_trusted_wins_then_the_faster_tier() -> None:
    slow = one(30, path="/nas/step-30", trust=Trust.VERIFIED, tier="nas", tier_order=3)
    fast = one(30, path="/nvme/step-30", trust=Trust.COMPLETE, tier="nvme", tier_order=1)
    assert ask(fast, slow).path == "/nas/step-30"
    equal = one(30, path="/nvme/step-30", trust=Trust.VERIFIED, tier="nvme", tier_order=1)
    assert (ask(slow, equal).path, ask(slow, equal).tier) == ("/nvme/step-30", "nvme")


def test_a_damaged_copy_is_passed_over_for_the_other_one_of_that_step() -> None:
    bad = one(30, path="/nvme/step-30", damage=("bytes differ",), tier_order=1)
    found = ask(bad, one(30, path="/nas/step-30", tier_order=3))
    assert (found.path, [item.path for item in found.skipped]) == ("/nas/step-30", ["/nvme/step-30"])


def test_formats_that_reshard_fit_any_world_size() -> None:
    assert ask(one(30, format="dcp", world_size=2), world_size=64).step == 30
    assert ask(one(30, world_size=None), world_size=64).step == 30


def test_the_world_size_follows_from_all_three_degrees() -> None:
    assert wanted_world_size(ResumeRequest(dp=2, tp=4, pp=8)) == 64
    assert wanted_world_size(ResumeRequest(dp=2, tp=4)) is None
    assert ask(one(30), dp=2, tp=2, pp=2).outcome == "nothing_resumable"
    assert ask(one(30), dp=1, tp=2, pp=2).outcome == "found"


def test_the_order_of_candidates_does_not_matter() -> None:
    several = [one(30, path=f"/{name}/step-30") for name in "bca"]
    assert ask(*several) == ask(*reversed(several))


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (720, "12 min"), (10_800, "3 h"), (216_000, "2.5 d"), (0.4, "0 s")]
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
