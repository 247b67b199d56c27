"""What `muster verify` and `muster reload` find reaches `muster resume-point` without a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.formats.detect import files_of, inventory, read_checkpoint
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.jobs.seal import seal
from muster_agent.manifest.beside import read_beside

from tests.agent.checkpoint_factory import safetensors_bytes, write_checkpoint
from tests.agent.formats.damage import age

SHARD = "rank-00001-of-00002.safetensors"


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_SERVER", raising=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (10, 20):
        folder = write_checkpoint(tmp_path / "run", step, world_size=2, rank_bytes=60_000)
        assert seal(str(folder)).manifest is not None
    return tmp_path / "run"


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


def point(run: Path, *arguments: str) -> dict[str, Any]:
    answer = json.loads(muster("resume-point", run, *arguments, "--json").stdout)
    assert isinstance(answer, dict)
    return answer


def newest(run: Path) -> Path:
    return run / "step-00000020"


def rot(folder: Path) -> None:
    """Change bytes as a failing disk does: size and time stay."""
    shard = folder / SHARD
    seen = shard.stat()
    with open(shard, "r+b") as file:
        file.seek(2000)
        file.write(b"\xff\x00\xff\x00")
    os.utime(shard, ns=(seen.st_atime_ns, seen.st_mtime_ns))


@pytest.mark.parametrize("command", [["verify"], ["reload"], ["reload", "--rank", "1"], ["reload", "--no-evict"]])
def test_the_step_that_was_found_damaged_is_not_named_again(run: Path, command: list[str]) -> None:
    rot(newest(run))
    assert point(run)["step"] == 20
    assert muster(command[0], newest(run), *command[1:]).exit_code == 7
    answer = point(run)
    assert answer["step"] == 10
    (passed_over,) = answer["skipped"]
    assert passed_over["step"] == 20 and SHARD in passed_over["reasons"][0] and "differ" in passed_over["reasons"][0]


def test_a_full_verification_meets_the_requirement_verified(run: Path) -> None:
    assert muster("resume-point", run, "--require", "verified").exit_code == 3
    assert muster("verify", newest(run)).exit_code == 0
    answer = point(run, "--require", "verified")
    assert (answer["step"], answer["trust"], answer["source"]) == (20, "verified", "disk+manifest")


def test_neither_a_sample_nor_one_rank_meets_it(run: Path) -> None:
    assert muster("verify", newest(run), "--sample", "0.5").exit_code == 0
    assert muster("reload", newest(run), "--rank", "0").exit_code == 0
    assert point(run)["trust"] == "sealed"


def test_bytes_from_the_page_cache_prove_nothing_about_the_storage(run: Path) -> None:
    done = muster("reload", newest(run), "--backend", "host_buffered", "--no-evict", "--json")
    report = json.loads(done.stdout)
    if report["cache_state"] == "cold":
        pytest.skip("this file system keeps nothing in the page cache")
    assert report["verified"] is True
    assert not (newest(run) / ".muster-verify.json").exists()


def test_a_repaired_checkpoint_is_cleared_by_verifying_it_again(run: Path) -> None:
    good = (newest(run) / SHARD).read_bytes()
    times = (newest(run) / SHARD).stat()
    rot(newest(run))
    muster("verify", newest(run))
    (newest(run) / SHARD).write_bytes(good)
    os.utime(newest(run) / SHARD, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert point(run)["step"] == 10
    assert muster("verify", newest(run)).exit_code == 0
    assert (point(run)["step"], point(run)["trust"]) == (20, "verified")


def test_files_written_anew_are_not_judged_by_the_old_verdict(run: Path) -> None:
    rot(newest(run))
    muster("verify", newest(run))
    os.utime(newest(run) / SHARD, (5, 5))
    assert (point(run)["step"], point(run)["trust"]) == (20, "complete")


def test_no_write_leaves_nothing(run: Path) -> None:
    for command in ("verify", "reload"):
        assert muster(command, newest(run), "--no-write").exit_code == 0
    assert not list(run.rglob("*muster-verify*"))


def test_a_folder_that_is_not_writable_gives_a_message_and_the_same_exit_code(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("muster_agent.storage.small_files.PosixFiles.replace", refuse)
    done = muster("verify", newest(run))
    assert done.exit_code == 0 and "unchanged since sealing" in done.stdout
    assert "cannot be written (Permission denied)" in done.stderr


def test_a_verdict_that_is_not_understood_is_named_and_left_aside(run: Path) -> None:
    (newest(run) / ".muster-verify.json").write_text("{")
    done = muster("resume-point", run)
    assert done.exit_code == 0 and done.stdout.startswith("Resume from step 20")
    assert ".muster-verify.json is not understood" in done.stderr and "what to do" in done.stderr


def test_the_verdict_is_no_part_of_a_folder_checkpoint(run: Path) -> None:
    before = read_checkpoint(newest(run))
    assert muster("verify", newest(run)).exit_code == 0 and (newest(run) / ".muster-verify.json").exists()
    after = read_checkpoint(newest(run))
    assert after == before and fingerprint(files_of(after)) == fingerprint(files_of(before))
    manifest = read_beside(str(newest(run)))
    assert seal(str(newest(run))).manifest == manifest


def test_the_verdict_is_no_part_of_a_single_file_nor_of_its_folder(tmp_path: Path) -> None:
    tensors = {"model.w": bytes(range(64)), "optimizer.w": bytes(64)}
    for step in (1, 2):
        (tmp_path / f"model-step-{step}.safetensors").write_bytes(safetensors_bytes(tensors))
    single = tmp_path / "model-step-2.safetensors"
    before = inventory(tmp_path).checkpoints
    assert seal(str(single)).manifest is not None
    assert muster("verify", single).exit_code == 0
    assert (tmp_path / "model-step-2.safetensors.muster-verify.json").exists()
    assert inventory(tmp_path).checkpoints == before
    assert (point(tmp_path)["step"], point(tmp_path)["trust"]) == (2, "verified")


def test_inventory_and_explain_say_the_damage_that_verify_found(tmp_path: Path) -> None:
    """All commands agree with the one that read the bytes, though every size and time is as it was sealed."""
    place = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=60_000)
    age(place)
    assert muster("seal", place).exit_code == 0
    text = muster("inventory", tmp_path / "run").stdout
    assert " sealed " in text and "complete" in text
    flip_one_byte(place / "rank-00001-of-00002.safetensors")
    assert muster("verify", place).exit_code == 7
    (one,) = json.loads(muster("inventory", tmp_path / "run", "--json").stdout)
    assert (one["status"], one["resumable"]) == ("corrupt", False)
    (found,) = [each for each in one["findings"] if each["code"] == "digest_mismatch"]
    assert "rank-00001-of-00002.safetensors" in found["detail"] and found["severity"] == "damage"
    for path in (tmp_path / "run", place):
        assert muster("inventory", path, "--fail-on", "damage").exit_code == 7
    told = muster("explain", place).stdout
    assert "Corrupt:" in told and "digest_mismatch" in told and "It is damaged." in told
    answer = json.loads(muster("resume-point", tmp_path / "run", "--json").stdout)
    assert answer["outcome"] == "nothing_resumable" and "an audit found damage" in answer["skipped"][0]["reasons"][0]


def test_inventory_shows_what_is_verified(tmp_path: Path) -> None:
    place = write_checkpoint(tmp_path / "run", 10, world_size=2, rank_bytes=60_000)
    assert muster("seal", place).exit_code == 0 and muster("verify", place).exit_code == 0
    assert " verified " in muster("inventory", tmp_path / "run").stdout


def flip_one_byte(path: Path) -> None:
    seen = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
