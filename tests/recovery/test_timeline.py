from __future__ import annotations

from typing import Any

from apps.recovery.timeline import Launch, disruptions


def launch(name: str, started_at: float, last_sign_at: float, **more: Any) -> Launch:
    return Launch(launch_id=name, started_at=started_at, last_sign_at=last_sign_at, **{"last_step": 5, **more})


def test_a_launch_that_was_called_failed_is_a_disruption_between_its_last_sign_and_the_detection() -> None:
    [found] = disruptions([launch("a1", 0, 100, failure_detected_at=103)])
    assert (found.launch_id, found.fault_at, found.detected_at) == ("a1", 100, 103)
    assert "after step 5" in found.detail


def test_a_launch_that_never_said_it_ended_while_another_began_is_a_disruption() -> None:
    [found] = disruptions([launch("a2", 130, 200), launch("a1", 0, 100)])
    assert (found.launch_id, found.fault_at, found.detected_at) == ("a1", 100, None)


def test_silence_alone_is_no_disruption() -> None:
    assert disruptions([launch("a1", 0, 100)]) == []


def test_an_end_in_order_is_no_disruption_even_if_another_launch_follows() -> None:
    assert disruptions([launch("a1", 0, 100, ended_at=100), launch("a2", 500, 600)]) == []


def test_a_launch_that_never_trained_belongs_to_the_recovery_before_it() -> None:
    launches = [
        launch("a1", 0, 100, failure_detected_at=101),
        launch("a2", 110, 115, last_step=None, failure_detected_at=116),
        launch("a3", 120, 300),
    ]
    assert [found.launch_id for found in disruptions(launches)] == ["a1"]


def test_two_launches_that_train_side_by_side_are_no_disruption() -> None:
    assert disruptions([launch("a1", 0, 100), launch("a2", 50, 110)]) == []


def test_an_error_exit_that_was_called_failed_counts_even_if_the_process_closed_in_order() -> None:
    assert len(disruptions([launch("a1", 0, 100, ended_at=100, failure_detected_at=100.2)])) == 1
