"""The way back by phase, as pure arithmetic over records like those of the demo's scheduler, launcher and trainer."""

from __future__ import annotations

import random

import pytest

from apps.drills.failover import Record, Step, Timeline, lost_work, resumed_step, timeline


def phase(name: str, edge: str, at: float, *, rank: int | None = None, attempt: str = "a2") -> Record:
    return Record(kind="phase", at=at, attempt=attempt, rank=rank, phase=name, edge=edge)


def note(kind: str, at: float, *, attempt: str = "a2", rank: int | None = None, step: int | None = None) -> Record:
    return Record(kind=kind, at=at, attempt=attempt, rank=rank, step=step)


def demo_records() -> list[Record]:
    """Fault at 100: detected 100.5, rescheduled 102, launch in two parts, trainer with one reporting rank."""
    return [
        note("failure_detected", 100.5, attempt="a1"),
        note("launch_started", 102.0),
        phase("launch", "begin", 102.0),
        phase("launch", "end", 102.4),
        phase("resolve", "begin", 102.4),
        phase("resolve", "end", 103.0),
        phase("launch", "begin", 103.0),
        note("process_started", 103.2, rank=0),
        phase("launch", "end", 103.5, rank=0),
        phase("allocate", "begin", 103.6, rank=0),
        phase("allocate", "end", 103.8, rank=0),
        phase("read", "begin", 103.8, rank=0),
        phase("read", "end", 105.8, rank=0),
        phase("verify", "begin", 105.8, rank=0),
        phase("verify", "end", 106.0, rank=0),
        phase("materialize", "begin", 106.0, rank=0),
        phase("materialize", "end", 106.5, rank=0),
        note("resumed_from", 106.6, rank=0, step=40),
        phase("first_step", "begin", 106.7, rank=0),
        phase("first_step", "end", 106.9, rank=0),
    ]


STEPS = [Step(attempt="a2", step=41, at=107.0), Step(attempt="a2", step=42, at=107.5)]


def way(records: list[Record], steps: list[Step] = STEPS, *, exact: bool = True) -> Timeline:
    return timeline(fault_at=100.0, records=records, steps=steps, failed_attempt="a1", fault_is_exact=exact)


def test_every_phase_runs_between_its_own_records() -> None:
    line = way(demo_records())
    assert line.seconds == pytest.approx(7.0)
    assert line.phases == {
        "detect": pytest.approx(0.5),
        "reschedule": pytest.approx(1.5),
        "launch": pytest.approx(0.9),
        "resolve": pytest.approx(0.6),
        "allocate": pytest.approx(0.2),
        "read": pytest.approx(2.0),
        "verify": pytest.approx(0.2),
        "materialize": pytest.approx(0.5),
        "first_step": pytest.approx(0.3),
    }
    assert line.unattributed_seconds == pytest.approx(0.3)
    assert (line.resumed_from_step, line.first_step, line.attempt) == (40, 41, "a2")


def test_phases_are_in_their_one_order() -> None:
    names = list(way(demo_records()).phases)
    assert names == sorted(
        names,
        key=[
            "detect",
            "reschedule",
            "launch",
            "resolve",
            "stage",
            "allocate",
            "read",
            "verify",
            "materialize",
            "to_device",
            "first_step",
        ].index,
    )


def test_phases_and_the_unattributed_rest_add_up_to_the_time_to_resume() -> None:
    line = way(demo_records())
    assert sum(line.phases.values()) + (line.unattributed_seconds or 0) == pytest.approx(line.seconds)


def test_a_phase_without_records_is_absent_and_its_time_is_unattributed() -> None:
    records = [r for r in demo_records() if r.phase not in ("verify", "resolve")]
    line = way(records)
    assert "verify" not in line.phases and "resolve" not in line.phases
    assert line.unattributed_seconds == pytest.approx(0.3 + 0.2 + 0.6)


def test_the_order_in_which_records_arrive_does_not_matter() -> None:
    records = demo_records()
    random.Random(3).shuffle(records)
    assert way(records) == way(demo_records())


def test_records_that_come_late_change_the_answer() -> None:
    early = [r for r in demo_records() if r.kind != "failure_detected"]
    assert "detect" not in way(early).phases
    assert "detect" in way(demo_records()).phases


def test_a_phase_lasts_until_the_last_rank_is_through() -> None:
    records = [
        note("resumed_from", 104.0, rank=0, step=40),
        note("resumed_from", 107.0, rank=1, step=40),
        phase("read", "begin", 101.0, rank=0),
        phase("read", "begin", 101.1, rank=1),
        phase("read", "end", 103.0, rank=0),
        phase("read", "end", 106.0, rank=1),
        phase("materialize", "begin", 103.0, rank=0),
        phase("materialize", "end", 104.0, rank=0),
        phase("materialize", "begin", 106.0, rank=1),
        phase("materialize", "end", 107.0, rank=1),
    ]
    line = way(records, [Step(attempt="a2", step=41, at=108.0)])
    assert line.phases == {
        "read": pytest.approx(5.0),
        "materialize": pytest.approx(1.0),
        "first_step": pytest.approx(1.0),
    }
    assert line.unattributed_seconds == pytest.approx(1.0)


def test_the_first_step_begins_with_the_state_in_place_where_the_phase_was_not_timed() -> None:
    records = [r for r in demo_records() if r.phase != "first_step"]
    assert way(records).phases["first_step"] == pytest.approx(0.4)


def test_a_step_at_or_below_the_checkpoint_is_not_the_end() -> None:
    steps = [Step(attempt="a2", step=40, at=106.8), *STEPS]
    assert way(demo_records(), steps).first_step == 41


def test_of_steps_that_a_follower_saw_in_one_look_the_lowest_is_the_first_and_the_highest_the_last() -> None:
    seen = [Step(attempt="a2", step=step, at=107.0) for step in (43, 41, 42)]
    assert way(demo_records(), seen).first_step == 41
    done = [Step(attempt="a1", step=step, at=99.0) for step in (56, 57, 55)]
    assert lost_work(fault_at=100.0, steps=done, resumed_from_step=40)[0] == 17


def test_a_last_report_of_the_killed_launch_that_arrives_after_the_fault_is_not_the_end() -> None:
    late = Step(attempt="a1", step=57, at=100.01)
    assert way(demo_records(), [late, *STEPS]).first_step == 41


def test_without_a_step_beyond_the_checkpoint_there_is_no_time_to_resume() -> None:
    line = way(demo_records(), [])
    assert (line.seconds, line.unattributed_seconds, line.attempt) == (None, None, None)
    assert line.phases["read"] == pytest.approx(2.0)
    assert "first_step" not in line.phases


def test_steps_of_a_launch_that_never_said_what_it_resumed_from_are_not_the_end() -> None:
    records = [r for r in demo_records() if r.kind != "resumed_from"]
    assert way(records).seconds is None


def test_a_launch_that_died_on_the_way_counts_and_its_half_phase_is_unattributed() -> None:
    first_try = [
        note("failure_detected", 100.5, attempt="a1"),
        note("launch_started", 101.0, attempt="a2"),
        phase("read", "begin", 102.0, rank=0, attempt="a2"),
        note("failure_detected", 103.0, attempt="a2"),
        note("launch_started", 104.0, attempt="a3"),
        note("process_started", 104.5, attempt="a3", rank=0),
        phase("read", "begin", 105.0, rank=0, attempt="a3"),
        phase("read", "end", 106.0, rank=0, attempt="a3"),
        note("resumed_from", 106.0, attempt="a3", rank=0, step=40),
    ]
    line = way(first_try, [Step(attempt="a3", step=41, at=107.0)])
    assert line.launch_count == 2
    assert line.phases == {
        "detect": pytest.approx(0.5),
        "reschedule": pytest.approx(1.5),
        "launch": pytest.approx(0.5),
        "read": pytest.approx(1.0),
        "first_step": pytest.approx(1.0),
    }
    assert line.unattributed_seconds == pytest.approx(2.5)


def test_a_launch_without_phase_records_ends_when_its_last_rank_has_started() -> None:
    records = [
        note("launch_started", 101.0),
        note("process_started", 102.0, rank=0),
        note("process_started", 103.0, rank=1),
        note("resumed_from", 104.0, rank=0, step=40),
    ]
    assert way(records).phases["launch"] == pytest.approx(2.0)


def test_detect_is_not_measured_where_only_the_last_sign_of_life_is_known() -> None:
    line = way(demo_records(), exact=False)
    assert "detect" not in line.phases
    assert line.phases["reschedule"] == pytest.approx(1.5)
    assert line.unattributed_seconds == pytest.approx(0.3 + 0.5)
    assert line.detected_at == 100.5
    assert line.boundaries[0].what == "last sign of life before the fault"


def test_a_detection_that_clocks_place_just_before_its_cause_still_counts() -> None:
    records = [note("failure_detected", 99.8, attempt="a1"), *demo_records()[1:]]
    assert way(records).phases["detect"] == 0.0


def test_every_boundary_names_the_record_that_drew_it() -> None:
    words = [edge.what for edge in way(demo_records()).boundaries]
    assert words[0] == "fault injected"
    assert words[1] == "failure detected"
    assert "state of step 40 in place, rank 0" in words
    assert words[-1] == "step 41 done"


@pytest.mark.parametrize(
    ("steps", "resumed", "expected"),
    [
        ([(57, 99.5), (40, 91.0)], 40, (17, 9.0)),
        ([(57, 99.5)], 40, (17, None)),
        ([(40, 99.5)], 40, (0, 0.5)),
        ([(40, 50.0), (40, 91.0), (57, 99.5)], 40, (17, 9.0)),
        ([], 40, (None, None)),
        ([(57, 99.5)], None, (None, None)),
    ],
)
def test_lost_work_runs_from_the_checkpoint_to_the_fault(
    steps: list[tuple[int, float]], resumed: int | None, expected: tuple[int | None, float | None]
) -> None:
    rows = [Step(attempt="a1", step=step, at=at) for step, at in steps]
    assert lost_work(fault_at=100.0, steps=rows, resumed_from_step=resumed) == expected


def test_ranks_that_disagree_about_the_step_resume_from_the_lowest() -> None:
    records = [note("resumed_from", 1, rank=0, step=40), note("resumed_from", 1, rank=1, step=20)]
    assert resumed_step(records, "a2") == 20
