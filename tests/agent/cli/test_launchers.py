from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.cli.launchers import Launcher, launcher_text, misfit, needs_quoting
from muster_agent.decide.model import ResumeDecision

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age
from tests.agent.torch_factory import Tensor, torch_zip

AWKWARD = ["plain", "two words", "quote'\"", "$(touch x)", "`id`", "a\nb", "tab\there", "*", "模型", "-x", "a;b"]


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUSTER_SERVER", raising=False)


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["resume-point", *map(str, arguments)], catch_exceptions=False)


def found(path: str, step: int = 100) -> ResumeDecision:
    return ResumeDecision(outcome="found", path=path, step=step, status="complete", trust="complete")


def test_each_launcher_gets_its_own_words() -> None:
    at = found("/ckpt/run/iter_0000100")
    assert launcher_text(Launcher.PATH, at) == "/ckpt/run/iter_0000100"
    assert launcher_text(Launcher.MEGATRON, at) == "--load /ckpt/run --ckpt-step 100"
    assert (
        launcher_text(Launcher.DEEPSPEED, found("/ckpt/run/global_step4")) == "--load_dir /ckpt/run --tag global_step4"
    )
    assert (
        launcher_text(Launcher.HF, found("/ckpt/run/checkpoint-9")) == "--resume_from_checkpoint /ckpt/run/checkpoint-9"
    )


def test_megatron_is_given_the_number_in_the_name_by_which_it_builds_the_path() -> None:
    assert launcher_text(Launcher.MEGATRON, found("/run/iter_0000025", step=28)) == "--load /run --ckpt-step 25"


def test_what_a_launcher_would_not_find_is_said() -> None:
    assert misfit(Launcher.MEGATRON, found("/run/iter_0000100")) is None
    assert "iter_0000123" in (misfit(Launcher.MEGATRON, found("/run/step-100")) or "")
    assert "--ckpt-step 0" in (misfit(Launcher.MEGATRON, found("/run/iter_0000000", step=0)) or "")
    assert "several files" in (misfit(Launcher.HF, found("/run/ep0-ba10-rank{rank}.pt")) or "")


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("launcher", list(Launcher))
def test_a_real_shell_takes_every_name_to_the_byte_and_runs_nothing(
    tmp_path: Path, launcher: Launcher, name: str
) -> None:
    path = f"{tmp_path}/{name}/iter_0000100"
    text = launcher_text(launcher, found(path))
    if launcher is Launcher.PATH:
        script = 'set -- "$(cat)"; printf "%s\\0" "$@"'
    elif launcher is Launcher.ENV:
        script = 'eval "$(cat)"; printf "%s\\0" "$MUSTER_RESUME_PATH"'
    else:
        script = 'eval "set -- $(cat)"; printf "%s\\0" "$@"'
    done = subprocess.run(["sh", "-c", script], input=text + "\n", capture_output=True, text=True, cwd=tmp_path)
    words = done.stdout.split("\0")[:-1]
    assert done.stderr == "" and not (tmp_path / "x").exists()
    expected = {
        Launcher.PATH: [path],
        Launcher.ENV: [path],
        Launcher.MEGATRON: ["--load", f"{tmp_path}/{name}", "--ckpt-step", "100"],
        Launcher.DEEPSPEED: ["--load_dir", f"{tmp_path}/{name}", "--tag", "iter_0000100"],
        Launcher.HF: ["--resume_from_checkpoint", path],
    }
    assert words == expected[launcher]


def test_words_that_a_bare_substitution_would_break_are_told() -> None:
    assert not needs_quoting(Launcher.HF, launcher_text(Launcher.HF, found("/run/checkpoint-9")))
    assert needs_quoting(Launcher.HF, launcher_text(Launcher.HF, found("/two words/checkpoint-9")))
    assert not needs_quoting(Launcher.PATH, "/it's")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "run a", 10, rank_bytes=300, world_size=2)
    return tmp_path / "run a"


def test_stdout_holds_what_the_launcher_takes_and_nothing_else(run: Path) -> None:
    done = muster(run, "--format", "path")
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"{run}/step-00000010\n", "")
    done = muster(run, "--format", "hf")
    assert shlex.split(done.stdout) == ["--resume_from_checkpoint", f"{run}/step-00000010"]
    assert "needs quoting" in done.stderr
    assert "iter_0000123" in muster(run, "--format", "megatron").stderr


def test_without_a_point_no_launcher_is_given_words_it_could_start_with(run: Path) -> None:
    for launcher in ("path", "megatron", "deepspeed", "hf"):
        done = muster(run, "--step", 99, "--format", launcher)
        assert (done.exit_code, done.stdout) == (3, "") and "there is no step 99" in done.stderr


def test_the_environment_says_the_outcome_and_leaves_nothing_of_an_earlier_answer(run: Path) -> None:
    def variables(*arguments: object) -> dict[str, str]:
        lines = muster(run, "--format", "env", *arguments).stdout.splitlines()
        return dict(shlex.split(line)[0].split("=", 1) for line in lines)

    assert variables()["MUSTER_RESUME_STEP"] == "10" and variables()["MUSTER_RESUME_OUTCOME"] == "found"
    absent = variables("--step", 99)
    assert (absent["MUSTER_RESUME_OUTCOME"], absent["MUSTER_RESUME_PATH"]) == ("step_absent", "")
    assert set(absent) == set(variables())


@pytest.mark.parametrize("arguments", [["--format", "slurm"], ["--format", "path", "--json"]])
def test_a_launcher_that_is_not_known_or_two_forms_at_once_exit_2(run: Path, arguments: list[str]) -> None:
    assert muster(run, *arguments).exit_code == 2


def test_the_format_of_the_checkpoint_is_restricted_by_its_own_option(run: Path) -> None:
    assert muster(run, "--checkpoint-format", "safetensors").exit_code == 0
    done = muster(run, "--checkpoint-format", "dcp")
    assert done.exit_code == 3 and "its format is safetensors, and dcp is required" in done.stdout


def test_a_path_that_is_no_valid_text_is_passed_on_to_the_byte(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_checkpoint(folder, 10, rank_bytes=300, world_size=1)
    raw = str(tmp_path).encode() + b"/\xff\xfe"
    folder.rename(raw.decode("utf-8", "surrogateescape"))
    command = [sys.executable, "-c", "from muster_agent.cli import main; main()", "resume-point", raw]
    done = subprocess.run([*command, "--format", "path"], capture_output=True)
    assert (done.returncode, done.stdout) == (0, raw + b"/step-00000010\n")


@pytest.mark.parametrize("launcher", ["path", "hf"])
def test_a_file_for_each_part_is_given_as_the_file_of_the_model(tmp_path: Path, launcher: str) -> None:
    optimizer = {"state": {0: {"m": Tensor("0", (2,))}}, "param_groups": [{"lr": 0.1}]}
    (tmp_path / "model000100.pt").write_bytes(torch_zip({"w": Tensor("0", (2,))}))
    (tmp_path / "opt000100.pt").write_bytes(torch_zip(optimizer))
    age(tmp_path)
    answer = muster(tmp_path, "--format", launcher)
    assert answer.exit_code == 0
    assert answer.stdout.split()[-1] == str(tmp_path / "model000100.pt")
