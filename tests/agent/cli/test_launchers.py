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
from tests.agent.formats.damage import age, copy_sample
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
    def why(launcher: Launcher, path: str, format_name: str, step: int = 100) -> str | None:
        return misfit(launcher, found(path, step), format_name)

    assert why(Launcher.MEGATRON, "/run/iter_0000100", "megatron_dist") is None
    assert "iter_0000123" in (why(Launcher.MEGATRON, "/run/step-100", "megatron_dist") or "")
    assert "--ckpt-step 0" in (why(Launcher.MEGATRON, "/run/iter_0000000", "megatron_dist", 0) or "")
    assert why(Launcher.PATH, "/run/ep0-ba10-rank{rank}.pt", "composer") is None
    assert "nvrx_local" in (why(Launcher.HF, "/run/{rank}/iter_0000020_{rank}_local.pt", "nvrx_local") or "")


@pytest.mark.parametrize(
    ("sample", "launcher"),
    [
        ("megatron/torch_dist", "deepspeed"),
        ("megatron/torch_dist", "hf"),
        ("huggingface/trainer-single", "megatron"),
        ("huggingface/trainer-single", "deepspeed"),
        ("deepspeed/zero1-bf16", "hf"),
        ("nvrx-local/jobA", "hf"),
        ("nvrx-local/jobA", "megatron"),
    ],
)
def test_a_launcher_is_given_no_words_for_what_it_cannot_load(tmp_path: Path, sample: str, launcher: str) -> None:
    place = copy_sample(sample, tmp_path)
    done = muster(place, "--format", launcher)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert f"--format {launcher} is for" in done.stderr and "what to do" in done.stderr
    assert muster(place, "--format", "path").exit_code == 0


@pytest.mark.parametrize(
    ("sample", "launcher"),
    [
        ("megatron/torch_dist", "megatron"),
        ("huggingface/trainer-single", "hf"),
        ("huggingface/accelerate-single", "hf"),
        ("deepspeed/zero2-fp32", "deepspeed"),
    ],
)
def test_each_framework_is_given_words_for_its_own(tmp_path: Path, sample: str, launcher: str) -> None:
    done = muster(copy_sample(sample, tmp_path), "--format", launcher)
    assert done.exit_code == 0 and done.stdout.startswith("--"), done.stderr


def test_deepspeed_must_be_told_to_load_a_universal_checkpoint(tmp_path: Path) -> None:
    place = copy_sample("deepspeed/zero1-bf16", tmp_path)
    done = muster(place, "--format", "deepspeed", "--checkpoint-format", "deepspeed_universal")
    assert (done.exit_code, "global_step4_universal" in done.stdout) == (0, True)
    assert "--universal-checkpoint" in done.stderr


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
    copy_sample("huggingface/trainer-single", run.parent).rename(run.parent / "run b")
    done = muster(run.parent / "run b", "--format", "hf")
    assert shlex.split(done.stdout) == ["--resume_from_checkpoint", f"{run.parent}/run b/checkpoint-9"]
    assert "needs quoting" in done.stderr


@pytest.mark.parametrize("found_it", [True, False])
def test_the_hint_for_awkward_paths_ends_a_job_that_has_no_point(run: Path, tmp_path: Path, found_it: bool) -> None:
    """Run as the help and the hint have it, under `set -e`, in a real shell."""
    place = copy_sample("huggingface/trainer-single", tmp_path).rename(tmp_path / "run b")
    hint = muster(place, "--format", "hf").stderr
    lines = [line.strip() for line in hint.splitlines() if line.startswith("  words=") or line.startswith("  eval")]
    script = "\n".join(["set -e", *lines, 'printf "%s|" started "$@"'])
    muster_words = f"{shlex.quote(sys.executable)} -c 'from muster_agent.cli import main; main()'"
    asked = shlex.quote(str(place if found_it else tmp_path / "nowhere"))
    script = script.replace("muster resume-point ...", f"{muster_words} resume-point {asked}")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    if found_it:
        assert done.stdout == f"started|--resume_from_checkpoint|{place}/checkpoint-9|"
    else:
        assert (done.returncode, done.stdout) == (1, "")


def test_the_help_assigns_before_it_uses() -> None:
    text = muster("--help").stdout
    assert "point=$(muster resume-point DIR --format path)" in text
    assert 'srun train --resume "$(' not in text


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


@pytest.mark.parametrize(
    ("arguments", "exit_code", "outcome"),
    [
        (["nowhere"], 1, "unknown"),
        ([""], 2, "error"),
        (["", "--dp", "0"], 2, "error"),
        (["", "--checkpoint-format", "megatron"], 2, "error"),
        (["", "--nonsense"], 2, "error"),
    ],
)
def test_the_environment_is_answered_on_every_exit(
    tmp_path: Path, arguments: list[str], exit_code: int, outcome: str
) -> None:
    for name in ("a", "b"):
        write_checkpoint(tmp_path / name, 10, rank_bytes=300, world_size=1)
    for form in (["--format", "env"], ["--format=env"]):
        done = muster(tmp_path / arguments[0], *arguments[1:], *form)
        lines = [shlex.split(line)[0] for line in done.stdout.splitlines()]
        assert (done.exit_code, lines[0]) == (exit_code, f"MUSTER_RESUME_OUTCOME={outcome}")
        assert len(lines) == 8 and all(line.endswith("=") for line in lines[1:])


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
