"""A save fails where one storage target is full, however much the others have left."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from muster_agent.formats import walk
from muster_agent.formats.target_space import target_findings
from muster_agent.formats.walk import Inventory, inventory
from muster_agent.probes.lustre_space import TargetSpace, read_target_spaces

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age
from tests.agent.probes.test_lustre_space import client

GIB = 1 << 30


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    for step in (10, 20):
        write_checkpoint(run, step, world_size=2, rank_bytes=step * 60_000)
    age(run)
    return run


def spaces(*free_bytes: int) -> list[TargetSpace]:
    return [TargetSpace(f"scratch-OST{number:04x}", 20 * GIB, free) for number, free in enumerate(free_bytes)]


def found_with(run: Path, targets: list[TargetSpace], stripes: int | None = 1) -> list[str]:
    checkpoints = inventory(run).checkpoints
    return [one.detail for one in target_findings(str(run), checkpoints, targets, lambda _path: stripes)]


def test_one_full_target_is_named_although_the_file_system_has_room(run: Path) -> None:
    (detail,) = found_with(run, spaces(15 * GIB, 100_000, 15 * GIB))
    assert "1 of 3 storage targets" in detail and "scratch-OST0001 (0.0 GiB left)" in detail
    assert "30.0 GiB" in detail and str(run / "step-00000020") in detail


def test_nothing_is_said_while_each_target_takes_a_file_like_the_last_ones(run: Path) -> None:
    assert found_with(run, spaces(15 * GIB, 10 * 1024 * 1024)) == []


def test_a_file_in_stripes_puts_only_its_share_onto_each_target(run: Path) -> None:
    half = 1_200_000 // 2
    assert found_with(run, spaces(GIB, half + 100_000), stripes=2) == []
    assert len(found_with(run, spaces(GIB, half + 100_000), stripes=None)) == 1


def test_without_a_whole_checkpoint_or_targets_there_is_nothing_to_go_by(run: Path) -> None:
    assert found_with(run, []) == []
    for marker in run.glob("*/checkpoint.json"):
        marker.unlink()
    assert found_with(run, spaces(0, 0)) == []


def test_an_inventory_warns_before_the_next_save(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a save on a full target is what such a run leaves; the next one would end the same way."""
    client(tmp_path, {"scratch-OST0000": (100, 40), "scratch-OST0001": (100, 0)})
    (tmp_path / "mounts").write_text(f"10.0.0.5@tcp:/scratch {tmp_path} lustre rw 0 0\n")
    told = partial(read_target_spaces, mounts=str(tmp_path / "mounts"), kept=[str(tmp_path / "osc")])
    monkeypatch.setattr(walk, "read_target_spaces", told)
    assert _codes(inventory(run)) == {"target_full"}


def test_on_any_other_file_system_nothing_is_said(run: Path) -> None:
    assert _codes(inventory(run)) == set()


def _codes(found: Inventory) -> set[str]:
    return {one.code for one in found.findings}
