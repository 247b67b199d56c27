"""`muster seal` as a user meets it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.formats.detect import read_checkpoint
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside
from muster_agent.manifest.model import manifest_id

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age, copy_sample


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=60_000)


def test_sealing_says_what_was_sealed_and_where_the_manifest_is(checkpoint: Path) -> None:
    done = muster("seal", checkpoint)
    assert done.exit_code == 0 and done.stderr == ""
    manifest = read_beside(str(checkpoint))
    assert manifest is not None
    assert manifest_id(manifest) in done.stdout and ".muster-manifest.json" in done.stdout


def test_json_names_the_manifest_and_no_write_leaves_the_folder_alone(checkpoint: Path) -> None:
    before = sorted(os.listdir(checkpoint))
    done = muster("seal", checkpoint, "--no-write", "--json")
    result = json.loads(done.stdout)
    assert done.exit_code == 0 and sorted(os.listdir(checkpoint)) == before
    assert result["manifest_path"] is None and len(result["manifest_id"]) == 64
    assert (result["step"], result["shard_count"], result["findings"]) == (10, 3, [])


def test_the_checksum_list_is_printed_alone(checkpoint: Path) -> None:
    done = muster("seal", checkpoint, "--checksums")
    names = [line.split("  ", 1)[1] for line in done.stdout.splitlines()]
    assert names == ["checkpoint.json", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"]


def test_an_incomplete_checkpoint_is_refused_with_exit_7(checkpoint: Path) -> None:
    (checkpoint / "rank-00000-of-00002.safetensors").unlink()
    done = muster("seal", checkpoint)
    assert done.exit_code == 7 and done.stdout == ""
    assert "shard_missing" in done.stderr and "what to do" in done.stderr
    assert read_beside(str(checkpoint)) is None


def test_a_path_that_is_not_there_is_exit_3(tmp_path: Path) -> None:
    done = muster("seal", tmp_path / "gone")
    assert done.exit_code == 3 and "there is no checkpoint at" in done.stderr


def test_a_folder_that_cannot_be_written_is_a_clear_error(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from muster_agent.storage import small_files

    def full(**_options: object) -> tuple[int, str]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(small_files.tempfile, "mkstemp", full)
    done = muster("seal", checkpoint)
    assert done.exit_code == 1
    assert "No space left on device" in done.stderr and "--no-write" in done.stderr


@pytest.mark.parametrize("threads", [1, 4])
def test_bytes_that_differ_from_the_sums_of_their_own_format_are_not_sealed(tmp_path: Path, threads: int) -> None:
    place = copy_sample("dcp/w2/step-10", tmp_path)
    assert seal(str(place), threads=threads, write_beside=False).manifest is not None
    data = bytearray((place / "__1_0.distcp").read_bytes())
    tensor = next(
        one for one in read_checkpoint(place).tensors if one.shard == "__1_0.distcp" and one.dtype != "object"
    )
    data[tensor.offset_bytes] ^= 1
    (place / "__1_0.distcp").write_bytes(data)
    age(place)
    done = muster("seal", place)
    assert done.exit_code == 7 and "digest_mismatch" in done.stderr and "__1_0.distcp" in done.stderr
    assert read_beside(str(place)) is None


def test_what_would_run_code_when_it_is_loaded_gets_no_seal(tmp_path: Path) -> None:
    place = copy_sample("hostile", tmp_path) / "reduce-eval.pt"
    done = muster("seal", place)
    assert done.exit_code == 7 and done.stdout == "" and "metadata_unsafe" in done.stderr
    assert read_beside(str(place)) is None
