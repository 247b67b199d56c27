"""Signs of life of Muster's own parts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.utils import timezone

from apps.core import heartbeats
from apps.core.models import Heartbeat
from workers.tasks import control

pytestmark = pytest.mark.django_db
NOW = datetime.fromisoformat("2026-03-01T12:00:00+00:00")


def test_a_part_that_never_gave_one_is_told_from_one_that_did() -> None:
    heartbeats.beat(heartbeats.SWEEPS)
    beats = heartbeats.last_beats()
    assert set(beats) == set(heartbeats.PARTS)
    assert [part for part, at in beats.items() if at] == [heartbeats.SWEEPS]


def test_a_part_that_works_every_second_writes_one_row_in_five(django_assert_num_queries: Any) -> None:
    with time_machine.travel(NOW, tick=False) as clock:
        heartbeats.beat(heartbeats.TICKS)
        clock.shift(1)
        with django_assert_num_queries(1):
            heartbeats.beat(heartbeats.TICKS)
        clock.shift(5)
        heartbeats.beat(heartbeats.TICKS)
        assert heartbeats.last_beats()[heartbeats.TICKS] == NOW + timedelta(seconds=6)


def test_a_clock_that_was_set_back_does_not_keep_a_sign_from_the_future() -> None:
    Heartbeat.objects.create(part=heartbeats.SWEEPS, beat_at=timezone.now() + timedelta(hours=1))
    heartbeats.beat(heartbeats.SWEEPS)
    at = heartbeats.last_beats()[heartbeats.SWEEPS]
    assert at is not None
    assert at <= timezone.now()


def test_beat_sends_a_pulse_through_every_queue_that_messages_are_routed_to() -> None:
    pulses = [entry for entry in settings.CELERY_BEAT_SCHEDULE.values() if entry["task"] == control.pulse.name]
    assert {entry["args"] for entry in pulses} == {(queue,) for queue in heartbeats.QUEUES}
    assert all(entry["options"]["queue"] == entry["args"][0] for entry in pulses)
    routed = {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()}
    assert routed | {settings.CELERY_TASK_DEFAULT_QUEUE} == set(heartbeats.QUEUES)


def test_tick_sweep_and_pulse_each_give_their_own_sign() -> None:
    control.tick()
    control.sweep()
    control.pulse("move")
    assert [part for part, at in heartbeats.last_beats().items() if at] == ["ticks", "sweeps", "queue:move"]
