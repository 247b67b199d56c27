"""A server that is broken on purpose: the checker must see it, or it proves nothing about the whole one."""

from __future__ import annotations

from typing import Any

import pytest

from apps.fleet import events, tasks
from apps.fleet.models import Agent, AgentTask
from tests.simulation.checker import violations
from tests.simulation.simulation import Simulation


def caught(simulation: Simulation, words: str) -> bool:
    simulation.settle()
    return any(words in found for found in violations(simulation.collect()))


def test_a_server_that_takes_the_word_of_a_stale_attempt(one: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tasks.finish

    def finish(*, agent: Agent, task_id: str, attempt: int, result: Any) -> Any:
        now = AgentTask.objects.get(pk=task_id).attempt
        return whole(agent=agent, task_id=task_id, attempt=now, result=result)

    monkeypatch.setattr(tasks, "finish", finish)
    one.begin(40)
    one.cut(one.machines[0], 130)  # done by then, and given up by the server: its result comes amid the second run
    assert caught(one, "another attempt")


def test_a_server_that_runs_again_what_may_run_once(one: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tasks.orphan

    def orphan(task: AgentTask, reason: str) -> bool:
        task.idempotent = True
        return whole(task, reason)

    monkeypatch.setattr(tasks, "orphan", orphan)
    one.begin(60, idempotent=False)
    one.kill(one.machines[0], wipe=False, away_seconds=5)
    assert caught(one, "may run once")


def test_a_server_that_forgets_who_never_took_a_task_up(one: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "requeue_unacknowledged", lambda task, reason: False)
    one.cut(one.machines[0], 30)
    one.create_task(one.machines[0], 10)  # handed to the poll that waits, and its answer is lost
    assert caught(one, "never ended")


def test_a_server_that_forgets_part_of_a_batch(one: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = events._rows
    monkeypatch.setattr(events, "_rows", lambda task_id, batch: rows(task_id, batch)[1:])
    one.begin(60)
    assert caught(one, "not every event")


def test_a_history_in_which_an_event_is_stored_twice(one: Simulation) -> None:
    task = one.begin(60)
    history = one.collect()
    stored = next(found for found in history.tasks if found.id == task.pk)
    stored.seqs[1].append(stored.seqs[1][-1])  # the database's own constraint leaves no such row
    assert any("has events twice" in found for found in violations(history))
