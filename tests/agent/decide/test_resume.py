from __future__ import annotations

from typing import Any

import pytest
from muster_agent.decide.fit import wanted_world_size
from muster_agent.decide.frameworks import governing
from muster_agent.decide.model import Candidate, Pointer, ResumeDecision, ResumeRequest
from muster_agent.decide.resume import decide
from muster_agent.formats.times import duration
from muster_agent.protocol.trust import Trust


def one(step: int | None, **changes: Any) -> Candidate:
    given: dict[str, Any] = {
        "path": f"/run/step-{step}",
        "format": "safetensors",
        "status": "complete",
        "resumable": True,
        "world_size": 4,
        "must_match": ("world_size",),
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


@pytest.mark.parametrize("problem", [None, "it is empty"])
def test_a_pointer_without_a_checkpoint_proves_that_there_was_one(problem: str | None) -> None:
    found = ask(pointer=Pointer(path="/run/latest", step=None if problem else 500, problem=problem))
    assert found.outcome == "nothing_resumable"
    assert found.pointer_choice is not None and found.pointer_choice.path is None


def test_what_could_not_be_looked_at_may_be_the_point() -> None:
    hidden = one(30, status="unreadable", not_resumable_reasons=("it could not be read",))
    assert ask(hidden, one(20, status="corrupt")).outcome == "unknown"
    assert ask(hidden, one(20)).outcome == "found"
    assert ask(hidden, step=30).outcome == "unknown"
    assert ask(hidden, step=20).outcome == "step_absent"
    nameless = one(None, status="unreadable", not_resumable_reasons=("it could not be read",))
    assert ask(nameless, one(30), step=20).outcome == "unknown"


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
        (
            {"format": "dcp", "dp": 2, "must_match": ("dp",)},
            "its data-loader state is for 2 data-parallel ranks, not for 4",
        ),
        ({"age_seconds": 7300.0, "files_age_seconds": 60.0}, "it is 2 h old, and at most 60 min is allowed"),
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


def test_the_youngest_is_chosen_where_no_checkpoint_has_a_step() -> None:
    old, young = one(None, path="/run/a.pt", age_seconds=900.0), one(None, path="/run/b.pt", age_seconds=60.0)
    found = ask(old, young)
    assert (found.outcome, found.path, found.step) == ("found", "/run/b.pt", None)
    assert [item.path for item in found.skipped] == ["/run/a.pt"]
    bad = one(None, path="/run/c.pt", status="corrupt")
    assert ask(bad).outcome == "nothing_resumable"


def test_what_could_be_resumed_but_has_no_step_is_named_beside_the_choice() -> None:
    found = ask(one(10), one(None, path="/run/last.pt"), one(None, path="/run/weights.pt", status="corrupt"))
    assert (found.step, [item.path for item in found.skipped]) == (10, ["/run/last.pt"])
    assert reasons(found)[None] == "its step is not known"


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


def test_of_two_folders_with_one_step_inside_the_one_named_after_it_is_taken() -> None:
    assert ask(one(10, path="/run/A-second-one"), one(10)).path == "/run/step-10"
    assert ask(one(10, path="/run/A-second-one", trust=Trust.SEALED), one(10)).path == "/run/A-second-one"


def test_a_damaged_copy_is_passed_over_for_the_other_one_of_that_step() -> None:
    bad = one(30, path="/nvme/step-30", damage=("bytes differ",), tier_order=1)
    found = ask(bad, one(30, path="/nas/step-30", tier_order=3))
    assert (found.path, [item.path for item in found.skipped]) == ("/nas/step-30", ["/nvme/step-30"])


def test_formats_that_reshard_fit_any_world_size() -> None:
    assert ask(one(30, format="dcp", world_size=2, must_match=()), world_size=64).step == 30
    assert ask(one(30, world_size=None), world_size=64).step == 30


def test_the_world_size_follows_from_all_three_degrees() -> None:
    assert wanted_world_size(ResumeRequest(dp=2, tp=4, pp=8)) == 64
    assert wanted_world_size(ResumeRequest(dp=2, tp=4)) is None
    assert ask(one(30), dp=2, tp=2, pp=2).outcome == "nothing_resumable"
    assert ask(one(30), dp=1, tp=2, pp=2).outcome == "found"


@pytest.mark.parametrize(("asked", "fits"), [({"dp": 3}, False), ({"dp": 2}, True), ({"tp": 2, "pp": 4}, False)])
def test_degrees_that_cannot_divide_a_fixed_world_size_are_refused(asked: dict[str, int], fits: bool) -> None:
    found = ask(one(30), **asked)
    assert (found.outcome == "found") == fits
    assert fits or "saved by 4 ranks" in reasons(found)[30]


def test_a_fixed_degree_must_divide_the_world_size_that_is_asked_for() -> None:
    saved = one(30, format="deepspeed", world_size=4, dp=2, tp=2, must_match=("dp",))
    assert "no job of 5 ranks has as many" in reasons(ask(saved, world_size=5))[30]
    assert ask(saved, world_size=4, tp=2).outcome == "found"


def test_the_order_of_candidates_does_not_matter() -> None:
    several = [one(30, path=f"/{name}/step-30") for name in "bca"]
    assert ask(*several) == ask(*reversed(several))


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (720, "12 min"), (10_800, "3 h"), (216_000, "2.5 d"), (0.4, "0 s")]
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("asked", "fits"),
    [({"world_size": 2}, True), ({"world_size": 3}, False), ({"dp": 3}, False), ({"dp": 2}, True), ({}, True)],
)
def test_a_number_that_must_match_follows_from_the_world_size_too(asked: dict[str, int], fits: bool) -> None:
    found = ask(one(30, format="deepspeed", world_size=2, dp=2, must_match=("dp",)), **asked)
    assert (found.outcome == "found") == fits
    if not fits:
        assert "saved by 2 data-parallel ranks, not by 3" in reasons(found)[30]
        assert "universal" in reasons(found)[30]


def test_degrees_that_reshard_may_change() -> None:
    saved = one(30, format="megatron_dist", world_size=4, dp=1, tp=2, pp=2, must_match=())
    assert ask(saved, dp=4, tp=1, pp=1, world_size=4).step == 30


def test_a_changed_tensor_parallel_degree_is_refused_where_it_must_match() -> None:
    saved = one(30, format="megatron_legacy", world_size=4, dp=1, tp=2, pp=2, must_match=("tp", "pp"))
    assert "2 tensor-parallel ranks, not by 4" in reasons(ask(saved, tp=4))[30]
    assert "2 pipeline stages, not by 1" in reasons(ask(saved, tp=2, dp=2, world_size=4))[30]


def test_the_steps_around_an_absent_one_are_named_nearest_first() -> None:
    found = ask(*(one(step) for step in (100, 200, 300, 400, 500)), step=290)
    assert (found.outcome, found.nearest_steps) == ("step_absent", (300, 200, 400, 100))


# -- what the framework would do by itself -----------------------------------------------------------------------------
def tracker(step: int | None, **changes: Any) -> Pointer:
    return Pointer(path="/run/latest_checkpointed_iteration.txt", step=step, binding=True, **changes)


def iteration(step: int, **changes: Any) -> Candidate:
    return one(step, path=f"/run/iter_{step:07d}", format="megatron_dist", must_match=(), **changes)


def test_the_frameworks_own_choice_is_the_same() -> None:
    choice = ask(iteration(20), iteration(30), pointer=tracker(30)).pointer_choice
    assert choice is not None and (choice.is_same, choice.step, choice.path) == (True, 30, "/run/iter_0000030")


def test_a_pointer_to_an_incomplete_checkpoint_would_have_been_followed() -> None:
    found = ask(iteration(20), iteration(30, status="incomplete"), pointer=tracker(30))
    choice = found.pointer_choice
    assert found.step == 20 and choice is not None
    assert (choice.is_same, choice.step) == (False, 30) and "its status is incomplete" in choice.reason


def test_a_missing_pointer_is_what_megatron_would_fail_on() -> None:
    choice = ask(iteration(20), iteration(30)).pointer_choice
    assert choice is not None and (choice.path, choice.is_same) == (None, False)
    assert "random weights" in choice.reason


def test_a_tracker_follows_the_number_in_the_name_and_not_the_state_inside() -> None:
    renamed = one(28, path="/run/iter_0000025", format="megatron_dist", must_match=())
    choice = ask(renamed, pointer=tracker(28)).pointer_choice
    assert choice is not None and choice.path is None and "not there" in choice.reason


def test_the_trainer_takes_the_highest_number_whole_or_not() -> None:
    whole = one(900, path="/run/checkpoint-900", format="hf_trainer", must_match=())
    cut = one(1000, path="/run/checkpoint-1000", format="hf_trainer", status="incomplete")
    found = ask(whole, cut)
    assert found.step == 900 and found.pointer_choice is not None
    assert (found.pointer_choice.step, found.pointer_choice.is_same) == (1000, False)


def test_dlrovers_tracker_counts_before_the_one_that_runs_ahead() -> None:
    dlrover = Pointer(path="/run/dlrover_latest.txt", step=50, binding=True)
    assert governing([tracker(100), dlrover]) == dlrover
    assert governing([Pointer(path="/run/latest", step=100), tracker(50)]) == tracker(50)
    assert governing([tracker(None, problem="it is empty"), Pointer(path="/run/latest", step=1)]).step == 1  # type: ignore[union-attr]
    assert governing([]) is None


def test_of_the_links_of_several_ranks_the_lowest_step_counts() -> None:
    links = [Pointer(path=f"/run/latest-rank{rank}.pt", step=step) for rank, step in ((0, 20), (1, 10), (2, 20))]
    assert governing(links) == links[1]


def test_non_persistent_copies_are_newer_than_the_tracker_by_design() -> None:
    local = one(35, path="/run/non_persistent/iter_0000035", format="megatron_dist", must_match=())
    assert ask(iteration(30), local, pointer=tracker(30)).step == 35


def test_no_framework_takes_a_name_that_is_not_final() -> None:
    running = one(400, path="/run/400.orbax-checkpoint-tmp", format="orbax", status="in_progress")
    found = ask(one(300, path="/run/300", format="orbax", must_match=()), running)
    assert found.pointer_choice is not None and (found.pointer_choice.step, found.pointer_choice.is_same) == (300, True)


def test_the_trainer_goes_by_the_number_in_the_name_whatever_the_state_inside_says() -> None:
    inside = one(400, path="/run/checkpoint-500", format="hf_trainer")
    choice = ask(inside, one(450, path="/run/checkpoint-450", format="hf_trainer")).pointer_choice
    assert choice is not None and (choice.path, choice.is_same) == ("/run/checkpoint-500", False)


@pytest.mark.parametrize("name", ["last-checkpoint", "checkpoint-200 (1)", "checkpoint-best-200"])
def test_the_trainer_does_not_look_at_other_names_than_its_own(name: str) -> None:
    other = one(200, path=f"/run/{name}", format="hf_trainer")
    choice = ask(other, one(100, path="/run/checkpoint-100", format="hf_trainer")).pointer_choice
    assert choice is not None and choice.path == "/run/checkpoint-100"
    assert ask(other).pointer_choice is None
