"""Only a process that registered itself, still runs and is this user's may ever be signalled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster_agent.hooks import registry as registry_module
from muster_agent.hooks.paths import WriterName, registration_name
from muster_agent.hooks.processes import is_running, parse_stat, read_stat
from muster_agent.hooks.registry import RegisteredProcess, live_processes, register
from muster_agent.hooks.spool_reader import HookSpoolReader

TRAINER = (
    "import sys; from muster_agent.hooks import RunReporter\n"
    "reporter = RunReporter('run', 'run-1', rank=int(sys.argv[2]), directory=sys.argv[1]); reporter.process_started()\n"
    "while True:\n"
    "    print('up', flush=True)\n"
    "    if sys.stdin.readline() == 'close\\n': reporter.close()\n"
)


def start_trainer(directory: Path, rank: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", TRAINER, str(directory), str(rank)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = start_trainer(tmp_path, rank=3)
    wait_for(tmp_path, 1)
    yield process
    end(process)


def wait_for(directory: Path, count: int) -> list[RegisteredProcess]:
    for _ in range(1000):
        found = live_processes(directory, "run")
        if len(found) == count:
            return found
        subprocess.run(["sleep", "0.01"], check=True)
    raise AssertionError(f"never {count} live processes")


def test_a_running_registered_process_is_found(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    stat = read_stat(trainer.pid)
    assert stat is not None
    [found] = live_processes(tmp_path, "run")
    assert found == RegisteredProcess(
        pid=trainer.pid, start_ticks=stat.start_ticks, rank=3, attempt="run-1", source=found.source
    )
    assert (tmp_path / registration_name(found.writer)).exists()


def test_another_runs_process_is_not_found(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    assert live_processes(tmp_path, "other") == []


def test_ranks_come_in_order(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    second = start_trainer(tmp_path, rank=0)
    try:
        assert [one.rank for one in wait_for(tmp_path, 2)] == [0, 3]
    finally:
        end(second)


def test_a_process_that_closed_its_reporter_is_no_longer_found(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    """A notebook lives on after its training; it must not be killed for it."""
    assert trainer.stdin is not None
    trainer.stdin.write("close\n")
    trainer.stdin.flush()
    wait_for(tmp_path, 0)
    assert trainer.poll() is None


def test_a_killed_process_is_not_found_not_even_as_a_zombie(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    trainer.kill()
    os.waitid(os.P_PID, trainer.pid, os.WEXITED | os.WNOWAIT)
    assert read_stat(trainer.pid) is not None
    assert live_processes(tmp_path, "run") == []
    trainer.wait()
    assert live_processes(tmp_path, "run") == []


def test_a_reused_pid_is_not_found(tmp_path: Path) -> None:
    register(tmp_path, WriterName(os.getpid(), 1, "0123456789abcdef"), run="run", attempt="run-1", rank=0)
    assert live_processes(tmp_path, "run") == []


def test_a_process_of_another_user_is_not_found(
    tmp_path: Path, trainer: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(live_processes(tmp_path, "run")) == 1
    monkeypatch.setattr(registry_module, "owner_uid", lambda _pid: os.getuid() + 1)
    assert live_processes(tmp_path, "run") == []


def test_a_registration_written_by_another_user_is_not_believed(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(next(tmp_path.glob("*.process.json")), 65534, 65534)
    assert live_processes(tmp_path, "run") == []


@pytest.mark.parametrize("content", [b"", b"not json", b"{}", b"[]", b'{"run":1,"attempt":"a","rank":0}'])
def test_a_damaged_registration_is_not_believed(tmp_path: Path, content: bytes) -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    name = registration_name(WriterName(os.getpid(), stat.start_ticks, "0123456789abcdef"))
    (tmp_path / name).write_bytes(content)
    assert live_processes(tmp_path, "run") == []


def test_a_registration_behind_a_link_is_not_believed(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    registration = next(tmp_path.glob("*.process.json"))
    registration.rename(tmp_path / "elsewhere")
    registration.symlink_to(tmp_path / "elsewhere")
    assert live_processes(tmp_path, "run") == []


def test_the_agent_removes_the_registrations_of_the_dead_only(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    register(tmp_path, WriterName(os.getpid(), 1, "0123456789abcdef"), run="run", attempt="run-1", rank=0)
    HookSpoolReader(tmp_path).commit()
    assert [path.name.partition("-")[0] for path in tmp_path.glob("*.process.json")] == [str(trainer.pid)]


def test_a_folder_that_does_not_exist_holds_no_processes(tmp_path: Path) -> None:
    assert live_processes(tmp_path / "later", "run") == []


def test_a_command_name_with_spaces_and_brackets_does_not_shift_the_fields() -> None:
    fields = " ".join(str(number) for number in range(4, 22))
    stat = parse_stat(f"123 (a) R (b c) S {fields} 987654 23 24")
    assert (stat.state, stat.start_ticks) == ("S", 987654)


def test_a_process_that_does_not_exist_is_not_running() -> None:
    assert not is_running(2**22 + 1, 1)
