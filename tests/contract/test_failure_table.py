"""The protocol's failure table, row by row (docs/protocol.md), on the wire."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from live import LiveServer, wait_until
from muster_agent.protocol.wire import EventBatch, ReadyRequest, RunningTask, TaskResult
from muster_agent.runtime.retry import Conflicted, CredentialRefused, Refused, TaskGone
from raw import RawAgent, progress

DONE = TaskResult(outcome="done", body={"root": "/data", "checkpoints": []})
CANCELLED = TaskResult(outcome="cancelled", error="cancelled", error_code="cancelled")


def swept_until(server: LiveServer, task_id: str, state: str, seconds: float = 15) -> dict[str, Any]:
    """Sweep as beat does until the task has that state."""

    def look() -> dict[str, Any] | None:
        server.call("sweep")
        found: dict[str, Any] = server.call("task", task_id)
        return found if found["state"] == state else None

    found: dict[str, Any] = wait_until(look, seconds, f"{task_id} is {state}")
    return found


@pytest.mark.slow
def test_a_lost_claim_reply_is_handed_out_again_without_a_second_run(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.inventory()
    assert agent.poll().tasks[0].attempt == 1  # and this reply is lost
    swept_until(server, task, "queued")
    assert agent.poll().tasks[0].attempt == 2
    with pytest.raises(Conflicted) as stale:
        agent.client.ack(task, 1)
    assert stale.value.code == "lease_lost"
    agent.client.ack(task, 2)
    agent.client.ack(task, 2)  # its reply may be lost, too
    assert server.call("task", task)["runs"] == 1


def test_a_claim_that_is_acknowledged_is_not_handed_out_again(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.held()
    server.call("sweep")
    assert agent.poll().tasks == ()


def test_events_that_are_sent_twice_are_stored_once(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.held()
    assert agent.client.events(task, progress(1, 2, 3)).acked_seq == 3
    agent.client.events(task, progress(2, 3, 4, dropped=2))
    found = server.call("task", task)
    assert (found["events"], found["state"], found["dropped_events"]) == (4, "running", 2)
    assert found["progress"]["done_bytes"] == 4


def test_a_result_may_be_repeated_but_not_changed(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.held()
    assert agent.client.result(task, 1, DONE).state == "done"
    assert agent.client.result(task, 1, DONE).state == "done"
    with pytest.raises(Conflicted) as other:
        agent.client.result(task, 1, CANCELLED)
    assert other.value.code == "result_conflict"
    assert server.call("task", task)["outcome"] == "done"


def test_a_silent_holder_loses_the_task_and_its_late_result_is_kept_but_not_counted(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.held()
    agent.client.events(task, progress(1))
    found = swept_until(server, task, "queued")
    assert (found["runs"], found["progress"]["done_bytes"]) == (1, 1)
    assert agent.poll().tasks[0].attempt == 2
    agent.client.ack(task, 2)
    with pytest.raises(Conflicted):
        agent.client.events(task, progress(2))
    with pytest.raises(Conflicted):
        agent.client.result(task, 1, DONE)
    found = server.call("task", task)
    assert (found["state"], found["outcome"]) == ("acked", "")
    assert [late["attempt"] for late in found["late_results"]] == [1]


def test_work_that_may_not_run_twice_is_lost_and_its_late_result_is_accepted_as_late(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.held(idempotent=False)
    swept_until(server, task, "lost")
    reply = agent.client.result(task, 1, DONE)
    assert (reply.state, reply.late) == ("lost", True)
    found = server.call("task", task)
    assert (found["outcome"], len(found["late_results"])) == ("lost", 1)


@pytest.mark.slow
def test_a_task_is_lost_after_its_third_run(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.held()
    for run in (1, 2, 3):
        swept_until(server, task, "queued" if run < 3 else "lost")
        if run < 3:
            agent.client.ack(task, agent.poll().tasks[0].attempt)
    assert server.call("task", task)["runs"] == 3


def test_a_new_boot_frees_what_the_old_one_held_at_once(server: LiveServer) -> None:
    agent = RawAgent(server)
    held = agent.held()
    reply = agent.poll(boot="boot-2")
    assert [(order.task_id, order.attempt) for order in reply.tasks] == [(held, 2)]


def test_a_second_boot_fences_the_first(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.poll(boot="one")
    ended: list[str] = []

    def wait_as_one() -> None:
        try:
            agent.poll(boot="one", wait_seconds=8)
        except Conflicted as error:
            ended.append(error.code)

    waiting = threading.Thread(target=wait_as_one)
    waiting.start()
    time.sleep(0.5)
    agent.poll(boot="two")
    waiting.join(3)
    assert ended == ["superseded"]
    with pytest.raises(Conflicted):
        agent.poll(boot="one")


def test_a_credential_that_flips_between_two_machines_three_times_is_refused_to_both(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.poll(boot="one")
    agent.poll(boot="two")
    for _time in range(3):
        with pytest.raises(Conflicted):
            agent.poll(boot="one")
    for boot in ("one", "two"):
        with pytest.raises(CredentialRefused):
            agent.poll(boot=boot)
    old, new, reason = server.call("transitions", agent.id)[-1]
    assert (old, new) == ("online", "revoked")
    assert "two machines" in reason


def test_a_node_that_restarts_three_times_is_no_clone(server: LiveServer) -> None:
    agent = RawAgent(server)
    for boot in ("one", "two", "three", "four"):
        assert agent.poll(boot=boot).state == "online"


def test_a_revoked_agent_is_refused_within_its_waiting_poll(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.poll()
    threading.Timer(0.5, server.call, ("revoke", agent.id)).start()
    began_at = time.monotonic()
    with pytest.raises(CredentialRefused) as refused:
        agent.poll(wait_seconds=8)
    assert refused.value.code == "credential_revoked"
    assert time.monotonic() - began_at < 4


def test_a_waiting_poll_brings_new_work_and_cancellation_at_once(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.poll()
    made: list[str] = []
    asking = threading.Timer(0.5, lambda: made.append(agent.inventory()))
    asking.start()
    began_at = time.monotonic()
    order = agent.poll(wait_seconds=8).tasks[0]
    assert time.monotonic() - began_at < 2
    asking.join()
    assert [order.task_id] == made
    agent.client.ack(order.task_id, 1)
    running = (RunningTask(task_id=order.task_id, attempt=1),)
    threading.Timer(0.5, server.call, ("cancel", order.task_id)).start()
    began_at = time.monotonic()
    assert agent.poll(wait_seconds=8, free_slots=0, running=running).cancel == (order.task_id,)
    assert time.monotonic() - began_at < 2
    assert agent.client.events(order.task_id, EventBatch(attempt=1, events=())).cancel is True
    stopping = (RunningTask(task_id=order.task_id, attempt=1, cancelling=True),)
    began_at = time.monotonic()
    agent.poll(wait_seconds=1.5, free_slots=0, running=stopping)
    assert time.monotonic() - began_at > 1  # it knows already


def test_cancelling_races_with_finishing_and_the_first_terminal_state_stands(server: LiveServer) -> None:
    agent = RawAgent(server)
    finished = agent.held()
    agent.client.result(finished, 1, DONE)
    assert server.call("cancel", finished) is False
    assert server.call("task", finished)["outcome"] == "done"
    cancelled = agent.held()
    assert server.call("cancel", cancelled) is True
    agent.client.result(cancelled, 1, DONE)  # it was done before it heard of it
    assert server.call("task", cancelled)["outcome"] == "done"
    unclaimed = agent.inventory()
    assert server.call("cancel", unclaimed) is True
    assert agent.poll().tasks == ()
    assert server.call("task", unclaimed)["outcome"] == "cancelled"


def test_another_agents_task_does_not_exist(server: LiveServer) -> None:
    owner, stranger = RawAgent(server), RawAgent(server)
    task = owner.held()
    for attempt in (
        lambda: stranger.client.ack(task, 1),
        lambda: stranger.client.events(task, progress(1)),
        lambda: stranger.client.result(task, 1, DONE),
        lambda: stranger.client.release(task, 1, ""),
        lambda: stranger.client.ready(task, ReadyRequest(attempt=1)),
    ):
        with pytest.raises(TaskGone):
            attempt()


def test_a_draining_agent_gets_no_work_and_may_hand_its_own_back(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.held()
    assert agent.client.release(task, 1, "draining").state == "queued"
    assert agent.poll(draining=True).tasks == ()
    assert server.call("agent", agent.id)["state"] == "draining"
    assert server.call("task", task)["runs"] == 0
    assert agent.poll().tasks[0].attempt == 2


def test_an_agent_of_another_protocol_is_kept_idle(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.inventory()
    reply = agent.poll(protocol=9)
    assert (reply.state, reply.tasks) == ("incompatible", ())
    assert reply.next_poll_seconds >= 30
    assert agent.poll().state == "online"


@pytest.mark.slow
def test_an_agent_that_stops_polling_is_stale_then_lost_and_comes_back(server: LiveServer) -> None:
    agent = RawAgent(server)
    agent.poll()

    def state() -> str:
        server.call("sweep")
        found: str = server.call("agent", agent.id)["state"]
        return found

    wait_until(lambda: state() == "stale", 16, "stale")
    wait_until(lambda: state() == "lost", 12, "lost")
    assert agent.poll().state == "online"


def test_a_barrier_opens_for_all_when_the_quorum_of_distinct_tasks_is_ready(server: LiveServer) -> None:
    group = server.call("create_group", 2)
    one, two = RawAgent(server), RawAgent(server)
    first, second = one.held(group_id=group), two.held(group_id=group)
    for _again in range(2):  # the same one twice is no quorum
        assert one.client.ready(first, ReadyRequest(attempt=1, wait_seconds=0)).start_unix_seconds is None
    starts: list[float | None] = []
    wait = ReadyRequest(attempt=1, wait_seconds=8)
    waiting = threading.Thread(target=lambda: starts.append(one.client.ready(first, wait).start_unix_seconds))
    waiting.start()
    time.sleep(0.3)
    reply = two.client.ready(second, ReadyRequest(attempt=1, wait_seconds=8))
    waiting.join(3)
    assert starts == [reply.start_unix_seconds]
    assert 0 < (reply.start_unix_seconds or 0) - reply.server_unix_seconds <= 0.5


def test_a_barrier_is_aborted_when_a_member_fails_or_the_deadline_passes(server: LiveServer) -> None:
    one, two, three = RawAgent(server), RawAgent(server), RawAgent(server)
    group = server.call("create_group", 3)
    held = [agent.held(group_id=group) for agent in (one, two)]
    unclaimed = three.inventory(group_id=group)
    two.client.result(held[1], 1, TaskResult(outcome="failed", error="no such folder", error_code="root_unreadable"))
    reply = one.client.ready(held[0], ReadyRequest(attempt=1, wait_seconds=8))
    assert "no such folder" in (reply.abort or "")
    assert server.call("task", unclaimed)["error_code"] == "barrier_aborted"
    late = RawAgent(server)
    task = late.held(group_id=server.call("create_group", 2, seconds=1))
    reply = late.client.ready(task, ReadyRequest(attempt=1, wait_seconds=8))
    assert "only 1 of 2" in (reply.abort or "")


def test_a_bad_body_is_refused_once_and_for_all(server: LiveServer) -> None:
    agent = RawAgent(server)
    task = agent.held()
    batch = progress(1)
    endless = EventBatch(attempt=1, events=batch.events * 1001)
    with pytest.raises(Refused):
        agent.client.events(task, endless)
    with pytest.raises(Refused):
        agent.client.result(task, 1, TaskResult(outcome="splendid"))


@pytest.mark.slow
def test_sixty_agents_that_start_in_the_same_second_are_all_online_and_hold_no_threads(server: LiveServer) -> None:
    token = server.call("join_token", server.call("cluster", "crowd"), max_uses=60)
    crowd = [RawAgent(server, token=token) for _number in range(60)]
    for agent in crowd:
        server.call("approve", agent.id)
    states: list[str] = []
    polls = [
        threading.Thread(target=lambda one=agent: states.append(one.poll(wait_seconds=6).state)) for agent in crowd
    ]
    for poll in polls:
        poll.start()
    time.sleep(3)
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        threads = next(int(line.split()[1]) for line in status if line.startswith("Threads:"))
    for poll in polls:
        poll.join(30)
    assert states == ["online"] * 60
    assert threads < 30
