from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import explain_beside, main
from muster_agent.formats.checkpoint import read_checkpoint

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import copy_sample


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (10, 20):
        write_checkpoint(tmp_path / "run-a", step, rank_bytes=300, world_size=2)
    return tmp_path / "run-a"


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, arguments)], catch_exceptions=False)


def test_one_checkpoint_is_explained_with_each_heading_once(run: Path) -> None:
    done = muster(run / "step-00000020")
    lines = done.stdout.splitlines()
    assert (done.exit_code, lines[0]) == (0, str(run / "step-00000020"))
    assert [line for line in lines if line and not line.startswith(" ")][1:] == [
        *("Format", "Step", "Ranks", "Shards", "Commit marker", "Findings", "Status", "Resumable", "Other steps")
    ]


def test_the_same_is_given_as_json(run: Path) -> None:
    body = json.loads(muster(run / "step-00000020", "--json").stdout)
    assert (body["step"], body["status"]) == (20, "complete")
    assert {"heading": "Findings", "sentence": "None."} in body["explanation"]


def test_a_damaged_one_is_explained_and_exits_0(run: Path) -> None:
    (run / "step-00000020" / "rank-00001-of-00002.safetensors").write_bytes(b"\0" * 10)
    done = muster(run / "step-00000020")
    assert done.exit_code == 0 and "Corrupt: a file is there and contradicts" in done.stdout


@pytest.mark.parametrize(("name", "code"), [("", 2), ("nowhere", 3)])
def test_several_or_none_are_refused_with_what_to_do(run: Path, name: str, code: int) -> None:
    done = muster(run / name if name else run)
    assert (done.exit_code, done.stdout) == (code, "") and "what to do" in done.stderr


def test_a_folder_without_a_checkpoint_exits_3(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert muster(tmp_path / "empty").exit_code == 3


def test_a_name_from_disk_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    place = write_checkpoint(tmp_path / "a\nStatus\n  complete", 10, rank_bytes=300, world_size=1)
    done = muster(place)
    assert done.stdout.splitlines()[0] == str(place).replace("\n", "\\n")


def test_what_the_other_steps_say_of_it_is_explained_too(run: Path) -> None:
    shutil.copytree(run / "step-00000020", run / "step-20")
    done = muster(run / "step-20")
    assert "warning duplicate_step: " in done.stdout
    assert "step-00000020 in the same folder claims step 20 too" in done.stdout
    assert f"Compared with the 2 other steps in {run}." in done.stdout


def test_where_steps_are_many_it_says_that_it_looked_at_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_beside, "MOST_STEPS", 1)
    assert f"Only this checkpoint was looked at; `muster inventory {run}`" in muster(run / "step-00000020").stdout
    monkeypatch.undo()
    shutil.rmtree(run / "step-00000010")
    assert "There is no other step in its folder" in muster(run / "step-00000020").stdout


def test_the_rules_of_its_folder_hold_for_it(run: Path) -> None:
    (run / ".muster-rules.json").write_text('{"rules": [{"match": "step-*", "requires": ["orchestrator"]}]}')
    assert "the path rule 'step-*' requires orchestrator" in muster(run / "step-00000020").stdout


def test_a_whole_file_that_would_run_code_is_not_called_undamaged(tmp_path: Path) -> None:
    told = muster(copy_sample("hostile", tmp_path) / "reduce-eval.pt").stdout
    assert "metadata_unsafe" in told and "nothing that is there is damaged" not in told
    assert "must not be loaded" in told


def test_a_format_is_introduced_with_its_article_and_what_must_match_in_words(tmp_path: Path) -> None:
    told = muster(write_checkpoint(tmp_path, 10, rank_bytes=300, world_size=2)).stdout
    assert "safetensors: a set of safetensors files, recognised by" in told
    assert "must have as many ranks." in told and "world_size" not in told
    assert (
        "an Accelerate state" in muster(copy_sample("huggingface/accelerate-single", tmp_path) / "checkpoint_0").stdout
    )


def test_its_tensors_are_listed_with_the_bytes_they_lie_in_and_found_by_name(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "run", 10, rank_bytes=600, world_size=2)
    done = CliRunner().invoke(main, ["explain", str(folder), "--tensors"])
    expected = read_checkpoint(folder).tensors
    assert done.exit_code == 0 and f"{len({one.name for one in expected})} tensors" in done.stdout
    for one in expected:
        end = one.offset_bytes + one.length_bytes
        assert f"{one.name}  {one.dtype} " in done.stdout
        assert f"{one.shard} bytes {one.offset_bytes:,} to {end:,}" in done.stdout
    wanted = expected[0].name
    found = CliRunner().invoke(main, ["explain", str(folder), "--tensors", "--match", wanted, "--json"])
    tensors = json.loads(found.stdout)["tensors"]
    assert {one["name"] for one in tensors} == {one.name for one in expected if wanted in one.name}
    assert tensors[0].keys() >= {"name", "shard", "offset_bytes", "length_bytes", "dtype", "shape", "role"}
    none = CliRunner().invoke(main, ["explain", str(folder), "--tensors", "--match", "no such"])
    assert "None has 'no such' in its name." in none.stdout
    assert "tensors" not in json.loads(CliRunner().invoke(main, ["explain", str(folder), "--json"]).stdout)
