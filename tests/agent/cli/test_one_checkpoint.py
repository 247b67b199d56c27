"""Commands that take one checkpoint, given a folder of several."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.jobs.seal import seal

from tests.agent.checkpoint_factory import safetensors_bytes, write_checkpoint


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.mark.parametrize("command", ["seal", "verify", "reload"])
def test_a_folder_of_checkpoints_is_a_usage_error_that_names_one(tmp_path: Path, command: str) -> None:
    steps = [write_checkpoint(tmp_path / "run", step, world_size=1, rank_bytes=600) for step in (10, 20)]
    for place in (tmp_path / "run", tmp_path):
        done = muster(command, place)
        assert done.exit_code == 2 and done.stdout == ""
        assert "holds 2 checkpoints" in done.stderr and f"name one, such as {steps[1]}" in done.stderr


def test_one_checkpoint_inside_is_named_as_the_one(tmp_path: Path) -> None:
    step = write_checkpoint(tmp_path / "run", 10, world_size=1, rank_bytes=600)
    done = muster("seal", tmp_path / "run")
    assert done.exit_code == 2 and f"holds 1 checkpoint\n  what to do: name it, such as {step}" in done.stderr


def test_single_files_of_several_steps_are_checkpoints_each(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"model-step-{step}.safetensors").write_bytes(safetensors_bytes({"model.w": bytes(8)}))
    assert muster("seal", tmp_path).exit_code == 2
    assert muster("seal", tmp_path / "model-step-1.safetensors").exit_code == 0


def test_a_folder_of_loose_files_is_one_checkpoint_still(tmp_path: Path) -> None:
    for name in ("model", "optimizer"):
        (tmp_path / f"{name}.safetensors").write_bytes(safetensors_bytes({f"{name}.w": bytes(8)}))
    done = muster("seal", tmp_path)
    assert done.exit_code == 0 and ": 2 shards," in done.stdout


def test_one_shard_is_counted_as_one(tmp_path: Path) -> None:
    single = tmp_path / "model.safetensors"
    single.write_bytes(safetensors_bytes({"model.w": bytes(8)}))
    assert ": 1 shard," in muster("seal", single).stdout


def test_a_shard_name_that_was_mistyped_is_not_found_and_no_damage(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=600)
    for _ in range(2):
        done = muster("reload", folder, "--shards", "rank-00001-of-00002.safetensor")
        assert done.exit_code == 3 and "has no shard 'rank-00001-of-00002.safetensor'" in done.stderr
        assert "rank-00001-of-00002.safetensors" in done.stderr
        assert seal(str(folder)).manifest is not None


@pytest.mark.parametrize("sealed", [True, False])
def test_a_promised_shard_that_is_gone_is_damage_by_name_too(tmp_path: Path, sealed: bool) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=600)
    if sealed:
        assert seal(str(folder)).manifest is not None
    (folder / "rank-00001-of-00002.safetensors").unlink()
    done = muster("reload", folder, "--shards", "rank-00001-of-00002.safetensors")
    assert done.exit_code == 7 and "shard_missing" in done.stderr
