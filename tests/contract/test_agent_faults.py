"""A real agent process, and what befalls it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoint_files import write_checkpoint
from cut_proxy import CutProxy
from live import MUSTER, LiveAgent, LiveServer, done, wait_until
from servers.valkey import Valkey

MakeAgent = Callable[..., LiveAgent]
MIB = 1024 * 1024


@pytest.fixture
def slow_reload(tmp_path: Path) -> dict[str, object]:
    """Parameters of a reload that takes about 6 s at the rate it asks for."""
    checkpoint = write_checkpoint(tmp_path / "run", ranks=1, shard_bytes=24 * MIB)
    shards = ["rank-00000-of-00001.safetensors"]
    return {"path": str(checkpoint), "shards": shards, "max_bytes_per_second": 4 * MIB}


@pytest.fixture
def proxy(server: LiveServer) -> Iterator[CutProxy]:
    relay = CutProxy(server.port)
    yield relay
    relay.close()


def is_reading(server: LiveServer, task_id: str) -> None:
    wait_until(lambda: server.call("task", task_id)["progress"].get("done_bytes"), 15, "bytes are read")


@pytest.mark.slow
def test_an_agent_killed_in_mid_read_runs_the_task_again_when_it_is_back(
    server: LiveServer, make_agent: MakeAgent, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("killed").start()
    task = server.call("create_task", agent.id, "reload", slow_reload)
    is_reading(server, task)
    agent.kill()
    agent.start()  # a new boot: what the old one held is free at once, long before its lease ends
    found = done(server, task, 25)
    assert (found["outcome"], found["attempt"], found["runs"]) == ("done", 2, 2)


@pytest.mark.slow
def test_a_short_cut_of_the_network_goes_unseen(
    server: LiveServer, make_agent: MakeAgent, proxy: CutProxy, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("short-cut", url=proxy.url).start()
    task = server.call("create_task", agent.id, "reload", slow_reload)
    is_reading(server, task)
    proxy.cut()
    time.sleep(1.0)
    proxy.mend()
    found = done(server, task, 25)
    assert (found["outcome"], found["attempt"]) == ("done", 1)
    assert [event["seq"] for event in server.call("events", task)] == list(range(1, found["events"] + 1))


@pytest.mark.slow
def test_a_long_cut_makes_the_holder_give_up_and_the_task_is_run_again(
    server: LiveServer, make_agent: MakeAgent, proxy: CutProxy, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("long-cut", url=proxy.url).start()
    task = server.call("create_task", agent.id, "reload", slow_reload)
    is_reading(server, task)
    proxy.cut()
    wait_until(lambda: "the lease could not be renewed" in agent.log(), 10, "the holder gives up")
    assert server.call("task", task)["state"] == "running"  # before the server calls it stale
    wait_until(lambda: (server.call("sweep"), server.call("task", task)["state"])[1] == "queued", 10)
    proxy.mend()
    found = done(server, task, 40)
    assert (found["outcome"], found["attempt"]) == ("done", 2)


@pytest.mark.slow
def test_a_result_that_waited_out_a_long_cut_is_kept_as_late(
    server: LiveServer, make_agent: MakeAgent, proxy: CutProxy, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("late", url=proxy.url).start()
    quick = {**slow_reload, "max_bytes_per_second": 12 * MIB}  # about 2 s, within the lease
    task = server.call("create_task", agent.id, "reload", quick, idempotent=False)
    is_reading(server, task)
    proxy.cut()
    wait_until(lambda: f"task {task}: done" in agent.log(), 10, "the work is done")
    wait_until(lambda: (server.call("sweep"), server.call("task", task)["state"])[1] == "lost", 10)
    proxy.mend()
    late = wait_until(lambda: server.call("task", task)["late_results"], 30, "the result is kept")
    assert [one["outcome"] for one in late] == ["done"]
    assert server.call("task", task)["outcome"] == "lost"


@pytest.mark.slow
def test_a_server_that_is_killed_and_comes_back_loses_nothing(
    alone_server: LiveServer, make_agent: MakeAgent, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("server-away", on=alone_server).start()
    task = alone_server.call("create_task", agent.id, "reload", slow_reload)
    is_reading(alone_server, task)
    alone_server.kill()
    waiting = alone_server.call("create_task", agent.id, "inventory", {"root": str(agent.state.parent / "run")})
    alone_server.start()
    assert done(alone_server, task, 40)["outcome"] == "done"
    assert done(alone_server, waiting, 60)["outcome"] == "done"
    assert agent.process is not None
    assert agent.process.poll() is None


@pytest.mark.slow
def test_without_redis_work_still_arrives_and_with_it_back_at_once(tmp_path: Path, make_agent: MakeAgent) -> None:
    valkey = Valkey()
    server = LiveServer(tmp_path, REDIS_URL=valkey.url)
    try:
        agent = make_agent("no-redis", on=server).start()
        root = {"root": str(tmp_path)}
        valkey.kill()
        assert done(server, server.call("create_task", agent.id, "inventory", root), 10)["outcome"] == "done"
        valkey.start()
        wait_until(lambda: _seconds_to_claim(server, agent, root) < 1.0, 20, "announcements arrive again")
    finally:
        server.stop()
        valkey.stop()


def _seconds_to_claim(server: LiveServer, agent: LiveAgent, root: dict[str, str]) -> float:
    time.sleep(0.5)
    began_at = time.monotonic()
    task = server.call("create_task", agent.id, "inventory", root)
    wait_until(lambda: server.call("task", task)["state"] != "queued", 10)
    seconds = time.monotonic() - began_at
    done(server, task)
    return seconds


def test_a_copied_agent_takes_over_and_the_first_ends_with_a_clear_word(
    server: LiveServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    agent = make_agent("cloned").start()
    copy = tmp_path / "copy"
    shutil.copytree(agent.state, copy, ignore=shutil.ignore_patterns("lock", "spool*"))
    clone = subprocess.Popen([MUSTER, "agent", "run", "--state-dir", str(copy)], env=agent.environment)
    try:
        assert agent.process is not None
        assert agent.process.wait(15) == 5
        assert "taken over" in agent.log()
        assert server.call("agent", agent.id)["state"] == "online"
    finally:
        clone.kill()
        clone.wait()


def test_a_second_agent_in_one_state_folder_is_refused(make_agent: MakeAgent) -> None:
    agent = make_agent("twice").start()
    assert "already running" in agent.muster("run", code=5)


def test_a_revoked_agent_ends_and_says_so(server: LiveServer, make_agent: MakeAgent) -> None:
    agent = make_agent("revoked").start()
    server.call("revoke", agent.id)
    assert agent.process is not None
    assert agent.process.wait(10) == 4
    assert "revoked" in agent.log()


@pytest.mark.slow
def test_sigterm_hands_back_what_does_not_finish_in_time_and_exits_0(
    server: LiveServer, make_agent: MakeAgent, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("drained")
    config = agent.state / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "grace_seconds": 1.0}))
    agent.start()
    task = server.call("create_task", agent.id, "reload", {**slow_reload, "max_bytes_per_second": MIB})
    is_reading(server, task)
    assert agent.terminate() == 0
    found = server.call("task", task)
    assert (found["state"], found["runs"]) == ("queued", 0)
    assert server.call("agent", agent.id)["state"] == "draining"


def test_sigterm_on_an_idle_agent_ends_it_at_once(make_agent: MakeAgent) -> None:
    agent = make_agent("idle").start()
    began_at = time.monotonic()
    assert agent.terminate() == 0
    assert time.monotonic() - began_at < 5


@pytest.mark.slow
def test_stop_all_works_on_the_node_alone(
    server: LiveServer, make_agent: MakeAgent, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("stopped").start()
    task = server.call("create_task", agent.id, "reload", slow_reload)
    is_reading(server, task)
    agent.muster("stop-all")
    found = done(server, task, 5)
    assert (found["outcome"], found["error_code"]) == ("cancelled", "stopped_on_node")
    waiting = server.call("create_task", agent.id, "inventory", {"root": slow_reload["path"]})
    time.sleep(1.0)
    assert server.call("task", waiting)["state"] == "queued"
    assert json.loads(agent.muster("status", "--json"))["stopped_on_node"] is True
    agent.muster("stop-all", "--clear")
    assert done(server, waiting)["outcome"] == "done"


def test_cancelling_stops_the_reading(
    server: LiveServer, make_agent: MakeAgent, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("cancelled").start()
    task = server.call("create_task", agent.id, "reload", slow_reload)
    is_reading(server, task)
    server.call("cancel", task)
    found = done(server, task, 4)
    assert (found["outcome"], found["error_code"]) == ("cancelled", "cancelled")


def test_a_full_disk_under_the_spool_fails_the_task_and_still_delivers_its_result(
    server: LiveServer, make_agent: MakeAgent, slow_reload: dict[str, object]
) -> None:
    agent = make_agent("disk-full").start()
    task = server.call("create_task", agent.id, "reload", slow_reload)
    is_reading(server, task)
    assert agent.process is not None
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # no file may grow
    found = done(server, task, 15)
    assert (found["outcome"], found["error_code"]) == ("failed", "agent_disk")
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    again = server.call("create_task", agent.id, "inventory", {"root": slow_reload["path"]})
    found = done(server, again)
    assert (found["outcome"], found["error_code"]) == ("done", "")


def test_paths_outside_the_roots_and_work_it_does_not_know_are_refused(
    server: LiveServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "inside-not"
    for folder in (inside, outside):
        folder.mkdir()
    (inside / "link").symlink_to(outside)
    agent = make_agent("rooted", roots=[inside]).start()

    def code(kind: str, params: dict[str, object]) -> tuple[str, str]:
        found = done(server, server.call("create_raw_task", agent.id, kind, params))
        return found["outcome"], found["error_code"]

    refused = ("failed", "path_outside_roots")
    assert code("inventory", {"root": str(outside)}) == refused
    assert code("inventory", {"root": f"{inside}/../inside-not"}) == refused
    assert code("seal", {"path": str(inside / "link")}) == refused
    assert code("seal", {"path": str(inside)}) == refused  # a link in it leads out
    assert code("inventory", {"root": "relative"}) == refused
    assert code("reformat", {}) == ("unsupported", "unsupported_kind")
    assert code("inventory", {"folder": "x"}) == ("unsupported", "bad_params")
    assert code("inventory", {"root": str(inside), "a_newer_field": 1})[0] == "done"
    assert code("inventory", {"root": str(inside / "not-there")}) == ("failed", "root_unreadable")


def test_the_nodes_own_limits_hold(server: LiveServer, make_agent: MakeAgent, slow_reload: dict[str, object]) -> None:
    agent = make_agent("limited", options=("--max-bytes", str(8 * MIB))).start()
    fast = {**slow_reload, "max_bytes_per_second": None}
    found = done(server, server.call("create_task", agent.id, "reload", {**fast, "max_bytes_per_second": 16 * MIB}))
    assert (found["outcome"], found["error_code"]) == ("failed", "limit_bytes")


def test_a_registered_training_process_is_killed_and_nothing_else_is(server: LiveServer, make_agent: MakeAgent) -> None:
    agent = make_agent("disruptor").start()
    program = (
        "from muster_agent.hooks import RunReporter\nimport time\n"
        "RunReporter(run='llm', attempt='llm-1', rank=0).process_started()\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    trainer = subprocess.Popen([sys.executable, "-c", program], env=agent.environment, stdout=subprocess.PIPE)
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        wait_until(lambda: list(agent.hooks.glob("*.process.json")), 5, "it is registered")

        def disrupt(**params: object) -> dict[str, object]:
            params = {"run": "llm", "attempt": "llm-1", **params}
            return done(server, server.call("create_task", agent.id, "disrupt", params, idempotent=False))

        assert disrupt(pid=bystander.pid)["error_code"] == "process_not_registered"
        assert disrupt(run="another")["error_code"] == "process_not_registered"
        assert disrupt(signal_name="SIGSTOP")["error_code"] == "signal_not_allowed"
        before = time.time()
        found = disrupt()
        assert found["outcome"] == "done", found
        assert trainer.wait(5) == -9
        assert bystander.poll() is None
        task = server.call("create_task", agent.id, "inventory", {"root": str(agent.hooks)})
        assert done(server, task)["outcome"] == "done"
        assert before - 1 <= found["result"]["injected_unix_seconds"] <= time.time() + 1  # type: ignore[index]
    finally:
        for process in (trainer, bystander):
            process.kill()
            process.wait()


def test_what_hooks_wrote_while_the_server_was_away_arrives_when_it_is_back(
    server: LiveServer, make_agent: MakeAgent, proxy: CutProxy
) -> None:
    agent = make_agent("hooks", url=proxy.url).start()
    proxy.cut()
    program = (
        "from muster_agent.hooks import RunReporter\n"
        "reporter = RunReporter(run='hooked', attempt='hooked-1', rank=0)\n"
        "reporter.process_started(); reporter.step(1, loss=0.5); reporter.close()"
    )
    subprocess.run([sys.executable, "-c", program], env=agent.environment, check=True)
    wait_until(lambda: "hook records wait on disk" in agent.log(), 10, "the forwarder has noticed")
    assert list(agent.hooks.glob("*.jsonl"))
    proxy.mend()
    wait_until(lambda: server.call("run_attempts", "hooked") == 1, 20, "the records have arrived")
    wait_until(lambda: not list(agent.hooks.glob("*.jsonl")), 5, "the finished file is removed")


def test_an_agent_runs_as_an_ordinary_user_and_says_how_it_is(make_agent: MakeAgent) -> None:
    agent = make_agent("status").start()
    known = json.loads(agent.muster("status", "--json"))
    assert known["running"] is True
    assert agent.process is not None
    wait_until(lambda: _last_poll(agent), 20, "the agent has reached the server")
    assert json.loads(agent.muster("status", "--json"))["status"]["pid"] == agent.process.pid
    agent.kill()
    assert os.path.exists(agent.state / "spool.sqlite3")
    assert "not running" in _stdout_of_exit_3(agent)


def _last_poll(agent: LiveAgent) -> float | None:
    """None also while the agent has only begun: its first status is written after its first poll."""
    status = json.loads(agent.muster("status", "--json"))["status"]
    return status["last_poll_at"] if status else None


def _stdout_of_exit_3(agent: LiveAgent) -> str:
    command = [MUSTER, "agent", "status", "--state-dir", str(agent.state)]
    done_ = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done_.returncode == 3
    return done_.stdout
