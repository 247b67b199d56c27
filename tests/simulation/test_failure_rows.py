"""Rows of the protocol's failure table (docs/protocol.md) that take minutes or hours, in virtual time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from apps.core.models import Transition
from apps.fleet.models import Agent, AgentEvent
from tests.simulation.checker import violations
from tests.simulation.simulation import Simulation, Size, simulated

pytestmark = pytest.mark.django_db(transaction=True)


def states(owner_id: str) -> list[str]:
    return list(Transition.objects.filter(owner_id=owner_id).order_by("pk").values_list("new", flat=True))


def test_a_cut_of_half_a_minute_goes_unseen_and_its_events_arrive(one: Simulation) -> None:
    task = one.begin(60)
    one.cut(one.machines[0], 30)
    one.wait(120)
    task.refresh_from_db()
    assert (task.outcome, task.attempt, task.runs) == ("done", 1, 1)
    assert "stale" not in states(task.agent_id)
    assert not violations(one.collect())


def test_after_a_cut_of_ten_minutes_the_agent_is_back_and_the_work_is_run_again(one: Simulation) -> None:
    task = one.begin(100)
    one.cut(one.machines[0], 600)
    one.wait(500)
    assert Agent.objects.get(pk=task.agent_id).state == "lost"
    one.wait(600)
    task.refresh_from_db()
    came = states(task.agent_id)
    assert came[came.index("stale") :][:3] == ["stale", "lost", "online"]
    assert task.state in ("done", "lost")
    again = one.begin(20)
    one.wait(30)
    again.refresh_from_db()
    assert again.outcome == "done"
    assert not violations(one.collect())


@pytest.mark.slow
def test_a_result_that_was_two_hours_late_is_kept_and_does_not_count(one: Simulation) -> None:
    task = one.begin(40, idempotent=False)
    one.cut(one.machines[0], 7200)  # the work ends within its lease; its word does not get out
    one.wait(7200 + 120)
    task.refresh_from_db()
    assert (task.state, task.outcome) == ("lost", "lost")
    assert [(late["attempt"], late["outcome"]) for late in task.late_results] == [(1, "done")]
    assert not violations(one.collect())


def test_what_was_accepted_before_the_database_went_away_is_there_after_it(one: Simulation) -> None:
    task = one.begin(60)
    accepted = set(AgentEvent.objects.filter(task=task).values_list("seq", flat=True))
    one.take_away("is_database_up", 30)
    one.wait(120)
    task.refresh_from_db()
    assert (task.outcome, task.attempt) == ("done", 1)
    stored = list(AgentEvent.objects.filter(task=task).values_list("seq", flat=True))
    assert accepted <= set(stored)
    assert sorted(stored) == one.history.emitted[task.pk, 1]


def test_a_wall_clock_that_jumps_an_hour_in_mid_task_leaves_times_and_durations_right(one: Simulation) -> None:
    task = one.begin(60)
    one.machines[0].host.skew_seconds -= 3600
    one.wait(120)
    task.refresh_from_db()
    assert task.outcome == "done"
    events = list(AgentEvent.objects.filter(task=task).order_by("seq"))
    for before, after in zip(events, events[1:], strict=False):
        assert after.mono_seconds >= before.mono_seconds
        apart_seconds = (after.at - before.at).total_seconds() - (after.mono_seconds - before.mono_seconds)
        assert abs(apart_seconds) < 1
    agent = Agent.objects.get(pk=task.agent_id)
    assert agent.clock_offset_seconds == pytest.approx(3600, abs=10)


def test_fifty_agents_are_back_within_a_minute_of_the_server(tmp_path: Path) -> None:
    with simulated(2, Size(agents=50, minutes=0, tasks=0), tmp_path) as simulation:
        simulation.build()
        simulation.world.run_until(30)
        waiting = simulation.create_task(simulation.machines[7], 10)
        simulation.restart_server(100)
        simulation.world.run_until(131)
        back_at = timezone.now()
        simulation.world.run_until(190)
        assert Agent.objects.filter(last_seen_at__gte=back_at).count() == 50
        assert timezone.now() - back_at < timedelta(seconds=60)
        assert waiting is not None
        waiting.refresh_from_db()
        assert waiting.outcome == "done"


def test_a_copy_of_the_enrolment_that_arrives_when_the_agent_works_does_not_lock_it_out(one: Simulation) -> None:
    one.network.replay("/agent/v1/enrol")
    task = one.begin(20)
    one.wait(120)
    task.refresh_from_db()
    assert task.outcome == "done"
