"""`muster reload --compare`: real loaders where an interpreter has them, honest rows where it has not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.cli.compare import INSTALL, SECONDS_PER_LOADER
from muster_agent.jobs.seal import seal
from muster_agent.protocol.wire import TaskKind

from tests.agent.checkpoint_factory import write_checkpoint

MIB = 1 << 20
PEERS = os.environ.get("MUSTER_COMPARE_PYTHON", sys.executable)
"""An interpreter with torch and safetensors, where one is named."""


@pytest.fixture(autouse=True)
def no_interpreter_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_COMPARE_PYTHON", raising=False)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "run", 1, world_size=2, rank_bytes=MIB)
    assert seal(str(folder)).manifest is not None
    return folder


def _compare(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["reload", str(path), "--compare", *arguments])


def _rows(result: Result) -> dict[str, dict[str, object]]:
    return {row["loader"]: row for row in json.loads(result.stdout)["rows"]}


def test_a_plain_reader_stands_beside_ours_over_the_same_bytes(checkpoint: Path) -> None:
    result = _compare(checkpoint, "plain", "--json")
    assert result.exit_code == 0, result.stderr
    rows = _rows(result)
    assert rows["plain"]["bytes"] == rows["plain"]["resident_bytes"] == rows["muster"]["bytes"] > 2 * MIB
    assert rows["muster"]["verified"] is rows["muster_resident"]["verified"] is True
    assert rows["muster"]["resident_bytes"] == 0 and rows["muster_resident"]["resident_bytes"]
    for row in rows.values():
        assert row["outcome"] == "ran" and row["seconds"] and row["bytes_per_second"]
        assert row["cpu_seconds_per_gigabyte"] is not None and "cached_ratio_before" in row


def test_the_table_is_for_people_and_says_what_it_means(checkpoint: Path) -> None:
    result = _compare(checkpoint, "plain")
    for text in ("muster, verified and kept", "plain", "CPU s/GB", "left resident", "One run each"):
        assert text in result.stdout
    assert "unpickle" not in result.output


def _without_site(tmp_path: Path) -> str:
    """An interpreter that has no package at all."""
    program = tmp_path / "bare-python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_a_loader_that_is_not_installed_says_how_to_install_it(checkpoint: Path, tmp_path: Path) -> None:
    python = _without_site(tmp_path)
    result = _compare(checkpoint, "torch,plain", "--compare-python", python)
    assert result.exit_code == 1
    assert f"not installed: {python} -m pip install torch" in result.stdout
    assert "did not run: torch" in result.stderr
    assert "weights_only=True" in result.stderr, "that such loaders unpickle is said before one starts"


def test_the_interpreter_may_come_from_the_environment(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_COMPARE_PYTHON", _without_site(tmp_path))
    rows = _rows(_compare(checkpoint, "safetensors", "--json"))
    assert rows["safetensors"]["outcome"] == "missing"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("exit 3\n", "ended with 3: it said nothing"),
        ("echo boom >&2; exit 1\n", "ended with 1: boom"),
        ("echo '{}'\n", "ended with 0"),
        ("echo '{\"outcome\": 5}'\n", "makes no sense"),
    ],
)
def test_an_interpreter_that_misbehaves_is_a_row_and_no_traceback(
    checkpoint: Path, tmp_path: Path, body: str, says: str
) -> None:
    program = tmp_path / "odd-python"
    program.write_text("#!/bin/sh\n" + body)
    program.chmod(0o755)
    result = _compare(checkpoint, "plain", "--compare-python", str(program))
    assert result.exit_code == 1 and says in result.stdout


def test_an_interpreter_that_is_not_there_is_told(checkpoint: Path) -> None:
    result = _compare(checkpoint, "plain", "--compare-python", "/nonexistent/python")
    assert "/nonexistent/python could not be started: No such file or directory" in result.stdout


def test_unknown_loaders_and_halves_of_a_checkpoint_are_refused(checkpoint: Path) -> None:
    result = _compare(checkpoint, "torch,tensorflow")
    assert result.exit_code == 2 and "no loader 'tensorflow'" in result.stderr and "safetensors" in result.stderr
    assert _compare(checkpoint, "plain", "--rank", "0").exit_code == 2
    assert _compare(checkpoint, " , ").exit_code == 2


def test_an_agent_compares_only_with_the_loader_that_its_administrator_named() -> None:
    assert [kind for kind in TaskKind if "compare" in kind.value] == [TaskKind.LOADER_COMPARE]
    assert SECONDS_PER_LOADER > 0 and set(INSTALL) == {"torch", "torch_mmap", "dcp", "safetensors", "plain"}


WRITE = """
import sys, torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
folder = sys.argv[1]
state = {f"layer.{i}.weight": torch.randn(256, 512).to(torch.bfloat16) for i in range(8)}
torch.save({"model": state, "step": 7}, folder + "/model.pt")
save_file(state, folder + "/model.safetensors")
dcp.save(state, checkpoint_id=folder + "/dcp", no_dist=True)
"""
STATE_BYTES = 8 * 256 * 512 * 2


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One state saved by the real libraries in three formats."""
    folder = tmp_path_factory.mktemp("peers")
    done = subprocess.run([PEERS, "-c", WRITE, str(folder)], capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        pytest.skip(
            f"REAL LOADERS WERE NOT TRIED: name a Python with torch and safetensors in MUSTER_COMPARE_PYTHON, since "
            f"{PEERS} has none: {done.stderr.strip().splitlines()[-1]}"
        )
    return folder


@pytest.mark.parametrize(
    ("name", "loaders"),
    [("model.safetensors", "safetensors"), ("model.pt", "torch,torch_mmap"), ("dcp", "dcp")],
)
def test_the_real_libraries_load_the_same_files(peers: Path, name: str, loaders: str) -> None:
    result = _compare(peers / name, loaders, "--compare-python", PEERS, "--json")
    assert result.exit_code == 0, result.output
    rows = _rows(result)
    for loader in loaders.split(","):
        row = rows[loader]
        assert row["outcome"] == "ran" and STATE_BYTES <= int(str(row["resident_bytes"])) < 2 * STATE_BYTES
        assert int(str(row["bytes"])) >= STATE_BYTES and str(row["version"])[0] in "ts"
    assert rows["muster"]["outcome"] == rows["muster_resident"]["outcome"] == "ran"


def test_a_loader_is_not_forced_onto_a_format_it_does_not_read(peers: Path) -> None:
    result = _compare(peers / "model.safetensors", "dcp,torch", "--compare-python", PEERS)
    assert "does not read this: there is no .metadata of torch.distributed.checkpoint" in result.stdout
    assert "does not read this: there is no file of torch.save" in result.stdout
    assert result.exit_code == 1


HOSTILE = """
import os, pickle, sys
class Evil:
    def __reduce__(self):
        return os.mkdir, (sys.argv[2],)
import torch
torch.save({"model": Evil()}, sys.argv[1])
"""


def test_torch_is_held_to_its_allow_list(peers: Path, tmp_path: Path) -> None:
    target, marker = tmp_path / "evil.pt", tmp_path / "owned"
    subprocess.run([PEERS, "-c", HOSTILE, str(target), str(marker)], check=True, cwd=tmp_path, capture_output=True)
    result = _compare(target, "torch", "--compare-python", PEERS)
    assert result.exit_code != 0 and not marker.exists()
