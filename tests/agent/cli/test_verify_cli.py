"""`muster verify` as a user meets it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.jobs.seal import seal

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import copy_sample
from tests.agent.torch_factory import Tensor, torch_zip


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=5_000_000)
    assert seal(str(folder)).manifest is not None
    return folder


def flip(folder: Path, *, keep_time: bool = True) -> None:
    shard = folder / "rank-00001-of-00002.safetensors"
    before = shard.stat()
    with open(shard, "r+b") as file:
        file.seek(2000)
        file.write(b"\xff\x00\xff\x00")
    if keep_time:
        os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_an_unchanged_checkpoint_is_exit_0(sealed: Path) -> None:
    done = muster("verify", sealed)
    assert done.exit_code == 0 and done.stderr == ""
    assert "unchanged since sealing at" in done.stdout and "(5 of 5 chunks)" in done.stdout


def test_damage_is_exit_7_with_shard_range_tensor_and_cure(sealed: Path) -> None:
    flip(sealed)
    done = muster("verify", sealed)
    assert done.exit_code == 7 and "DAMAGED" in done.stdout
    assert "bytes 0 to 4194304 of rank-00001-of-00002.safetensors" in done.stderr
    assert "tensor model.layer1.weight" in done.stderr and "what to do" in done.stderr


def test_json_is_alone_on_stdout_with_damage_too(sealed: Path) -> None:
    flip(sealed)
    done = muster("verify", sealed, "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == 7 and result["verified"] is False
    (found,) = result["findings"]
    assert (found["code"], found["tensor"]) == ("digest_mismatch", "model.layer1.weight")


def test_a_file_written_again_since_the_seal_is_exit_1_with_what_to_do_and_a_new_seal_is_exit_0(sealed: Path) -> None:
    flip(sealed, keep_time=False)
    done = muster("verify", sealed)
    assert done.exit_code == 1 and "DAMAGED" not in done.stdout
    assert "written again since sealing at" in done.stdout
    assert "was written again since it was sealed" in done.stderr and "`muster seal`" in done.stderr
    result = json.loads(muster("verify", sealed, "--json").stdout)
    assert result["verified"] is None and [f["code"] for f in result["findings"]] == ["changed_since_sealing"]
    assert not (sealed / ".muster-verify.json").exists()
    assert muster("seal", sealed).exit_code == 0
    assert muster("verify", sealed).exit_code == 0


def test_a_sample_says_what_it_proves(sealed: Path) -> None:
    done = muster("verify", sealed, "--sample", "0.4", "--seed", "2")
    assert done.exit_code == 0
    assert "(2 of 5 chunks)" in done.stdout and "with a chance of 40.0%" in done.stdout


@pytest.mark.parametrize("ratio", ["0", "1.5", "-1", "x"])
def test_a_ratio_outside_its_range_is_a_usage_error(sealed: Path, ratio: str) -> None:
    assert muster("verify", sealed, "--sample", ratio).exit_code == 2


def test_a_checkpoint_that_was_never_sealed_says_how_to(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, world_size=1, rank_bytes=6000)
    done = muster("verify", folder)
    assert done.exit_code == 3 and "never sealed" in done.stderr and "muster seal" in done.stderr


def test_a_damaged_manifest_is_an_error_with_a_cure(sealed: Path) -> None:
    (sealed / ".muster-manifest.json").write_text("{")
    done = muster("verify", sealed)
    assert done.exit_code == 1 and "not understood" in done.stderr and "what to do" in done.stderr


def test_a_path_that_is_not_there_is_exit_3(tmp_path: Path) -> None:
    assert muster("verify", tmp_path / "gone").exit_code == 3


def test_an_unsealed_checkpoint_is_held_against_the_sums_of_its_own_format(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(torch_zip({"w": Tensor("0", (64, 64)), "step": 3}))
    sound = muster("verify", tmp_path / "model.pt")
    assert sound.exit_code == 3 and "never sealed" in sound.stderr and "agree with the check sums" in sound.stderr
    data = bytearray((tmp_path / "model.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "model.pt").write_bytes(data)
    done = muster("verify", tmp_path / "model.pt")
    assert done.exit_code == 7 and "digest_mismatch" in done.stderr and "data/0" in done.stderr
    assert json.loads(muster("verify", tmp_path / "model.pt", "--json").stdout)["verified"] is False


def test_a_checkpoint_that_shares_its_folder_is_sealed_and_verified_by_its_pattern(tmp_path: Path) -> None:
    session = copy_sample("nvrx-local", tmp_path) / "jobA"
    path = session / "{rank}" / "iter_0000020_{rank}_local.pt"
    assert muster("seal", path).exit_code == 0
    assert muster("verify", path).exit_code == 0
    shard = session / "1" / "iter_0000020_1_local.pt"
    seen, data = shard.stat(), bytearray(shard.read_bytes())
    data[800] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    done = muster("verify", path)
    assert done.exit_code == 7 and "1/iter_0000020_1_local.pt" in done.stderr
    assert muster("verify", session / "{rank}" / "iter_0000099_{rank}_local.pt").exit_code == 3
