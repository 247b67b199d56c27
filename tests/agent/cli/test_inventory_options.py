from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from muster_agent.cli import main
from muster_agent.formats.scan_reading import Reading

from tests.agent.checkpoint_factory import write_checkpoint


def test_a_second_inventory_with_a_cache_says_the_same(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run", 10, rank_bytes=300, world_size=2)
    command = ["inventory", str(tmp_path / "run"), "--json", "--grace", "0", "--cache", str(tmp_path / "cache")]
    first, second = (CliRunner().invoke(main, command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert json.loads(first.stdout) == json.loads(second.stdout) != []
    assert (tmp_path / "cache").exists()


def test_a_cache_that_is_something_else_is_said_and_left_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run", 10, rank_bytes=300, world_size=2)
    (tmp_path / "notes").write_text("mine")
    result = CliRunner().invoke(main, ["inventory", str(tmp_path / "run"), "--cache", str(tmp_path / "notes")])
    assert result.exit_code == 0
    assert "cache was not used" in result.stderr
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_young_unfinished_save_is_looked_at_twice_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "step-10").mkdir(parents=True)
    waits: list[float] = []
    monkeypatch.setattr(Reading, "_wait", lambda _self, until: waits.append(until))
    assert CliRunner().invoke(main, ["inventory", str(tmp_path / "run"), "--settle", "0"]).exit_code == 0
    assert waits == []
    assert CliRunner().invoke(main, ["inventory", str(tmp_path / "run")]).exit_code == 0
    assert len(waits) == 1
