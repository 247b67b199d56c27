"""`muster login`, `context`, `doctor`, `completion`, and what starting the command costs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import factories
import pytest
from muster_agent.cli import COMMANDS, main
from muster_agent.cli.contexts import Given, config_path, connection
from muster_agent.cli.doctor import clock_check, gpu_checks, place_check, token_check
from muster_agent.cli.output import CommandFailed

from apps.accounts.models import Role
from tests.agent.cli.asking import muster


@pytest.fixture
def token_file(application: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MUSTER_SERVER")
    path = tmp_path / "token"
    path.write_text(factories.token(factories.user("olga", Role.OPERATOR)) + "\n")
    return path


def test_login_keeps_the_token_where_only_its_owner_can_read_it(token_file: Path, tmp_path: Path) -> None:
    done = muster("login", "http://localhost:8000", "--token-file", token_file)
    assert done.exit_code == 0 and "as olga (operator)" in done.stdout
    kept = tmp_path / "muster" / "tokens" / "localhost_8000"
    assert kept.read_text() == token_file.read_text().strip()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_text() not in config_path().read_text()
    assert muster("get", "runs").exit_code == 0, "no flag and no variable is needed any more"


def test_login_with_a_bad_token_keeps_nothing(token_file: Path) -> None:
    token_file.write_text("mst_wrong")
    refused = muster("login", "http://localhost:8000", "--token-file", token_file)
    assert refused.exit_code == 4 and not config_path().exists()
    assert muster("login", "http://elsewhere.example", "--token-file", token_file).exit_code == 2
    assert muster("login", "http://localhost:8000").exit_code == 2, "no terminal to ask at"


def test_contexts_are_listed_chosen_and_forgotten(token_file: Path) -> None:
    for name in ("one", "two"):
        muster("login", "http://localhost:8000", "--token-file", token_file, "--name", name)
    assert muster("context", "current").stdout == "two\n"
    assert muster("context", "use", "one").exit_code == 0
    assert [one["current"] for one in json.loads(muster("context", "list", "--json").stdout)] == [True, False]
    assert muster("logout").exit_code == 0
    assert muster("context", "current").stdout == "two\n"
    assert muster("context", "use", "one").exit_code == 3
    assert muster("get", "runs", "--context", "one").exit_code == 2


def test_a_flag_wins_over_the_environment_and_that_over_the_context(
    token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    muster("login", "http://localhost:8000", "--token-file", token_file, "--name", "one")
    own = token_file.read_text().strip()
    assert connection(Given())[:2] == ("http://localhost:8000", own)
    monkeypatch.setenv("MUSTER_SERVER", "https://other.example")
    assert connection(Given())[:2] == ("https://other.example", None), "a token goes to its own server only"
    monkeypatch.setenv("MUSTER_TOKEN", "mst_environment")
    assert connection(Given()).token == "mst_environment"
    assert connection(Given(context="one"))[:2] == ("http://localhost:8000", own)
    flag = tmp_path / "flag"
    flag.write_text("mst_flag")
    given = Given(server="https://flag.example", token_file=str(flag))
    assert connection(given)[:2] == ("https://flag.example", "mst_flag")


def test_no_server_at_all_says_how_to_name_one(token_file: Path) -> None:
    done = muster("get", "runs")
    assert done.exit_code == 2 and "muster login" in done.stderr
    config_path().write_text("{")
    with pytest.raises(CommandFailed, match="not understood"):
        connection(Given())


def test_a_secret_is_never_taken_from_the_command_line() -> None:
    options = [option for command in walk(main) for one in command.params for option in one.opts]
    assert "--token-file" in options
    assert not {"--token", "--password", "--secret"} & set(options)


def walk(command):  # type: ignore[no-untyped-def]
    import click

    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name))


def test_doctor_is_content_with_a_server_and_skips_what_is_not_set_up(
    token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_AGENT_STATE_DIR", str(tmp_path / "no-agent"))
    muster("login", "http://localhost:8000", "--token-file", token_file)
    found = {one["name"]: one for one in json.loads(muster("doctor", "--json").stdout)}
    assert {name: found[name]["verdict"] for name in ("server", "reach", "token", "agent")} == {
        "server": "ok",
        "reach": "ok",
        "token": "warn",  # the tests' token lives a day
        "agent": "skip",
    }
    assert "olga" in found["token"]["detail"]
    assert found["health"]["verdict"] == "fail", "no worker runs here"


def test_doctor_names_what_is_wrong_and_what_to_do(
    token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "agent"
    state.mkdir()
    gone = tmp_path / "gone"
    config = {"server": "https://x.example", "agent_id": "agt_1", "node_name": "gpu-1", "roots": [str(gone)]}
    (state / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("MUSTER_SERVER", "http://localhost:8000")
    done = muster("doctor", "--state-dir", state)
    assert done.exit_code == 1
    assert "there is no token" in done.stdout and "muster login" in done.stdout
    assert "gpu-1 does not run" in done.stdout
    assert f"{gone}: No such file or directory" in done.stdout
    assert "\x1b" not in done.stdout, "no colour where there is no terminal"


def test_doctor_judges_clock_token_storage_and_gpus(tmp_path: Path) -> None:
    date = "Tue, 01 Dec 2026 00:00:00 GMT"
    assert clock_check(date, 1796083200.0 + 5).verdict == "ok"
    assert clock_check(date, 1796083200.0 + 90).detail == "90 s ahead of the server"
    assert clock_check(None, 0.0).verdict == "skip"
    who = {"username": "ci", "role": "viewer", "token_expires_at": "2026-12-11T00:00:00Z"}
    assert (token_check(who, 1796083200.0).verdict, token_check(who, 1796083200.0).detail[-15:]) == (
        "warn",
        "ends in 10 days",
    )
    assert place_check(str(tmp_path)).verdict in ("ok", "warn")
    assert [one.verdict for one in gpu_checks(lambda: (0, "no CUDA driver"))] == ["skip"]
    assert next(gpu_checks(lambda: (8, ""))).detail == "8 CUDA devices"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell: str) -> None:
    script = muster("completion", shell).stdout
    assert "_MUSTER_COMPLETE" in script and "muster" in script


def complete(words: str, incomplete: str) -> str:
    environment = {**os.environ, "_MUSTER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": incomplete}
    command = [sys.executable, "-c", "from muster_agent.cli import main; main(prog_name='muster')"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout


def test_completion_knows_verbs_options_and_kinds() -> None:
    assert "plain,drill" in complete("muster dri", "1")
    assert "plain,placements" in complete("muster get pl", "2")
    assert "plain,--preview" in complete("muster drill run --pre", "3")


def test_starting_the_command_imports_neither_http_nor_codecs_nor_readers() -> None:
    code = "import sys; from muster_agent.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    heavy = {"urllib3", "msgspec", "xxhash", "zstandard", "boto3", "ssl", "asyncio", "muster_agent.rest"}
    assert loaded & heavy == set()
    assert len([name for name in loaded if name.startswith("muster_agent")]) <= 3


def test_asking_the_server_imports_no_reader_of_checkpoints_and_no_types() -> None:
    code = (
        "import sys\nfrom muster_agent.cli import main\n"
        "words = ['get', 'runs', '--server', 'http://127.0.0.1:9', '--request-timeout', '1']\n"
        "try: main(words, standalone_mode=False)\n"
        "except Exception: pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "urllib3" in loaded
    assert loaded & {"xxhash", "zstandard", "boto3", "muster_agent.formats", "muster_agent.runtime.loop"} == set()


def test_every_verb_has_one_line_of_help_in_the_list() -> None:
    text = muster("--help").stdout
    assert [name for name, entry in COMMANDS.items() if name not in text or not entry[2].endswith(".")] == []
