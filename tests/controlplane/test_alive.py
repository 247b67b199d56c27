"""A worker and beat give signs of life: a file that is touched, and systemd's readiness and watchdog."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import alive


@pytest.fixture(autouse=True)
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "_last", float("-inf"))


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What stands at NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0muster-{os.getpid()}-{tmp_path.name}")
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@muster-{os.getpid()}-{tmp_path.name}")
        yield listener


def test_a_sign_touches_the_file_and_tells_systemd(
    tmp_path: Path, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ALIVE_FILE", str(tmp_path / "alive"))
    alive.give_sign()
    assert (tmp_path / "alive").exists()
    assert systemd.recv(100).split(b"\n") == [b"READY=1", b"WATCHDOG=1"]


def test_signs_are_given_once_a_second_at_most(systemd: socket.socket) -> None:
    alive.give_sign()
    alive.give_sign()
    systemd.recv(100)
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(100)


def test_a_sign_that_cannot_be_given_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_ALIVE_FILE", "/nonexistent/folder/alive")
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/socket")
    alive.give_sign()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["worker", "-Q", "alive", "-c", "1", "--loglevel", "WARNING"],
        ["beat", "--schedule", "{folder}/beat", "--pidfile=", "--loglevel", "WARNING"],
    ],
    ids=["worker", "beat"],
)
def test_the_real_process_gives_signs_until_it_is_stopped(
    arguments: list[str], tmp_path: Path, systemd: socket.socket
) -> None:
    sign = tmp_path / "alive"
    command = [sys.executable, "-m", "celery", "-A", "controlplane"]
    environment = {**os.environ, "MUSTER_ALIVE_FILE": str(sign), "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
    process = subprocess.Popen(
        [*command, *[word.format(folder=tmp_path) for word in arguments]],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert systemd.recv(100).startswith(b"READY=1")
        first = sign.stat().st_mtime_ns
        assert b"WATCHDOG=1" in systemd.recv(100)
        assert sign.stat().st_mtime_ns > first
        os.kill(process.pid, 19)  # a process that hangs
        time.sleep(2)
        stopped = sign.stat().st_mtime_ns
        time.sleep(4)
        assert sign.stat().st_mtime_ns == stopped
    finally:
        process.kill()
        process.wait()
