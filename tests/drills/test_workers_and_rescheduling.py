"""Whom a failover breaks, and what its scheduler did meanwhile: pure."""

from __future__ import annotations

import pytest

from apps.drills.failover import Record, Step, timeline
from apps.drills.rescheduling import Piece, pieces
from apps.drills.workers import Worker, choose_worker, fitting

WORKERS = [Worker(agent_id=f"a{n}", node=f"gpu-{n}", rank=rank, pid=rank) for rank in range(8) for n in (rank % 4 + 1,)]


def test_a_random_worker_is_the_same_for_the_same_seed_whatever_order_they_come_in() -> None:
    fit, turned = (fitting(workers, rank=None, node="") for workers in (WORKERS, WORKERS[::-1]))
    chosen = [choose_worker(fit, rank=None, seed=seed) for seed in range(40)]
    again = [choose_worker(turned, rank=None, seed=seed) for seed in range(40)]
    assert chosen == again
    assert len({one.rank for one in chosen}) > 4


@pytest.mark.parametrize(
    ("rank", "node", "ranks"),
    [(5, "", {5}), (None, "gpu-2", {1, 5}), (5, "gpu-2", {5}), (5, "gpu-1", set()), (9, "", set())],
)
def test_a_worker_is_named_by_rank_by_node_or_by_both(rank: int | None, node: str, ranks: set[int]) -> None:
    fit = fitting(WORKERS, rank=rank, node=node)
    assert {one.rank for one in fit} == ranks
    assert {choose_worker(fit, rank=rank, seed=seed) for seed in range(20) if fit} <= set(fit)


def record(kind: str, at: float, attempt: str = "1.0") -> Record:
    return Record(kind=kind, at=at, attempt=attempt)


REQUEUE = [
    record("failure_detected", 100.4),
    record("requeued", 103.0),
    record("eligible", 124.0),
    record("job_started", 126.0),
    record("launch_started", 126.7, "1.1"),
]


def test_a_requeue_is_taken_apart_into_ending_hold_queue_and_start() -> None:
    assert pieces(REQUEUE) == [
        Piece("ending", pytest.approx(2.6)),
        Piece("hold", 21.0),
        Piece("queue", 2.0),
        Piece("starting", pytest.approx(0.7)),
    ]


def test_whole_seconds_never_make_a_piece_negative() -> None:
    found = pieces([record("failure_detected", 103.4), *REQUEUE[1:]])
    assert found[0] == Piece("ending", 0.0)
    assert found[1].seconds == pytest.approx(20.6)


def test_edges_that_nobody_recorded_leave_their_pieces_out() -> None:
    assert pieces([REQUEUE[0], REQUEUE[-1]]) == []


def test_a_requeue_that_nobody_else_reported_is_what_detected_the_failure() -> None:
    """The node is gone, and with it the script that would have said so."""
    records = [*REQUEUE[1:], Record(kind="resumed_from", at=130.0, attempt="1.1", rank=0, step=40)]
    steps = [Step(attempt="1.1", step=41, at=131.0)]
    line = timeline(fault_at=103.6, records=records, steps=steps, failed_attempt="1.0")
    assert line.phases["detect"] == 0.0  # Slurm's second began before the fault in it
    assert line.phases["reschedule"] == pytest.approx(23.1)
    assert line.detected_at == 103.6
    said = [edge.what for edge in line.boundaries]
    assert "the scheduler's hold on the job ended" in said
    with_report = timeline(fault_at=100.0, records=[REQUEUE[0], *records], steps=steps, failed_attempt="1.0")
    assert with_report.phases["detect"] == pytest.approx(0.4)
    assert with_report.phases["reschedule"] == pytest.approx(26.3)
