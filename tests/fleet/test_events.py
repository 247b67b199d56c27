"""Event batches."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from factories import agent, cluster, node
from muster_agent.protocol.wire import EventBatch, InventoryParams, TaskEvent, TaskKind

from apps.core.errors import Conflict, InvalidInput
from apps.fleet import events, tasks
from apps.fleet.models import Agent, AgentEvent, AgentTask

pytestmark = pytest.mark.django_db


def event(seq: int, kind: str = "progress", **fields: Any) -> TaskEvent:
    return TaskEvent(
        **{"seq": seq, "kind": kind, "at_unix_seconds": 1_700_000_000.0 + seq, "mono_seconds": 1.0, **fields}
    )


@pytest.fixture
def worker() -> Agent:
    return agent(node(cluster()))


@pytest.fixture
def task(worker: Agent) -> AgentTask:
    made = tasks.create_task(
        agent=worker, kind=TaskKind.INVENTORY, params=InventoryParams(root="/d"), owner_kind="scan", owner_id="scn_1"
    )
    tasks.claim(agent=worker, slots=1)
    tasks.acknowledge(agent=worker, task_id=made.pk, attempt=1)
    return made


def ingest(worker: Agent, task: AgentTask, *some: TaskEvent, attempt: int = 1) -> AgentTask:
    return events.ingest(agent=worker, task_id=task.pk, batch=EventBatch(attempt=attempt, events=some))


def test_a_batch_of_any_size_takes_a_handful_of_statements(worker: Agent, task: AgentTask) -> None:
    ingest(worker, task, event(1))
    with CaptureQueriesContext(connection) as few:
        ingest(worker, task, event(2))
    with CaptureQueriesContext(connection) as many:
        ingest(worker, task, *(event(seq) for seq in range(3, 203)))
    assert len(few) <= 5  # SAVEPOINT and its end are counted, too
    assert len(many) <= 8  # SQLite takes 999 parameters a statement
    assert AgentEvent.objects.count() == 202


def test_progress_is_summarised_with_each_phases_times(worker: Agent, task: AgentTask) -> None:
    ingest(
        worker, task, event(1, "phase", phase="read", edge="begin"), event(2, phase="read", done_bytes=5, total_bytes=9)
    )
    found = ingest(
        worker, task, event(3, phase="read", done_bytes=9, total_bytes=9), event(4, "phase", phase="read", edge="end")
    )
    assert found.state == AgentTask.State.RUNNING
    assert found.progress == {
        "phase": "read",
        "done_bytes": 9,
        "total_bytes": 9,
        "at": 1_700_000_004.0,
        "phases": {"read": {"begin": 1_700_000_001.0, "end": 1_700_000_004.0}},
    }


def test_what_else_the_work_counts_is_kept_as_a_few_small_numbers(worker: Agent, task: AgentTask) -> None:
    sent = {"entries": 91_000, "folders_left": 9, "why": "text", "huge": 2**70, "negative": -1, "yes": True}
    sent |= {f"x{number:03}" + "y" * 200: number for number in range(100)}
    counts = ingest(worker, task, event(1, phase="inventory", done_bytes=1, total_bytes=2, data=sent)).progress[
        "counts"
    ]
    assert counts["entries"] == 91_000 and counts["folders_left"] == 9
    assert len(counts) == 16 and not counts.keys() & {"why", "huge", "negative", "yes"}
    assert max(map(len, counts)) <= 40


def test_an_empty_batch_renews_the_lease_and_starts_nothing(worker: Agent, task: AgentTask) -> None:
    AgentTask.objects.update(lease_expires_at=None)
    found = ingest(worker, task)
    found.refresh_from_db()
    assert found.lease_expires_at is not None
    assert found.state == AgentTask.State.ACKED


def test_a_stale_attempt_stores_nothing(worker: Agent, task: AgentTask) -> None:
    with pytest.raises(Conflict) as stale:
        ingest(worker, task, event(1), attempt=2)
    assert stale.value.code == "lease_lost"
    assert not AgentEvent.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"seq": -1},
        {"seq": 2**63},
        {"kind": ""},
        {"kind": "x" * 17},
        {"phase": "x" * 17},
        {"edge": "x" * 9},
        {"rank": 2**31},
        {"at_unix_seconds": 1e18},
        {"at_unix_seconds": -1e18},
    ],
)
def test_an_event_out_of_range_is_refused_by_its_place(worker: Agent, task: AgentTask, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as bad:
        ingest(worker, task, event(1), event(**{"seq": 2, **fields}))
    assert (bad.value.pointer or "").startswith("/events/1")
    assert not AgentEvent.objects.exists()
