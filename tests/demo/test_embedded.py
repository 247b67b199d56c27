"""The embedded stack's processes end with the one that started them, and nobody else's settings reach them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from controlplane import env
from deploy import embedded
from deploy.embedded import EmbeddedStack, clean_environment, open_local

PARENT = """
import os, sys
from pathlib import Path
from deploy.embedded import Children
child = Children(Path(sys.argv[1])).start("child", ["sleep", "600"], dict(os.environ))
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_children_of_a_parent_that_was_killed_end_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    pid = int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout)
    deadline = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def test_settings_of_another_muster_and_a_proxy_do_not_reach_the_embedded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUSTER_TOKEN", "MUSTER_SECRET_KEY_FILE", "DATABASE_URL_FILE", "REDIS_URL", "DJANGO_SETTINGS_MODULE"):
        monkeypatch.setenv(name, "somebody's")
    monkeypatch.setenv("no_proxy", "intranet.example")
    kept = clean_environment()
    assert "somebody's" not in kept.values()
    assert kept["no_proxy"] == "intranet.example,127.0.0.1"
    assert kept["PATH"] == os.environ["PATH"]


def test_our_own_server_is_asked_directly_where_a_proxy_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")
    with pytest.raises(OSError, match="refused"):
        open_local(f"http://127.0.0.1:{embedded.free_port()}/", 5)


@pytest.mark.parametrize("name", ["with space", "100%25", "what?#now"])
def test_a_folder_of_any_name_holds_the_database(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / name
    stack = EmbeddedStack(folder)
    try:
        monkeypatch.setenv("DATABASE_URL", stack.environment["DATABASE_URL"])
        assert env.database("DATABASE_URL", "")["NAME"] == str(folder / "muster.sqlite3")
    finally:
        stack.stop()


def test_a_long_temporary_folder_does_not_make_a_socket_path_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    stack = EmbeddedStack(tmp_path)
    try:
        assert len(stack.environment["REDIS_URL"]) < 107
    finally:
        stack.stop()
