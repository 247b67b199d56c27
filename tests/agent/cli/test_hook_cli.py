"""`muster hook`, as an sbatch script calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.hooks.spool_reader import HookSpoolReader
from muster_agent.protocol.wire import HookRecord

IN_SLURM = {"SLURM_JOB_ID": "4711", "SLURM_RESTART_COUNT": "2"}


def call(folder: Path, *arguments: str, **environment: str) -> Result:
    env = {"MUSTER_HOOK_DIR": str(folder), "SLURM_JOB_ID": "", "SLURM_RESTART_COUNT": "", **environment}
    return CliRunner().invoke(main, ["hook", *arguments], env=env)


def records(folder: Path) -> list[HookRecord]:
    return HookSpoolReader(folder, state_path=folder / "offsets").read_new()


def test_a_failure_is_told_with_its_time_its_details_and_its_job(tmp_path: Path) -> None:
    words = ["failure-detected", "--run", "llm", "--at", "1796076553.25", "exit_code=137", "node=gpu-1"]
    assert call(tmp_path, *words, **IN_SLURM).exit_code == 0
    [record] = records(tmp_path)
    assert (record.kind, record.run, record.attempt) == ("failure_detected", "llm", "4711.2")
    assert record.at_unix_seconds == 1796076553.25
    assert record.data == {"job_id": "4711", "job_restart_count": 2, "exit_code": 137, "node": "gpu-1"}
    assert record.rank is None


def test_launches_and_phases_are_told_too_also_outside_slurm(tmp_path: Path) -> None:
    assert call(tmp_path, "launch-started", "--run", "llm", "--attempt", "a1").exit_code == 0
    assert call(tmp_path, "phase-began", "--phase", "stage", "--run", "llm", "--attempt", "a1").exit_code == 0
    assert call(tmp_path, "phase-ended", "--phase", "stage", "--run", "llm", "--attempt", "a1").exit_code == 0
    told = sorted(((one.kind, one.phase, one.edge, one.data) for one in records(tmp_path)), key=str)
    assert told == [
        ("launch_started", None, None, {}),
        ("phase", "stage", "begin", {}),
        ("phase", "stage", "end", {}),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["launch-started", "--run", "llm"], "the attempt needs a name"),
        (["launch-started", "--run", "llm", "--attempt", "a", "--phase", "read"], "--phase goes with"),
        (["phase-began", "--run", "llm", "--attempt", "a"], "--phase goes with"),
        (["launch-started", "--run", "llm", "--attempt", "a", "words"], "NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = call(tmp_path, *arguments)
    assert result.exit_code != 0
    assert said in result.output
    assert not tmp_path.exists() or records(tmp_path) == []


def test_a_restart_goes_on_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert call(tmp_path / "file", "launch-started", "--run", "llm", **IN_SLURM).exit_code == 0
