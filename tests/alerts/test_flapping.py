"""An alert that opens and closes again and again is told once as flapping, and its end once it has stayed away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import factories
import pytest
import time_machine

from apps.alerts import services
from apps.alerts.models import Alert, Channel, Event
from apps.fleet.models import Agent

pytestmark = pytest.mark.django_db
URL = "https://93.184.215.14/hook"
BEGIN = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)


@pytest.fixture
def clock(channel: Callable[..., Channel]) -> Iterator[time_machine.Traveller]:
    with time_machine.travel(BEGIN, tick=False) as clock:
        channel(target=URL, event_types=["alert.*"])
        yield clock


def turn(agent: Agent, state: str) -> None:
    Agent.objects.filter(pk=agent.pk).update(state=state, last_seen_at=BEGIN - timedelta(hours=1))
    services.evaluate()


def flap(agent: Agent, times: int, clock: time_machine.Traveller, minutes: float = 1) -> None:
    for _time in range(times):
        turn(agent, "lost")
        clock.shift(timedelta(minutes=minutes))
        turn(agent, "online")
        clock.shift(timedelta(minutes=minutes))


def told() -> list[str]:
    return [
        event.type.removeprefix("alert.") + ("!" if event.data["flapping"] else "")
        for event in Event.objects.order_by("at", "pk")
    ]


def test_the_fourth_opening_within_an_hour_is_told_as_flapping_and_then_nothing(clock: time_machine.Traveller) -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    flap(agent, 9, clock)
    assert told() == ["opened", "resolved"] * 3 + ["opened!"]
    event = Event.objects.order_by("-at").first()
    assert event is not None and event.data["summary"].startswith("Flapping: opened 4 times within 1 h")
    assert Alert.objects.count() == 9, "all of them are listed"


def test_its_end_is_told_once_it_has_stayed_away_and_then_all_is_as_before(clock: time_machine.Traveller) -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    flap(agent, 6, clock)
    clock.shift(timedelta(minutes=58))
    services.evaluate()
    assert told()[7:] == []
    clock.shift(timedelta(minutes=2))
    for _sweep in range(2):
        services.evaluate()
    assert told()[7:] == ["resolved!"]
    clock.shift(timedelta(minutes=1))
    flap(agent, 1, clock)
    assert told()[8:] == ["opened", "resolved"]


def test_what_stays_wrong_after_flapping_is_not_told_to_be_over(clock: time_machine.Traveller) -> None:
    agent = factories.agent(factories.node(factories.cluster()))
    flap(agent, 4, clock)
    turn(agent, "lost")
    clock.shift(timedelta(hours=3))
    services.evaluate()
    assert told()[7:] == []
    assert Alert.objects.exclude(state="resolved").count() == 1


def test_slow_turns_and_other_things_are_told_each_time(clock: time_machine.Traveller) -> None:
    cluster = factories.cluster()
    flap(factories.agent(factories.node(cluster)), 5, clock, minutes=15)
    flap(factories.agent(factories.node(cluster, "gpu-2")), 3, clock)
    assert told() == ["opened", "resolved"] * 8
