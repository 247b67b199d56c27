"""The team's own loader: only by name, only through a sudo rule, in its own process, beside the engine."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.loader_compare import Loader, LoaderRefused, command, require_rule, run_loader, side_by_side
from muster_agent.protocol.results import LoaderReport, ReloadReport

USER = pwd.getpwuid(os.getuid()).pw_name
MIB = 1 << 20
BURN = """
import json, sys, time
began = time.process_time()
data = open(sys.argv[1] + "/shard", "rb").read()
while time.process_time() - began < 0.4: sum(data[:1000])
print("loading", file=sys.stderr)
print(json.dumps({"bytes": len(data), "phases": {"read": 0.1, "unpickle": 0.3}}))
"""


def has_rule() -> bool:
    """Whether this machine lets this user run anything as itself through sudo, as a rule would."""
    if shutil.which("sudo") is None:
        return False
    return subprocess.run(["sudo", "-n", "-l", "-u", USER, "--", sys.executable], capture_output=True).returncode == 0


needs_sudo = pytest.mark.skipif(not has_rule(), reason="sudo lets this user run nothing without a password")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shard").write_bytes(os.urandom(8 * MIB))
    return tmp_path


def loader(script: str, **given: object) -> Loader:
    return Loader(argv=(sys.executable, "-c", script, "{path}"), user=USER, **given)  # type: ignore[arg-type]


def run(place: Path, script: str, **given: object) -> LoaderReport:
    return run_loader(loader(script, **given), str(place), [str(place / "shard")], JobControl(), cold=True)


@needs_sudo
def test_a_loader_is_timed_with_its_processor_time_and_what_it_tells_of_itself(place: Path) -> None:
    report = run(place, BURN)
    assert (report.error, report.bytes, report.phases) == ("", 8 * MIB, {"read": 0.1, "unpickle": 0.3})
    assert report.cpu_seconds >= 0.4 and report.seconds >= 0.4 and report.peak_rss_bytes > 8 * MIB


@needs_sudo
def test_a_loader_that_tells_nothing_or_fails_is_measured_and_its_last_words_are_kept(place: Path) -> None:
    report = run(place, "import sys; print('no such key: optimizer'); sys.exit(3)")
    assert report.error == "it ended with status 3: no such key: optimizer"
    assert (report.bytes, report.phases) == (8 * MIB, {})


@needs_sudo
@pytest.mark.parametrize("late", [False, True])
def test_cancelled_or_late_it_ends_with_all_its_children(place: Path, late: bool) -> None:
    pid_file, control = place / "pid", JobControl()
    script = (
        "import os, subprocess; child = subprocess.Popen(['sleep', '60']); "
        f"open({str(pid_file)!r}, 'w').write(str(child.pid)); child.wait()"
    )
    if not late:
        threading.Timer(1.5, control.cancel).start()
    began = time.monotonic()
    with pytest.raises(LoaderRefused if late else Cancelled):
        run_loader(loader(script, max_seconds=1.5 if late else 60.0), str(place), [], control, cold=False)
    assert time.monotonic() - began < 15
    pid = int(pid_file.read_text())
    for _try in range(50):
        if not Path(f"/proc/{pid}").exists() or ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.1)
    pytest.fail("the loader's child outlived it")


def test_without_a_rule_nothing_runs(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = tmp_path / "bin" / "sudo"
    refusing.parent.mkdir()
    refusing.write_text('#!/bin/sh\nprintf "%s " "$@" >> ' + f"{tmp_path}/asked\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{refusing.parent}:{os.environ['PATH']}")
    with pytest.raises(LoaderRefused, match="administrator has to install one"):
        run(place, "open('/tmp/never', 'w')")
    assert (tmp_path / "asked").read_text().startswith("-n -l -u")
    assert (tmp_path / "asked").read_text().count("-n ") == 1  # asked about, and then not run
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(LoaderRefused, match="sudo could not be asked"):
        require_rule(loader(""), [sys.executable])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Loader(argv=(), user="trainer"), "absolute path"),
        (Loader(argv=("load.py",), user="trainer"), "absolute path"),
        (Loader(argv=("/opt/load",), user=""), "names no user"),
        (Loader(argv=("/opt/load",), user="-u root"), "names no user"),
    ],
)
def test_a_loader_that_is_none_is_refused(given: Loader, said: str) -> None:
    with pytest.raises(LoaderRefused, match=said):
        command(given, "/ckpt")


def test_the_path_goes_where_the_argv_says_and_is_one_word() -> None:
    path = "/ckpt/step 1; rm -rf /"
    assert command(Loader(argv=("/opt/load", "{path}", "--cpu"), user="t"), path) == ["/opt/load", path, "--cpu"]
    assert command(Loader(argv=("/opt/load",), user="t"), path) == ["/opt/load", path]


def test_both_stand_side_by_side_by_their_processor_time_for_each_gigabyte() -> None:
    fields = {"requested": "auto", "effective": "host_direct", "evidence": {}, "reason": "", "cache_state": "cold"}
    fields |= {"cached_ratio_before": 0.0, "phases": {}, "busy": {}, "peak_rss_bytes": 0, "verified": None}
    engine = ReloadReport(bytes=2_000_000_000, seconds=1.0, bytes_per_second=2e9, cpu_seconds=0.2, **fields)  # type: ignore[arg-type]
    own = LoaderReport(seconds=4.0, cpu_seconds=1.2, peak_rss_bytes=0, bytes=2_000_000_000)
    told = side_by_side(engine, own)
    assert told["engine_cpu_seconds_per_gb"] == pytest.approx(0.1) and told["own_cpu_seconds_per_gb"] == pytest.approx(
        0.6
    )
    assert told["cpu_ratio"] == pytest.approx(6) and told["time_ratio"] == pytest.approx(4)
    nothing = side_by_side(engine, LoaderReport(seconds=1.0, cpu_seconds=1.0, peak_rss_bytes=0, bytes=0))
    assert (nothing["own_cpu_seconds_per_gb"], nothing["cpu_ratio"]) == (None, None)
    assert json.dumps(told)
