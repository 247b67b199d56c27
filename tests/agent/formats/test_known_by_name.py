"""What could not be looked at is listed as such: a run whose steps are links to another disk is no empty run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from muster_agent.cli import main
from muster_agent.formats.base import Status
from muster_agent.formats.finder import MAX_DEPTH
from muster_agent.formats.safetensors import MAX_JSON_VALUES, decode_json
from muster_agent.formats.walk import inventory

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age, copy_sample


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Steps 100 and 200 on another disk, and a run's folder that links to them."""
    for step in (100, 200):
        write_checkpoint(tmp_path / "store", step, rank_bytes=300, world_size=2)
    age(tmp_path / "store")
    (tmp_path / "out").mkdir()
    return tmp_path / "store"


def _link(store: Path, *steps: int) -> Path:
    out = store.parent / "out"
    for step in steps:
        os.symlink(store / f"step-{step:08d}", out / f"step-{step:08d}")
    return out


def test_steps_behind_links_that_leave_the_place_are_unreadable_not_absent(store: Path) -> None:
    found = inventory(_link(store, 100, 200), grace_seconds=0)
    assert [(one.step, one.status) for one in found.checkpoints] == [(200, Status.UNREADABLE), (100, Status.UNREADABLE)]
    assert [one.findings[0].code for one in found.checkpoints] == ["link_escapes_root"] * 2
    assert "link_escapes_root" not in {one.code for one in found.findings}


def test_a_run_of_such_links_never_looks_as_if_it_had_never_saved(store: Path) -> None:
    done = CliRunner().invoke(main, ["resume-point", str(_link(store, 100, 200))])
    assert done.exit_code == 1
    assert "only if this run never saved" not in done.stderr + done.stdout


def test_a_newer_step_behind_such_a_link_is_named_when_an_older_one_is_chosen(store: Path) -> None:
    out = _link(store, 200)
    write_checkpoint(out, 100, rank_bytes=300, world_size=2)
    age(out)
    done = CliRunner().invoke(main, ["resume-point", str(out)])
    assert "step 200" in done.stdout and "could not be read" in done.stdout


def test_a_broken_link_named_like_a_step_or_a_file_of_one_is_listed_too(store: Path) -> None:
    out = store.parent / "out"
    os.symlink("gone", out / "step-300")
    os.symlink("gone.pt", out / "step_400.pt")
    found = inventory(out, grace_seconds=0).checkpoints
    assert [(one.step, one.status, one.findings[0].code) for one in found] == [
        (400, Status.UNREADABLE, "link_broken"),
        (300, Status.UNREADABLE, "link_broken"),
    ]


def test_folders_too_deep_to_look_at_are_named(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("run", *["level"] * (MAX_DEPTH + 1))
    write_checkpoint(deep, 5, rank_bytes=300, world_size=2)
    found = inventory(tmp_path / "run", grace_seconds=0)
    assert found.checkpoints == ()
    assert [(one.code, one.path.count("level")) for one in found.findings] == [("listing_failed", MAX_DEPTH + 1)]
    near = tmp_path.joinpath("other", *["level"] * (MAX_DEPTH - 1))
    write_checkpoint(near, 5, rank_bytes=300, world_size=2)
    assert [one.step for one in inventory(tmp_path / "other", grace_seconds=0).checkpoints] == [5]


def test_findings_about_a_place_have_whole_paths(store: Path) -> None:
    out = store.parent / "out"
    os.symlink("/", out / "elsewhere")
    (found,) = inventory(out, grace_seconds=0).findings
    assert (found.code, found.path) == ("link_escapes_root", str(out / "elsewhere"))


def test_refused_metadata_says_nothing_of_the_bytes_whatever_else_was_refused(tmp_path: Path) -> None:
    """A second file that asks for code must not make a checkpoint without its data look whole."""
    hostile = copy_sample("hostile/dcp-metadata-os-system", tmp_path) / "step-10"
    run = copy_sample("megatron/torch_dist", tmp_path)
    step = run / "iter_0000200"
    (step / ".metadata").write_bytes((hostile / ".metadata").read_bytes())
    (step / "common.pt").write_bytes(_unsafe_zip())
    for file in step.glob("*.distcp"):
        file.unlink()
    age(run)
    (found,) = [one for one in inventory(run, grace_seconds=0).checkpoints if one.step == 200]
    assert found.status in (Status.UNREADABLE, Status.INCOMPLETE, Status.CORRUPT)
    assert not found.resumable


def _unsafe_zip() -> bytes:
    return (Path(__file__).resolve().parents[2] / "data" / "hostile" / "reduce-eval.pt").read_bytes()


def test_small_json_that_would_take_gigabytes_is_refused_at_once() -> None:
    bomb = b"[" + b"[]," * (MAX_JSON_VALUES // 2) + b"[]]"
    began = time.process_time()
    with pytest.raises(ValueError, match="more than"):
        decode_json(bomb)
    assert time.process_time() - began < 5
    assert decode_json(b'{"a": [1, 2]}') == {"a": [1, 2]}


def test_files_named_like_deepspeeds_that_hold_nothing_of_it_are_no_checkpoint(tmp_path: Path) -> None:
    tag = copy_sample("deepspeed/zero0-fp32", tmp_path) / "global_step4"
    (model,) = tag.glob("mp_rank_*_model_states.pt")
    foreign = Path(__file__).resolve().parents[2] / "data" / "torch" / "zip.pt"
    model.write_bytes(foreign.read_bytes())
    age(tag)
    (found,) = [one for one in inventory(tag.parent, grace_seconds=0).checkpoints if one.step == 4]
    assert found.status is Status.CORRUPT and not found.resumable
