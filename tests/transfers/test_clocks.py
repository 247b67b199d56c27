"""Wall clocks that jump while a transfer is at work: forward, so that a lease seems over, and back, so that it seems to
last for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from apps.transfers import moving
from apps.transfers.models import Transfer, TransferCursor
from apps.transfers.services import request_transfer
from tests.transfers.conftest import Tiers, drive
from tests.transfers.test_moving import bytes_of

pytestmark = pytest.mark.django_db
JUMP = timedelta(hours=9)


def move(tiers: Tiers) -> Transfer:
    tiers.save(10, 20)
    return request_transfer(placement=tiers.placement(10), kind="move", target_tier=tiers.cold, actor="olga")


def in_the_middle(monkeypatch: pytest.MonkeyPatch, then: Any) -> None:
    """`then` happens once, in the middle of the copying."""
    real, done = moving.STEPS["copying"], []

    def copy(job: Any, control: Any) -> None:
        real(job, control)
        if not done:
            done.append(1)
            then()

    monkeypatch.setitem(moving.STEPS, "copying", copy)


def test_a_worker_whose_lease_seems_over_stops_when_another_has_taken_over(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = move(tiers)
    before = bytes_of(tiers.path(10))
    with time_machine.travel(timezone.now(), tick=True) as clock:

        def jump_and_take_over() -> None:
            clock.shift(JUMP)
            moving.work(transfer.pk)
            assert Transfer.objects.get(pk=transfer.pk).state == "done"

        in_the_middle(monkeypatch, jump_and_take_over)
        moving.work(transfer.pk)
        done = drive(transfer)
    assert (done.state, done.problem) == ("done", "")
    assert bytes_of(tiers.cold_path(10)) == before and not tiers.path(10).exists()
    assert not TransferCursor.objects.exists()
    assert 0 < done.copy_seconds < 600, "durations are of the monotonic clock"


def test_a_clock_that_goes_back_leaves_nothing_waiting_for_hours(tiers: Tiers) -> None:
    now = timezone.now()
    with time_machine.travel(now + JUMP, tick=True) as clock:
        transfer = move(tiers)
        Transfer.objects.update(lease_expires_at=timezone.now() + timedelta(seconds=90), lease_token="lse_dead")
        moving.work(transfer.pk)
        assert Transfer.objects.get().state == "planned"
        clock.move_to(now)
        assert moving.due() == [transfer.pk]
        assert drive(transfer).state == "done"
