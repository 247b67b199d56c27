from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from muster_agent.decide.keeping import Copy, colder_copies, verified_copies, why_not_retired
from muster_agent.decide.retention import Action, Line, Plan, Rules, TierState, plan
from muster_agent.protocol.trust import Trust

DAY = 86_400.0
TIERS = (TierState(tier="nvme", name="nvme", order=0), TierState(tier="bucket", name="bucket", order=1))
ORDERS = {"nvme": 0, "bucket": 1}
EXAMPLES = int(os.environ.get("MUSTER_FUZZ_EXAMPLES", "200"))


def copy(step: int, tier: str = "nvme", **changes: Any) -> Copy:
    fields: dict[str, Any] = {
        "placement": f"{tier}-{step}",
        "checkpoint": f"ckp-{step}",
        "run": "run",
        "path": f"/{tier}/step-{step}",
        "trust": Trust.VERIFIED,
        "total_bytes": 1000,
        "age_seconds": (1000 - step) * DAY,
        **changes,
    }
    return Copy(step=step, tier=tier, **fields)


def rules(**changes: Any) -> Rules:
    return Rules(**{"hot_tier": "nvme", "cold_tier": "bucket", "keep_newest": 2, **changes})


def ask(*copies: Copy, tiers: tuple[TierState, ...] = TIERS, **changes: Any) -> Plan:
    return plan(copies, rules(**changes), tiers, bytes_per_second=100.0)


def line_of(found: Plan, placement: str) -> Line:
    return next(line for line in found.lines if line.copy.placement == placement)


def why(found: Plan, placement: str) -> str:
    line = line_of(found, placement)
    assert line.action is Action.STAY
    return "; ".join(line.reasons)


def acted(found: Plan) -> dict[str, str]:
    return {line.copy.placement: line.action.value for line in found.lines if line.action is not Action.STAY}


STEPS = [copy(step) for step in (100, 200, 300, 400)]


def test_older_ones_move_down_and_the_plan_says_bytes_and_seconds() -> None:
    found = ask(*STEPS)
    assert acted(found) == {"nvme-100": "move", "nvme-200": "move"}
    assert (found.moved_bytes, found.freed_bytes, found.seconds) == (2000, 2000, 20.0)
    assert why(found, "nvme-300") == "it is among the newest 2 on nvme"
    assert "newest verified" in why(found, "nvme-400")
    assert line_of(found, "nvme-100").reasons == ("it is not among the newest 2",)


def test_unknown_bandwidth_is_not_measured() -> None:
    assert plan(STEPS, rules(), TIERS).seconds is None


def test_a_copy_with_a_verified_colder_one_is_only_removed() -> None:
    found = ask(*STEPS, copy(100, "bucket"))
    assert acted(found) == {"nvme-100": "retire", "nvme-200": "move"}
    assert (found.moved_bytes, found.freed_bytes) == (1000, 2000)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"trust": Trust.SEALED}, "complete but not verified"),
        ({"status": "corrupt"}, "is corrupt"),
    ],
)
def test_a_doubtful_colder_copy_keeps_the_warmer_one(changes: dict[str, Any], told: str) -> None:
    assert told in why(ask(*STEPS, copy(100, "bucket", **changes)), "nvme-100")


def test_a_colder_copy_of_other_bytes_does_not_stand_in() -> None:
    found = ask(*STEPS, copy(100, "bucket", root_digest="b"), copy(100, root_digest="a", placement="own"))
    assert line_of(found, "own").action is Action.MOVE


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pins": ("olga: paper",)}, "it is pinned (olga: paper)"),
        ({"holds": ("drill drl_1",)}, "it is needed by drill drl_1"),
        ({"pointers": ("/nvme/latest",)}, "/nvme/latest names it"),
        ({"pointer_doubts": ("/nvme/latest",)}, "/nvme/latest cannot be read, so it may name this one"),
        ({"labels": frozenset({"release"})}, "its label release is exempt"),
        ({"status": "incomplete"}, "it is incomplete"),
        ({"transfer": "trf_1"}, "transfer trf_1 is at work on it"),
    ],
)
def test_each_reason_to_stay_is_said(changes: dict[str, Any], told: str) -> None:
    found = ask(copy(100, **changes), *STEPS[1:], exempt_labels=frozenset({"release"}))
    assert told in why(found, "nvme-100")
    assert acted(found) == {"nvme-200": "move"}


def test_nothing_goes_while_nothing_is_verified() -> None:
    found = ask(*(copy(step, trust=Trust.SEALED) for step in (100, 200, 300, 400)))
    assert acted(found) == {} and "no checkpoint of its run is verified" in why(found, "nvme-100")


def test_what_is_newer_than_the_latest_verified_stays() -> None:
    found = ask(copy(100), *(copy(step, trust=Trust.COMPLETE) for step in (200, 300, 400, 500)))
    assert acted(found) == {} and "newer than step 100" in why(found, "nvme-200")


@pytest.mark.parametrize("status", ["in_progress", "incomplete", "uncommitted", "corrupt", "unreadable"])
def test_saves_that_did_not_end_take_no_place_of_those_that_are_kept(status: str) -> None:
    """Two that were abandoned, or are still being written, beside the only whole one: it stays, and so do they."""
    unfinished = [copy(step, status=status, trust=Trust.LISTED, resumable=False) for step in (20, 30)]
    found = ask(copy(10), *unfinished, keep_newest=2)
    assert acted(found) == {}
    assert f"it is {status}" in why(found, "nvme-20")


def test_a_training_that_went_back_keeps_its_newest_saves() -> None:
    again = [copy(step, age_seconds=(50 - step) * 60.0) for step in (10, 20, 30)]
    found = ask(*STEPS, *again)
    assert acted(found) == {"nvme-10": "move", "nvme-200": "move", "nvme-100": "move"}


def test_a_model_without_its_optimizer_is_not_what_a_run_resumes_from() -> None:
    found = ask(*STEPS[:3], copy(400, resumable=False))
    assert "newest verified" in why(found, "nvme-300") and "newer than step 300" in why(found, "nvme-400")


def test_age_moves_even_the_newest_but_never_the_newest_verified() -> None:
    assert acted(ask(*STEPS, move_after_seconds=DAY)) == {"nvme-100": "move", "nvme-200": "move", "nvme-300": "move"}


def test_above_the_high_mark_more_moves_until_the_low_mark() -> None:
    full = (TierState(tier="nvme", name="nvme", order=0, capacity_bytes=4000, used_bytes=3900), TIERS[1])
    found = ask(*STEPS, tiers=full, keep_newest=4, high_water_ratio=0.9, low_water_ratio=0.6)
    assert acted(found) == {"nvme-100": "move", "nvme-200": "move"} and not found.notes
    assert "98% full" in line_of(found, "nvme-100").reasons[0]
    stuck = ask(*STEPS, tiers=full, keep_newest=4, high_water_ratio=0.9, low_water_ratio=0.1)
    assert "500 bytes above the low mark" in stuck.notes[0]


def test_marks_without_a_measurement_are_noted() -> None:
    assert "was not measured" in ask(*STEPS, high_water_ratio=0.9).notes[0]


def test_what_does_not_fit_stays() -> None:
    small = (TIERS[0], TierState(tier="bucket", name="bucket", order=1, capacity_bytes=5000, used_bytes=3500))
    found = ask(*STEPS, tiers=small)
    assert acted(found) == {"nvme-100": "move"}
    assert "bucket has no room for it: 1000 bytes, and 500 are free" in why(found, "nvme-200")


def test_only_what_is_old_and_no_milestone_expires() -> None:
    cold = [copy(step, "bucket") for step in (50, 100, 150)]
    found = ask(*STEPS[1:], *cold, expire_after_seconds=910 * DAY, keep_every_steps=50)
    assert acted(found) == {"nvme-200": "move"}
    found = ask(*STEPS[1:], *cold, expire_after_seconds=875 * DAY, keep_every_steps=100)
    assert acted(found) == {"nvme-200": "move", "bucket-50": "expire"}
    assert "every 100 steps" in why(found, "bucket-100") and "not older" in why(found, "bucket-150")
    assert "nothing expire" in why(ask(*STEPS[1:], *cold), "bucket-50")


def test_optimizer_state_moves_only_with_the_newest() -> None:
    found = ask(*(copy(step, optimizer_bytes=600) for step in (100, 200, 300, 400)), optimizer_newest=3)
    assert line_of(found, "nvme-200").moved_bytes == 1000
    trimmed = line_of(found, "nvme-100")
    assert (trimmed.moved_bytes, trimmed.without_optimizer) == (400, True)
    made = copy(100, "bucket", total_bytes=400, root_digest="c", made_from="a", resumable=False)
    assert acted(ask(*STEPS[1:], copy(100, root_digest="a"), made))["nvme-100"] == "retire"


# -- whatever there is and whatever the policy says --------------------------------------------------------------------
TRUSTS = st.sampled_from(list(Trust))
STATUSES = st.sampled_from(["complete"] * 6 + ["corrupt", "unreadable", "missing", "archived"])
MAYBE = st.sampled_from([(), (), (), ("somebody",)])


@st.composite
def copies_of_runs(draw: st.DrawFn) -> list[Copy]:
    keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 12), st.sampled_from(["nvme", "bucket", "tape"]))
    found = []
    for run, step, tier in draw(st.lists(keys, unique=True, max_size=30)):
        fields = {
            "run": run,
            "placement": f"{run}-{step}-{tier}",
            "checkpoint": f"{run}-{step}",
            "status": draw(STATUSES),
            "trust": draw(TRUSTS),
            "age_seconds": draw(st.none() | st.floats(0, 100 * DAY)),
            "resumable": draw(st.booleans()),
            "pins": draw(MAYBE),
            "holds": draw(MAYBE),
            "pointers": draw(MAYBE),
            "pointer_doubts": draw(MAYBE),
            "labels": draw(st.sampled_from([frozenset(), frozenset({"keep"})])),
            "root_digest": draw(st.sampled_from(["", "x", "y"])),
        }
        found.append(copy(step, tier, **fields))
    return found


RULES = st.builds(
    Rules,
    hot_tier=st.just("nvme"),
    cold_tier=st.sampled_from(["bucket", "tape", None]),
    keep_newest=st.integers(0, 5),
    keep_every_steps=st.none() | st.integers(1, 5),
    exempt_labels=st.sampled_from([frozenset(), frozenset({"keep"})]),
    move_after_seconds=st.none() | st.floats(0, 100 * DAY),
    expire_after_seconds=st.none() | st.floats(0, 100 * DAY),
    high_water_ratio=st.none() | st.floats(0.1, 0.9),
)
STATES = st.builds(
    lambda used, room: (
        TierState(tier="nvme", name="nvme", order=0, capacity_bytes=30_000, used_bytes=used),
        TierState(tier="bucket", name="bucket", order=1, capacity_bytes=room, used_bytes=0),
        TierState(tier="tape", name="tape", order=2),
    ),
    st.none() | st.integers(0, 30_000),
    st.none() | st.integers(0, 30_000),
)


@settings(max_examples=EXAMPLES)
@given(copies_of_runs(), RULES, STATES)
def test_no_policy_removes_what_must_stay(copies: list[Copy], wanted: Rules, tiers: tuple[TierState, ...]) -> None:
    found = plan(copies, wanted, tiers)
    for line in found.lines:
        one = line.copy
        assert line.reasons, "each line says why"
        if line.action is Action.STAY:
            assert line.freed_bytes == line.moved_bytes == 0
            continue
        of_run = [other for other in copies if other.run == one.run]
        good = verified_copies(of_run)
        assert good and one.step <= max(other.step for other in good)
        assert not (one.is_verified and one.step == max(other.step for other in good))
        assert not (one.pins or one.holds or one.pointers or one.pointer_doubts)
        assert not one.labels & wanted.exempt_labels and one.status == "complete"
        kept = [line.copy for line in found.lines if line.action is Action.STAY]
        assert any(other in kept or other.tier not in (wanted.hot_tier, wanted.cold_tier) for other in good)
        if line.action is Action.RETIRE:
            orders = {tier.tier: tier.order for tier in tiers}
            assert any(other.is_verified for other in colder_copies(one, of_run, orders))
            assert not why_not_retired(one, of_run, orders)
        if line.action is Action.MOVE:
            assert line.to_tier == wanted.cold_tier and one.tier == wanted.hot_tier
        if line.action is Action.EXPIRE:
            assert wanted.expire_after_seconds is not None and one.tier == wanted.cold_tier
            assert not (wanted.keep_every_steps and one.step % wanted.keep_every_steps == 0)


@settings(max_examples=EXAMPLES)
@given(copies_of_runs(), RULES, STATES)
def test_no_copy_goes_together_with_the_one_that_stands_in_for_it(
    copies: list[Copy], wanted: Rules, tiers: tuple[TierState, ...]
) -> None:
    found = plan(copies, wanted, tiers)
    gone = {line.copy.placement for line in found.lines if line.action in (Action.RETIRE, Action.EXPIRE)}
    for line in found.of(Action.RETIRE):
        of_run = [other for other in copies if other.run == line.copy.run]
        colder = colder_copies(line.copy, of_run, {tier.tier: tier.order for tier in tiers})
        assert any(other.is_verified and other.placement not in gone for other in colder)
