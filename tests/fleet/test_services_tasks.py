"""The life of a task, as its owner sees it."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from django.utils import timezone
from factories import agent, cluster, node
from muster_agent.protocol.wire import InventoryBody, InventoryParams, TaskKind, TaskResult

from apps.core.errors import Conflict, NotFound
from apps.core.models import Transition
from apps.fleet import barrier, tasks, upkeep
from apps.fleet.models import Agent, AgentTask, TaskGroup

pytestmark = pytest.mark.django_db
State = AgentTask.State
DONE = TaskResult(outcome="done", body={"root": "/data", "checkpoints": []})


@pytest.fixture
def worker() -> Agent:
    return agent(node(cluster()))


def queued(on: Agent, **fields: object) -> AgentTask:
    return tasks.create_task(
        agent=on,
        kind=TaskKind.INVENTORY,
        params=InventoryParams(root="/data"),
        owner_kind="scan",
        owner_id="scn_1",
        **fields,  # type: ignore[arg-type]
    )


def held(on: Agent, **fields: object) -> AgentTask:
    task = queued(on, **fields)
    [claimed] = tasks.claim(agent=on, slots=1)
    tasks.acknowledge(agent=on, task_id=claimed.pk, attempt=claimed.attempt)
    task.refresh_from_db()
    return task


def test_a_result_is_typed_and_can_be_forgotten_while_a_repeat_is_still_known(worker: Agent) -> None:
    task = held(worker)
    tasks.finish(agent=worker, task_id=task.pk, attempt=1, result=DONE)
    task.refresh_from_db()
    assert task.is_finished
    assert tasks.body(task, InventoryBody).root == "/data"
    tasks.forget_result(task)
    task.refresh_from_db()
    assert task.result is None
    with pytest.raises(msgspec.ValidationError):
        tasks.body(task, InventoryBody)
    _task, late = tasks.finish(agent=worker, task_id=task.pk, attempt=1, result=DONE)
    assert late is False
    with pytest.raises(Conflict):
        tasks.finish(agent=worker, task_id=task.pk, attempt=1, result=TaskResult(outcome="failed"))


def test_every_change_leaves_a_row(worker: Agent) -> None:
    task = held(worker)
    tasks.finish(agent=worker, task_id=task.pk, attempt=1, result=DONE)
    steps = Transition.objects.filter(owner_id=task.pk).order_by("pk").values_list("new", flat=True)
    assert list(steps) == ["leased", "acked", "reported", "done"]


def test_a_claim_takes_no_more_than_the_slots_and_oldest_first(worker: Agent) -> None:
    rows = [queued(worker) for _number in range(3)]
    assert [task.pk for task in tasks.claim(agent=worker, slots=2)] == [rows[0].pk, rows[1].pk]
    assert [task.pk for task in tasks.claim(agent=worker, slots=2)] == [rows[2].pk]


def test_two_who_saw_the_same_queued_row_do_not_both_get_it(worker: Agent) -> None:
    queued(worker)
    first, second = (AgentTask.objects.get() for _reader in range(2))
    assert [tasks._lease(first), tasks._lease(second)] == [True, False]


def test_cancelling_an_owner_ends_what_waits_and_tells_what_runs(worker: Agent) -> None:
    running, waiting = held(worker), queued(worker)
    assert tasks.cancel_owner(owner_kind="scan", owner_id="scn_1", reason="not needed") == 2
    assert tasks.cancel_owner(owner_kind="scan", owner_id="scn_1", reason="again") == 1  # the one that is stopping
    running.refresh_from_db()
    waiting.refresh_from_db()
    assert (running.state, running.outcome) == (State.CANCELLING, "")
    assert (waiting.state, waiting.outcome) == (State.DONE, "cancelled")


def test_a_task_that_does_not_stop_is_lost_after_a_minute(worker: Agent) -> None:
    task = held(worker)
    tasks.request_cancel(task=task, reason="stop")
    AgentTask.objects.update(lease_expires_at=timezone.now() + timedelta(hours=1))
    upkeep.expire_leases()
    task.refresh_from_db()
    assert task.state == State.CANCELLING
    AgentTask.objects.update(cancel_requested_at=timezone.now() - timedelta(seconds=61))
    upkeep.expire_leases()
    task.refresh_from_db()
    assert (task.state, task.outcome) == (State.LOST, "lost")


def test_a_lease_is_given_a_grace_and_then_the_task_runs_again_until_its_third_time(worker: Agent) -> None:
    task = held(worker)
    for run in (1, 2, 3):
        AgentTask.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=29))
        upkeep.expire_leases()
        task.refresh_from_db()
        assert (task.state, task.runs) == (State.ACKED, run)
        AgentTask.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=31))
        upkeep.expire_leases()
        task.refresh_from_db()
        if run < 3:
            assert task.state == State.QUEUED
            [again] = tasks.claim(agent=worker, slots=1)
            tasks.acknowledge(agent=worker, task_id=again.pk, attempt=again.attempt)
    assert (task.state, task.outcome, task.error_code) == (State.LOST, "lost", "lost")


def test_another_agents_task_is_not_found(worker: Agent) -> None:
    task = held(worker)
    stranger = agent(node(worker.node.cluster, "gpu-2"))
    with pytest.raises(NotFound):
        tasks.finish(agent=stranger, task_id=task.pk, attempt=1, result=DONE)


def test_late_results_are_bounded(worker: Agent) -> None:
    task = held(worker, idempotent=False)
    AgentTask.objects.update(lease_expires_at=timezone.now() - timedelta(hours=1))
    upkeep.expire_leases()
    for number in range(5):
        late = TaskResult(outcome="failed", error=str(number))
        for _again in range(2):
            assert tasks.finish(agent=worker, task_id=task.pk, attempt=1, result=late)[1] is True
    task.refresh_from_db()
    assert [one["error"] for one in task.late_results] == ["2", "3", "4"]
    assert task.outcome == "lost"


def test_a_barrier_is_aborted_by_upkeep_after_its_deadline(worker: Agent) -> None:
    past = timezone.now() - timedelta(seconds=1)
    group = barrier.create_group(owner_kind="drill", owner_id="drl_1", quorum=2, deadline_at=past)
    waiting = queued(worker, group=group)
    upkeep.expire_leases()
    group.refresh_from_db()
    waiting.refresh_from_db()
    assert (group.state, waiting.outcome, waiting.error_code) == ("aborted", "cancelled", "barrier_aborted")
    assert "only 0 of 2" in group.reason


def test_a_barrier_that_has_opened_is_not_aborted_any_more(worker: Agent) -> None:
    soon = timezone.now() + timedelta(minutes=1)
    group = barrier.create_group(owner_kind="drill", owner_id="drl_1", quorum=1, deadline_at=soon)
    task = held(worker, group=group)
    barrier.mark_ready(task)
    assert barrier.settle(group.pk).state == TaskGroup.State.RELEASED
    group.refresh_from_db()
    assert barrier.abort_group(group=group, reason="too late") is False
    assert group.start_at is not None


def test_many_clients_are_given_more_time_to_hear_of_the_start() -> None:
    assert barrier.lead_seconds(4) == barrier.lead_seconds(16) == 0.5
    assert 0.5 < barrier.lead_seconds(100) < barrier.lead_seconds(1000) <= 5.0
