"""Breaking one worker: only what registered itself, only what opted in, only commands of the node's own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from muster_agent.hooks.registry import live_processes
from muster_agent.hooks.spool_reader import HookSpoolReader
from muster_agent.jobs.control import JobControl
from muster_agent.protocol.wire import DisruptBody, DisruptParams
from muster_agent.tasks.context import TaskContext, TaskFailed
from muster_agent.tasks.disrupt import prepare
from muster_agent.tasks.limits import Limits
from muster_agent.tasks.link_fault import LinkFault
from muster_agent.tasks.roots import Roots

TRAINER = (
    "import sys, time\n"
    "from muster_agent.hooks import RunReporter\n"
    "reporter = RunReporter('llm', 'llm-1', rank=0, directory=sys.argv[1], allow_injection=sys.argv[2] == 'yes')\n"
    "reporter.process_started()\n"
    "for step in range(10_000):\n"
    "    time.sleep(0.01)\n"
    "    reporter.step(step)\n"
)


class Reported:
    def __init__(self) -> None:
        self.faults: list[dict[str, object]] = []

    def begin(self, phase: str) -> None: ...

    def end(self, phase: str) -> None: ...

    def log(self, message: str) -> None: ...

    def injected(self, at_unix_seconds: float, mono_seconds: float, data: dict[str, object]) -> None:
        self.faults.append(data)


def context(folder: Path, reported: Reported | None = None, **links: LinkFault) -> TaskContext:
    return TaskContext(
        roots=Roots([]),
        copy_roots=Roots([]),
        limits=Limits(),
        control=JobControl(),
        reporter=reported or Reported(),
        clock_offset_seconds=lambda: 100.0,
        hook_directory=folder,
        links=links,
    )


@pytest.fixture
def trainer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", TRAINER, str(tmp_path), getattr(request, "param", "yes")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not live_processes(tmp_path, "llm"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield process
    process.kill()
    process.communicate()


def params(**fields: object) -> DisruptParams:
    return DisruptParams(run="llm", attempt="llm-1", **fields)  # type: ignore[arg-type]


def test_a_trainer_that_opted_in_raises_at_its_next_step_and_says_when(
    tmp_path: Path, trainer: subprocess.Popen[str]
) -> None:
    reported, before = Reported(), time.time()
    body = prepare(params(fault="exception"), context(tmp_path, reported))()
    assert isinstance(body, DisruptBody)
    assert (body.pid, body.signal_name) == (trainer.pid, "")
    assert before + 100 <= body.injected_unix_seconds <= time.time() + 100
    _out, error = trainer.communicate(timeout=20)
    assert trainer.returncode == 1
    assert "InjectedFault: a failover drill of llm asked this process to fail here" in error
    records = HookSpoolReader(tmp_path, state_path=tmp_path / "offsets").read_new()
    [raised] = [record for record in records if record.kind == "fault_injected"]
    assert raised.at_unix_seconds >= before
    assert raised.pid == trainer.pid
    assert list(tmp_path.glob("*.inject")) == [], "asking counts once"
    assert reported.faults == [{"pid": trainer.pid, "run": "llm", "attempt": "llm-1"}]


@pytest.mark.parametrize("trainer", ["no"], indirect=True)
def test_a_trainer_that_did_not_opt_in_is_left_alone(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    with pytest.raises(TaskFailed, match="allow_injection=True") as refused:
        prepare(params(fault="exception"), context(tmp_path))
    assert refused.value.code == "injection_not_allowed"
    assert trainer.poll() is None


def test_a_link_is_broken_by_the_nodes_own_command_and_by_no_other(
    tmp_path: Path, trainer: subprocess.Popen[str]
) -> None:
    mark = tmp_path / "broken"
    links = {"ib0": LinkFault(argv=(sys.executable, "-c", f"open({str(mark)!r}, 'w')"), seconds=30.0)}
    with pytest.raises(TaskFailed, match="has no link 'eth0'; it has: ib0"):
        prepare(params(fault="link", link="eth0"), context(tmp_path, **links))
    run = prepare(params(fault="link", link="ib0"), context(tmp_path, **links))
    assert not mark.exists(), "nothing before the start"
    body = run()
    assert isinstance(body, DisruptBody)
    assert mark.exists()
    assert (body.pid, body.undone_after_seconds) == (None, 30.0)


def test_a_link_command_that_fails_is_no_fault(tmp_path: Path, trainer: subprocess.Popen[str]) -> None:
    reported = Reported()
    failing = LinkFault(argv=(sys.executable, "-c", "import sys; sys.exit('no such device')"), seconds=30.0)
    with pytest.raises(TaskFailed, match="ended with 1: no such device"):
        prepare(params(fault="link", link="ib0"), context(tmp_path, reported, ib0=failing))()
    gone = LinkFault(argv=("/nowhere/break-link",), seconds=30.0)
    with pytest.raises(TaskFailed, match="cannot be run"):
        prepare(params(fault="link", link="ib0"), context(tmp_path, reported, ib0=gone))()
    assert reported.faults == []


def test_a_link_without_a_worker_of_that_run_is_not_touched(tmp_path: Path) -> None:
    links = {"ib0": LinkFault(argv=("/bin/false",), seconds=30.0)}
    with pytest.raises(TaskFailed) as refused:
        prepare(params(fault="link", link="ib0"), context(tmp_path, **links))
    assert refused.value.code == "process_not_registered"


@pytest.mark.parametrize(
    ("fields", "code"), [({"fault": "volcano"}, "fault_not_known"), ({"signal_name": ""}, "signal_not_allowed")]
)
def test_what_this_agent_does_not_know_is_refused(tmp_path: Path, fields: dict[str, object], code: str) -> None:
    with pytest.raises(TaskFailed) as refused:
        prepare(params(**fields), context(tmp_path))
    assert refused.value.code == code
