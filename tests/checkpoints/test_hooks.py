"""Hook records: taken in once however often they come, in whatever order."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import factories
import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from muster_agent.protocol.wire import HookRecord

from apps.checkpoints.hooks import ingest_records
from apps.checkpoints.models import Placement, RunAttempt, RunEvent, StepReport, TrainingRun, TrustEvidence
from apps.fleet.models import Agent

pytestmark = pytest.mark.django_db
T0 = 1_800_000_000.0


@pytest.fixture
def agent() -> Agent:
    return factories.agent(factories.node(factories.cluster()))


def record(seq: int, kind: str = "step", **fields: Any) -> HookRecord:
    defaults: dict[str, Any] = {
        "source": "host-1-7", "run": "llama-70b", "attempt": "launch-1", "at_unix_seconds": T0 + seq,
        "mono_seconds": float(seq),
    }  # fmt: skip
    return HookRecord(seq=seq, kind=kind, **{**defaults, **fields})


def resumed(seq: int, step: int, path: str, **fields: Any) -> HookRecord:
    return record(seq, "resumed_from", step=step, data={"path": path}, **fields)


def test_a_launch_its_events_and_its_steps_are_recorded(agent: Agent) -> None:
    count = ingest_records(
        agent=agent,
        records=[
            record(1, "process_started", rank=0, pid=4711),
            record(2, "phase", phase="read", edge="begin", rank=0),
            record(3, step=11, loss=2.5),
            record(4, step=12, loss=2.25),
        ],
    )
    attempt = RunAttempt.objects.get()
    assert count == 4
    assert (attempt.run.name, attempt.launch_id, attempt.last_step) == ("llama-70b", "launch-1", 12)
    assert attempt.started_at == datetime.fromtimestamp(T0 + 1, UTC)
    assert attempt.last_report_at == datetime.fromtimestamp(T0 + 4, UTC)
    assert list(RunEvent.objects.order_by("seq").values_list("kind", "phase", "edge", "pid")) == [
        ("process_started", "", "", 4711),
        ("phase", "read", "begin", None),
    ]
    assert list(StepReport.objects.order_by("step").values_list("step", "loss")) == [(11, 2.5), (12, 2.25)]


def test_the_same_records_again_change_nothing(agent: Agent) -> None:
    records = [record(1, "process_started"), record(2, step=1, loss=1.0), record(3, "process_ended")]
    for _ in range(3):
        assert ingest_records(agent=agent, records=records) == 3
    assert (RunAttempt.objects.count(), RunEvent.objects.count(), StepReport.objects.count()) == (1, 2, 1)


def test_four_ranks_that_report_a_step_make_one_report_with_the_loss(agent: Agent) -> None:
    records = [record(n, step=5, rank=n, source=f"host-1-{n}", loss=3.5 if n == 2 else None) for n in range(4)]
    ingest_records(agent=agent, records=list(reversed(records)))
    report = StepReport.objects.get()
    assert (report.at, report.loss) == (datetime.fromtimestamp(T0, UTC), 3.5)


def test_the_order_of_arrival_does_not_matter(agent: Agent) -> None:
    early, late = [record(1, "process_started"), record(2, step=3)], [record(3, step=9), record(4, "process_ended")]
    for batch in (late, early):
        ingest_records(agent=agent, records=batch)
    attempt = RunAttempt.objects.get()
    assert attempt.last_step == 9 and attempt.started_at == datetime.fromtimestamp(T0 + 1, UTC)
    assert attempt.ended_at == datetime.fromtimestamp(T0 + 4, UTC)


def test_an_attempt_that_goes_on_after_one_rank_ended_has_not_ended(agent: Agent) -> None:
    ingest_records(agent=agent, records=[record(1, step=1), record(2, "process_ended", rank=3)])
    assert RunAttempt.objects.get().ended_at is not None
    ingest_records(agent=agent, records=[record(5, step=2)])
    assert RunAttempt.objects.get().ended_at is None


def test_a_step_beyond_the_one_resumed_from_proves_the_copy(agent: Agent) -> None:
    tier = factories.tier(agent.node.cluster)
    copy = factories.placement(factories.run(agent.node.cluster), tier, 40)
    ingest_records(agent=agent, records=[resumed(1, 40, copy.path + "/"), record(2, step=40)])
    assert not TrustEvidence.objects.exists(), "step 40 again proves nothing"
    attempt = RunAttempt.objects.get()
    assert (attempt.resumed_from_step, attempt.resumed_from_path) == (40, copy.path)
    for _ in range(2):
        ingest_records(agent=agent, records=[record(3, step=41)])
    proof = TrustEvidence.objects.get()
    assert (proof.rung, proof.source_kind, proof.source_id, proof.fingerprint) == (
        "resumed", "attempt", attempt.pk, copy.fingerprint,
    )  # fmt: skip
    assert Placement.objects.get().trust == "resumed"


def test_a_copy_that_is_scanned_later_is_still_proven_by_the_next_step(agent: Agent) -> None:
    ingest_records(agent=agent, records=[resumed(1, 40, "/ckpt/llama-70b/step-40"), record(2, step=41)])
    factories.placement(TrainingRun.objects.get(), factories.tier(agent.node.cluster), 40)
    ingest_records(agent=agent, records=[record(3, step=42)])
    assert Placement.objects.get().trust == "resumed"


def test_files_written_after_the_resume_are_not_proven_by_it(agent: Agent) -> None:
    tier = factories.tier(agent.node.cluster)
    run = factories.run(agent.node.cluster)
    later = datetime.fromtimestamp(T0 + 100, UTC)
    copy = factories.placement(run, tier, 40, newest_mtime_at=later)
    ingest_records(agent=agent, records=[resumed(1, 40, copy.path), record(2, step=41)])
    assert not TrustEvidence.objects.exists()


def test_another_runs_or_steps_copy_is_not_proven(agent: Agent) -> None:
    tier = factories.tier(agent.node.cluster)
    run = factories.run(agent.node.cluster)
    other = factories.placement(run, tier, 30)
    ingest_records(agent=agent, records=[resumed(1, 40, other.path), record(2, step=41)])
    assert not TrustEvidence.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"run": ""},
        {"run": "r" * 300},
        {"run": "a\0b"},
        {"attempt": "a" * 200},
        {"source": ""},
        {"kind": "k" * 30},
        {"seq": -1},
        {"step": 2**70},
        {"step": None},
        {"at_unix_seconds": -5.0},
        {"at_unix_seconds": float("nan")},
        {"at_unix_seconds": 1e18},
        {"mono_seconds": float("inf")},
    ],
)
def test_a_record_that_no_row_can_hold_is_left_out_and_blocks_nothing(agent: Agent, fields: dict[str, Any]) -> None:
    values: dict[str, Any] = {"seq": 1, "kind": "step", "step": 1, **fields}
    bad = record(values.pop("seq"), values.pop("kind"), **values)
    assert ingest_records(agent=agent, records=[bad, record(2, step=7)]) == 1
    assert StepReport.objects.get().step == 7


def test_odd_values_are_made_fit(agent: Agent) -> None:
    odd = record(1, "phase", phase="p" * 40, rank=2**40, data={"loss": float("nan"), "text": "x" * 9000})
    ingest_records(
        agent=agent, records=[odd, record(2, "note", data={"n": float("nan")}), record(3, step=1, loss=float("nan"))]
    )
    first, second = RunEvent.objects.order_by("seq")
    assert (len(first.phase), first.rank, list(first.data)) == (16, None, ["left_out"])
    assert second.data == {"n": None}
    assert StepReport.objects.get().loss is None


def test_queries_do_not_grow_with_the_batch(agent: Agent) -> None:
    def cost(begin: int, count: int) -> int:
        records = [
            record(begin + n, "phase" if n % 2 else "step", step=begin + n, attempt=f"launch-{n % 3}")
            for n in range(count)
        ]
        with CaptureQueriesContext(connection) as queries:
            ingest_records(agent=agent, records=records)
        return len(queries)

    assert cost(0, 6) >= cost(1000, 120)


@pytest.mark.django_db(transaction=True)
def test_two_agents_that_forward_one_launch_at_once_make_one_attempt(agent: Agent) -> None:
    other = factories.agent(factories.node(agent.node.cluster, "gpu-2"))
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def send(which: Agent, source: str) -> None:
        try:
            sent = Agent.objects.select_related("node__cluster").get(pk=which.pk)
            barrier.wait(10)
            for begin in range(0, 100, 20):
                ingest_records(agent=sent, records=[record(n, step=n, source=source) for n in range(begin, begin + 20)])
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send, args=args) for args in ((agent, "host-1-1"), (other, "host-2-1"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert (TrainingRun.objects.count(), RunAttempt.objects.count(), StepReport.objects.count()) == (1, 1, 100)
    assert RunAttempt.objects.get().last_step == 99
