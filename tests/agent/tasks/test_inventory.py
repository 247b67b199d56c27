"""Task kind `inventory`: what leaves the node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from muster_agent.jobs.control import JobControl
from muster_agent.protocol.wire import InventoryParams
from muster_agent.tasks import inventory
from muster_agent.tasks.context import TaskContext, TaskFailed
from muster_agent.tasks.limits import Limits
from muster_agent.tasks.roots import Roots

from tests.agent.checkpoint_factory import write_checkpoint


class Silent:
    """A reporter that nobody listens to."""

    def begin(self, phase: str) -> None: ...

    def end(self, phase: str) -> None: ...

    def log(self, message: str) -> None: ...

    def injected(self, at_unix_seconds: float, mono_seconds: float, data: dict[str, Any]) -> None: ...


@pytest.fixture
def context(tmp_path: Path) -> TaskContext:
    write_checkpoint(tmp_path / "run", 10, rank_bytes=300, world_size=2)
    return TaskContext(
        roots=Roots([str(tmp_path)]),
        copy_roots=Roots([]),
        limits=Limits(),
        control=JobControl(),
        reporter=Silent(),
        clock_offset_seconds=lambda: 0.0,
        hook_directory=None,
    )


def test_it_gives_what_lies_there_with_the_mark_of_the_root(context: TaskContext, tmp_path: Path) -> None:
    body = inventory.prepare(InventoryParams(root=str(tmp_path)), context)()
    assert isinstance(body, inventory.InventoryBody)
    assert [one.step for one in body.checkpoints] == [10] and (body.entries or 0) > 0
    assert body.root_mark is not None and body.root_mark.inode == tmp_path.stat().st_ino


def test_an_inventory_too_large_for_the_server_says_what_to_do_instead_of_waiting_for_ever(
    context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MAX_BODY_BYTES", 5000)
    with pytest.raises(TaskFailed, match="scan the folders below it one at a time") as failed:
        inventory.prepare(InventoryParams(root=str(tmp_path)), context)()
    assert failed.value.code == "result_too_large"


def test_a_root_that_is_not_there_is_told_apart(context: TaskContext, tmp_path: Path) -> None:
    with pytest.raises(TaskFailed) as failed:
        inventory.prepare(InventoryParams(root=str(tmp_path / "gone")), context)()
    assert failed.value.code == "root_unreadable"
