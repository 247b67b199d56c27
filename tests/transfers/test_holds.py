"""A drill that needs a copy and a transfer that removes it: one of them is first, and the other one knows."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction
from muster_agent.jobs import copy_removal

from apps.checkpoints import placements
from apps.checkpoints.models import Placement, PlacementHold
from apps.core.errors import Conflict
from apps.transfers import moving
from apps.transfers.models import Transfer
from apps.transfers.services import request_transfer
from tests.transfers.conftest import Tiers, drive


def move(tiers: Tiers) -> Transfer:
    return request_transfer(placement=tiers.placement(10), kind="move", target_tier=tiers.cold, actor="olga")


@pytest.mark.django_db
def test_nobody_can_hold_a_copy_once_the_rules_have_let_it_go(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.save(10, 20)
    transfer, told = move(tiers), []
    real = copy_removal.retire_folder

    def retire(*args: Any) -> bool:
        with pytest.raises(Conflict, match="is being removed") as refused:
            placements.hold(placement=tiers.placement(10), source_kind="drill", source_id="drl_1")
        told.append(refused.value.code)
        return real(*args)

    monkeypatch.setattr(copy_removal, "retire_folder", retire)
    assert drive(transfer).state == "done" and told == ["leaving"]
    assert not PlacementHold.objects.exists() and Placement.objects.exclude(leaving="").count() == 0


@pytest.mark.django_db
def test_a_copy_that_stays_after_all_can_be_held_again(tiers: Tiers) -> None:
    tiers.save(10, 20)
    hold = {"placement": tiers.placement(10), "source_kind": "drill", "source_id": "drl_1"}
    placements.hold(**hold)
    done = drive(move(tiers))
    assert (done.problem_code, tiers.placement(10).leaving) == ("source_stays", "")
    placements.release(**hold)
    placements.hold(**hold)


@pytest.mark.django_db(transaction=True)
def test_of_a_hold_and_a_removal_at_once_exactly_one_wins(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal looks for holds while a drill's transaction has written one and not committed it yet."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite lets one writer in at a time")
    tiers.save(10, 20)
    transfer = drive_to_retiring(move(tiers))
    looking = threading.Event()
    real = placements.begin_leaving

    def begin(**asked: Any) -> None:
        looking.set()
        real(**asked)

    monkeypatch.setattr(placements, "begin_leaving", begin)
    remover = threading.Thread(target=work_and_close, args=(transfer.pk,))
    with transaction.atomic():
        placements.hold(placement=tiers.placement(10), source_kind="drill", source_id="drl_1")
        remover.start()
        assert looking.wait(10)
    remover.join(20)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.problem_code) == ("done", "source_stays"), transfer.problem
    assert tiers.path(10).is_dir()


def drive_to_retiring(transfer: Transfer) -> Transfer:
    with pytest.MonkeyPatch.context() as stopped:

        def stop(*_args: Any) -> None:
            raise moving.slices.SliceEnded("here")

        stopped.setattr(moving, "removal_of", stop)
        moving.work(transfer.pk)
    transfer.refresh_from_db()
    assert transfer.state == "retiring"
    return transfer


def work_and_close(transfer_id: str) -> None:
    try:
        moving.work(transfer_id)
    finally:
        connection.close()
