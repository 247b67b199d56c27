"""Changing a state: compare-and-set, one winner, one row of history."""

from __future__ import annotations

import threading

import pytest
from django.db import connection
from django.utils import timezone
from factories import agent, cluster, node

from apps.core.models import Transition
from apps.core.transitions import transition
from apps.fleet.models import Agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def online() -> Agent:
    return agent(node(cluster()))


def test_a_transition_changes_the_row_and_leaves_its_history(online: Agent) -> None:
    at = timezone.now()
    assert transition(online, old="online", new="draining", reason="maintenance", actor="ada", last_seen_at=at)
    stored = Agent.objects.get()
    assert (stored.state, stored.last_seen_at) == ("draining", at)
    assert (online.state, online.last_seen_at) == ("draining", at)
    row = Transition.objects.get()
    assert (row.owner_kind, row.owner_id, row.old, row.new) == ("agent", online.pk, "online", "draining")
    assert (row.reason, row.actor) == ("maintenance", "ada")


def test_a_row_that_somebody_changed_meanwhile_is_left_alone(online: Agent) -> None:
    Agent.objects.update(state="revoked")
    assert not transition(online, old="online", new="draining")
    assert Agent.objects.get().state == "revoked"
    assert not Transition.objects.exists()


def test_a_state_that_is_not_among_the_old_ones_is_left_alone(online: Agent) -> None:
    assert not transition(online, old=("stale", "lost"), new="online")
    assert not Transition.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_many_that_race_exactly_one_wins() -> None:
    row = agent(node(cluster()))
    wins: list[bool] = []

    def race() -> None:
        own = Agent.objects.get(pk=row.pk)
        barrier.wait()
        wins.append(transition(own, old="online", new="busy"))
        connection.close()

    barrier = threading.Barrier(6)
    threads = [threading.Thread(target=race) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(wins) == [False] * 5 + [True]
    assert Transition.objects.count() == 1
