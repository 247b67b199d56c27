from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
from muster_agent.formats.detect import RootUnreadable
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.inventory import run_inventory
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import InventoryBody, InventoryParams

from tests.agent.checkpoint_factory import write_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-a"
    for step in (10, 20):
        write_checkpoint(folder, step, rank_bytes=300, world_size=2)
    return folder


def test_manifests_beside_the_data_come_with_the_inventory(run: Path) -> None:
    sealed = seal(str(run / "step-00000010")).manifest
    (run / "latest").write_text("20")
    body = run_inventory(InventoryParams(root=str(run)))
    assert [one.step for one in body.checkpoints] == [20, 10]
    assert body.manifests == {str(run / "step-00000010"): sealed}
    assert [one.step for one in body.pointers] == [20]


def test_a_damaged_manifest_is_a_finding_and_hides_nothing(run: Path) -> None:
    (run / "step-00000010" / ".muster-manifest.json").write_text("{")
    body = run_inventory(InventoryParams(root=str(run)))
    assert (len(body.checkpoints), body.manifests) == (2, {})
    assert [one.code for one in body.findings] == ["metadata_unreadable"]


def test_the_body_survives_the_wire(run: Path) -> None:
    body = run_inventory(InventoryParams(root=str(run)))
    assert msgspec.json.decode(msgspec.json.encode(body), type=InventoryBody) == body


def test_a_root_that_is_gone_is_an_error_and_never_an_empty_inventory(tmp_path: Path) -> None:
    with pytest.raises(RootUnreadable):
        run_inventory(InventoryParams(root=str(tmp_path / "unmounted")))


def test_it_stops_when_told_to(run: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        run_inventory(InventoryParams(root=str(run)), JobControl(cancel=stop))
