from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result
from muster_agent.cli import main
from muster_agent.formats.detect import files_of, read_checkpoint
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.jobs.seal import seal

from tests.agent.checkpoint_factory import write_checkpoint
from tests.agent.formats.damage import age, copy_sample
from tests.agent.nobody import let_others_in, muster_as_nobody

FIELDS = (
    *("outcome", "path", "step", "tier", "status", "trust", "as_of", "source", "predicted_seconds", "pointer"),
    *("skipped", "nearest_steps", "pointer_choice"),
)
Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run-a"
    for step in (10, 20, 30):
        write_checkpoint(folder, step, rank_bytes=300, world_size=2)
    return folder


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_SERVER", "MUSTER_TOKEN", "MUSTER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["resume-point", *map(str, arguments)], catch_exceptions=False)


def ask(*arguments: object) -> dict[str, Any]:
    answer = json.loads(muster(*arguments, "--json").stdout)
    assert isinstance(answer, dict)
    return answer


def step_path(run: Path, step: int) -> Path:
    return run / f"step-{step:08d}"


def damage(run: Path, step: int) -> None:
    os.truncate(step_path(run, step) / "rank-00001-of-00002.safetensors", 50)


# -- from the disk -----------------------------------------------------------------------------------------------------
def test_the_newest_complete_step_is_named_with_the_agreed_fields(run: Path) -> None:
    done = muster(run, "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, done.stderr) == (0, "")
    assert tuple(answer) == FIELDS
    assert (answer["outcome"], answer["step"], answer["path"]) == ("found", 30, str(step_path(run, 30)))
    assert (answer["status"], answer["trust"], answer["source"]) == ("complete", "complete", "disk")
    assert (answer["pointer"], answer["skipped"], answer["predicted_seconds"]) == (None, [], None)


def test_a_damaged_newest_step_is_passed_over_and_named(run: Path) -> None:
    damage(run, 30)
    answer = ask(run)
    assert answer["step"] == 20
    reason = "it is damaged: rank-00001-of-00002.safetensors: the header needs 440 bytes, the file has 50"
    assert answer["skipped"] == [{"path": str(step_path(run, 30)), "step": 30, "reasons": [reason]}]
    text = muster(run).stdout
    assert text.startswith("Resume from step 20")
    assert reason in text


def test_a_shard_that_is_gone_is_named_in_the_reason(run: Path) -> None:
    (step_path(run, 30) / "rank-00001-of-00002.safetensors").unlink()
    (reason,) = ask(run)["skipped"][0]["reasons"]
    assert reason.startswith("parts of it are not there: ") and "rank-00001-of-00002.safetensors" in reason


def test_a_folder_without_rights_asks_for_the_right_user(run: Path) -> None:
    assert seal(str(step_path(run, 30))).manifest is not None
    let_others_in(run)
    step_path(run, 30).chmod(0)
    done = muster_as_nobody("resume-point", run)
    step_path(run, 30).chmod(0o755)
    assert str(step_path(run, 30)) in done.stderr and "Run as a user who may read it" in done.stderr
    assert "seal" not in done.stderr and "may not be read by this user" in done.stdout


def test_nothing_to_resume_from_exits_3_with_the_outcome(run: Path) -> None:
    for step in (10, 20, 30):
        damage(run, step)
    done = muster(run, "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["outcome"]) == (3, "nothing_resumable")
    assert (answer["path"], answer["step"], len(answer["skipped"])) == (None, None, 3)
    assert "Do not start from step 0" in muster(run).stdout


def test_an_empty_folder_exits_3_with_no_checkpoints(tmp_path: Path) -> None:
    done = muster(tmp_path, "--json")
    assert (done.exit_code, json.loads(done.stdout)["outcome"]) == (3, "no_checkpoints")


def test_a_step_that_is_absent_exits_3(run: Path) -> None:
    done = muster(run, "--json", "--step", 15)
    assert (done.exit_code, json.loads(done.stdout)["outcome"]) == (3, "step_absent")
    assert ask(run, "--step", 10)["step"] == 10


def test_a_path_that_is_not_there_exits_1_and_is_not_taken_for_a_fresh_start(tmp_path: Path) -> None:
    done = muster(tmp_path / "nowhere", "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["outcome"], answer["path"]) == (1, "unknown", None)
    assert tuple(answer) == FIELDS
    assert "no such file or folder" in done.stderr


@contextmanager
def without_roots_rights() -> Iterator[None]:
    """Root reads whatever the modes say; here it asks as somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_checkpoints_that_cannot_be_read_exit_1_since_unknown_is_not_gone() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        run = Path(folder) / "run-a"
        write_checkpoint(run, 10, rank_bytes=300, world_size=2)
        muster(run)  # everything is imported before the rights are given up
        step_path(run, 10).chmod(0o000)
        with without_roots_rights():
            done, answer = muster(run), ask(run)
            step_gone = ask(run, "--step", "11")["outcome"]
        step_path(run, 10).chmod(0o755)
    assert (done.exit_code, answer["outcome"], step_gone) == (1, "unknown", "step_absent")
    assert "could not be read" in done.stderr and str(step_path(run, 10)) in done.stderr


def test_a_folder_whose_name_is_no_text_may_hold_the_run(tmp_path: Path) -> None:
    os.mkdir(os.fsencode(tmp_path) + b"/run-\xff")
    write_checkpoint(Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff")), 10, rank_bytes=300, world_size=2)
    done = muster(tmp_path)
    assert done.exit_code == 1
    assert "run-\\udcff" in done.stderr and "may be the checkpoint" in done.stderr
    assert ask(Path(os.fsdecode(os.fsencode(tmp_path) + b"/run-\xff")))["step"] == 10


def test_a_tracker_without_a_checkpoint_proves_that_the_run_saved(tmp_path: Path) -> None:
    for place in (tmp_path / "flat", tmp_path / "deep" / "checkpoints"):
        place.mkdir(parents=True)
        (place / "latest_checkpointed_iteration.txt").write_text("500")
    for place in (tmp_path / "flat", tmp_path / "deep"):
        done = muster(place, "--json")
        answer = json.loads(done.stdout)
        assert (done.exit_code, answer["outcome"], answer["pointer"]["step"]) == (3, "nothing_resumable", 500)
        assert "do not start from step 0" in done.stderr and "only if this run never saved" not in done.stderr


def test_no_note_is_missed_beside_a_single_checkpoint_that_was_named(tmp_path: Path) -> None:
    place = copy_sample("megatron/torch_dist", tmp_path)
    (place / "latest_checkpointed_iteration.txt").unlink()
    assert "WARNING" in muster(place).stderr
    named = min(place.glob("iter_*"))
    done = muster(named, "--json")
    assert (done.exit_code, done.stderr, json.loads(done.stdout)["pointer_choice"]) == (0, "", None)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--world-size", "0"],
        ["--world-size", "9", "--dp", "2", "--tp", "2", "--pp", "2"],
        ["--max-age", "soon"],
        ["--require", "listed"],
        ["--step", "-1"],
        ["--nonsense"],
        ["--dp", "1_0"],
        ["--dp", "\u0663"],
        ["--step", "+1"],
        ["--checkpoint-format", "megatron"],
        ["--run", "nope"],
    ],
)
def test_a_wrong_question_exits_2(run: Path, arguments: list[str]) -> None:
    done = muster(run, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr


def test_another_world_size_finds_nothing_in_rank_sharded_files(run: Path) -> None:
    assert ask(run, "--world-size", 2)["step"] == 30
    assert muster(run, "--world-size", 4).exit_code == 3
    assert muster(run, "--dp", 3).exit_code == 3


def test_a_format_that_is_none_is_answered_with_those_there_are(run: Path) -> None:
    said = muster(run, "--checkpoint-format", "megatron").stderr
    assert "megatron_dist" in said and "hf_trainer" in said


def test_a_run_may_be_named_by_its_folder_or_the_end_of_its_path(run: Path) -> None:
    for name in ("run-a", f"{run.parent.name}/run-a"):
        assert ask(run, "--run", name)["step"] == 30
    assert "no run under" in muster(run, "--run", "run").stderr


def test_more_runs_than_are_listed_are_counted(tmp_path: Path) -> None:
    for number in range(12):
        write_checkpoint(tmp_path / f"run-{number:02}", 1, rank_bytes=100, world_size=1)
    done = muster(tmp_path)
    assert done.exit_code == 2 and "of 12 runs" in done.stderr and "and 2 more" in done.stderr


def test_what_is_too_old_is_passed_over(run: Path) -> None:
    for step in (10, 20, 30):
        age(step_path(run, step), 7200)
    assert ask(run, "--max-age", "1h")["outcome"] == "nothing_resumable"
    assert ask(run, "--max-age", "3h")["step"] == 30


def test_a_sealed_step_is_chosen_where_a_seal_is_required(run: Path) -> None:
    seal(str(step_path(run, 20)))
    answer = ask(run, "--require", "sealed")
    assert (answer["step"], answer["trust"], answer["source"]) == (20, "sealed", "disk+manifest")
    assert answer["skipped"][0]["reasons"] == ["it is only complete, and sealed is required"]


def test_a_damaged_manifest_is_said_and_adds_no_trust(run: Path) -> None:
    (step_path(run, 30) / ".muster-manifest.json").write_text("{}")
    done = muster(run, "--json")
    assert (json.loads(done.stdout)["trust"], done.exit_code) == ("complete", 0)
    assert "manifest" in done.stderr


def test_a_binding_pointer_holds_back_newer_steps(run: Path) -> None:
    (run / "latest_checkpointed_iteration.txt").write_text("20")
    answer = ask(run)
    assert (answer["step"], answer["pointer"]["step"]) == (20, 20)
    assert list(answer["pointer"]) == ["path", "step"]


def test_several_runs_are_the_users_choice(run: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run-b", 99, rank_bytes=300, world_size=2)
    done = muster(tmp_path, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "run-a" in done.stderr and "run-b" in done.stderr
    assert ask(tmp_path, "--run", "run-a")["step"] == 30
    assert muster(tmp_path, "--run", "run-c").exit_code == 2


def test_a_single_checkpoint_may_be_asked_about(run: Path) -> None:
    assert ask(step_path(run, 20))["step"] == 20


# -- with a server -----------------------------------------------------------------------------------------------------
@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def reply(body: object, status: int = 200) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return send


def evidence(run: Path, step: int, **changes: Any) -> dict[str, Any]:
    shard_map = read_checkpoint(step_path(run, step))
    return {
        "path": shard_map.path,
        "fingerprint": fingerprint(files_of(shard_map)),
        "manifest_id": "m",
        "trust": "verified",
        "as_of": "2026-01-02T03:04:05+00:00",
        "damage": [],
        "tier": "nvme",
        "tier_order": 1,
        **changes,
    }


def test_the_servers_evidence_adds_trust_and_the_prediction(run: Path) -> None:
    body = {"evidence": [evidence(run, 20)], "path": str(step_path(run, 20)), "predicted_seconds": 12.5}
    with serving(reply(body)) as server:
        answer = ask(run, "--require", "verified", "--server", server)
    assert (answer["step"], answer["trust"], answer["source"]) == (20, "verified", "disk+server")
    assert (answer["tier"], answer["as_of"]) == ("nvme", "2026-01-02T03:04:05+00:00")
    assert answer["predicted_seconds"] == 12.5


def test_a_prediction_for_another_checkpoint_is_not_passed_on(run: Path) -> None:
    body = {"evidence": [], "path": str(step_path(run, 10)), "predicted_seconds": 12.5}
    with serving(reply(body)) as server:
        assert ask(run, "--server", server)["predicted_seconds"] is None


def test_damage_that_an_audit_found_passes_the_step_over(run: Path) -> None:
    body = {"evidence": [evidence(run, 30, damage=["bytes 4 to 8 of rank 1 differ"])]}
    with serving(reply(body)) as server:
        answer = ask(run, "--server", server)
    assert answer["step"] == 20
    assert answer["skipped"][0]["reasons"] == ["an audit found damage: bytes 4 to 8 of rank 1 differ"]


def test_evidence_about_other_bytes_is_left_aside(run: Path) -> None:
    with serving(reply({"evidence": [evidence(run, 30, fingerprint="0" * 32)]})) as server:
        answer = ask(run, "--server", server)
    assert (answer["trust"], answer["source"]) == ("complete", "disk")


def test_the_server_is_asked_with_the_token_for_this_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str | None]] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        seen.append((handler.path, handler.headers["Authorization"]))
        reply({})(handler)

    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("MUSTER_TOKEN_FILE", str(tmp_path / "token"))
    with serving(answer) as server:
        monkeypatch.setenv("MUSTER_SERVER", server)
        assert muster(run).exit_code == 0
        done = muster(run, "--run", "a/b")
        assert done.exit_code == 0 and "no folder here is called a/b" in done.stderr
    assert seen[0] == ("/api/v1/runs/run-a/resume-point?evidence=1", "Bearer secret")
    assert seen[1][0] == "/api/v1/runs/a%2Fb/resume-point?evidence=1"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reply({"detail": "no"}, 401), "refused the token (401)"),
        (reply({"detail": "no"}, 404), "knows no run 'run-a'"),
        (reply(b"oops", 500), "answered with status 500"),
        (reply(b"<html>"), "not understood"),
        (reply({"evidence": [{"path": 3}]}), "not understood"),
        (reply(b"[" * 100_000), "not understood"),
        (reply(b"", 302), "answered with status 302"),
    ],
)
def test_a_server_that_gives_nothing_usable_is_said_and_the_disk_answers(run: Path, answer: Answer, said: str) -> None:
    with serving(answer) as server:
        done = muster(run, "--json", "--server", server)
    assert (done.exit_code, json.loads(done.stdout)["step"]) == (0, 30)
    assert said in done.stderr
    assert "answering from the disk alone" in done.stderr


def test_a_server_that_is_away_is_said_and_the_disk_answers(run: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        done = muster(run, "--json", "--server", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (done.exit_code, json.loads(done.stdout)["source"]) == (0, "disk")
    assert "could not be reached" in done.stderr


def slow(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(8)
    reply({})(handler)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """One byte each half second: no single read ever waits long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(16):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.5)


@pytest.mark.parametrize("answer", [slow, drip])
def test_a_slow_server_costs_two_seconds_at_most(run: Path, answer: Answer) -> None:
    with serving(answer) as server:
        began = time.monotonic()
        done = muster(run, "--json", "--server", server)
        seconds = time.monotonic() - began
    assert (done.exit_code, json.loads(done.stdout)["step"]) == (0, 30)
    assert seconds < 3.5
    assert "answering from the disk alone" in done.stderr


@contextmanager
def blackhole() -> Iterator[str]:
    """An address that takes no connection and refuses none, as behind a firewall that drops: its queue is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with socket.socket() as probe, pytest.raises(TimeoutError):
            probe.settimeout(0.3)
            probe.connect(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_behind_a_firewall_that_drops_costs_two_seconds_at_most(run: Path) -> None:
    with blackhole() as server:
        began = time.monotonic()
        done = muster(run, "--json", "--server", server)
        seconds = time.monotonic() - began
        script = "import sys; from muster_agent.cli import main; main(sys.argv[1:])"
        command = [sys.executable, "-c", script, "resume-point", str(run), "--server", server]
        whole = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.exit_code, json.loads(done.stdout)["step"], json.loads(done.stdout)["source"]) == (0, 30, "disk")
    assert seconds < 3.5 and "answering from the disk alone" in done.stderr
    # The process itself ends too: the kernel would go on trying to connect for two minutes.
    assert whole.returncode == 0 and "step 30" in whole.stdout and "answering from the disk alone" in whole.stderr


@pytest.mark.parametrize("server", ["nonsense", "http://", "ftp://127.0.0.1", "http://[::1", "http://127.0.0.1:99999"])
def test_an_address_that_is_none_is_said_and_the_disk_answers(run: Path, server: str) -> None:
    done = muster(run, "--json", "--server", server)
    assert (done.exit_code, json.loads(done.stdout)["step"]) == (0, 30)
    assert "is no http or https address; answering from the disk alone" in done.stderr


def test_a_token_never_goes_over_plain_http_to_another_host(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TOKEN", "secret")
    done = muster(run, "--json", "--server", "http://192.0.2.1:8000")
    assert done.exit_code == 0
    assert "plain HTTP" in done.stderr


def test_a_token_file_that_cannot_be_read_is_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TOKEN_FILE", str(run / "nowhere"))
    done = muster(run, "--json", "--server", "http://127.0.0.1:9")
    assert done.exit_code == 0
    assert "token file" in done.stderr


# -- how much is read --------------------------------------------------------------------------------------------------
def test_no_step_older_than_the_answer_is_opened(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real_open = os.open

    def watching_open(path: Any, *arguments: Any, **options: Any) -> int:
        opened.append(str(path))
        return real_open(path, *arguments, **options)

    damage(run, 30)
    monkeypatch.setattr(os, "open", watching_open)
    assert ask(run)["step"] == 20
    assert any("step-00000020" in path for path in opened)
    assert not any("step-00000010" in path for path in opened)


def test_reading_goes_on_until_the_trust_that_is_required(run: Path) -> None:
    seal(str(step_path(run, 10)))
    answer = ask(run, "--require", "sealed")
    assert (answer["step"], [one["step"] for one in answer["skipped"]]) == (10, [30, 20])


def test_a_folder_whose_name_promises_a_newer_step_does_not_hide_the_newest(run: Path) -> None:
    step_path(run, 10).rename(run / "step-99")
    assert ask(run)["step"] == 30
