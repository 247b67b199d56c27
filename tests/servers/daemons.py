"""What every server of the tests needs: ports, and an end."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Different ones on loopback, free a moment ago."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _number in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def end(process: subprocess.Popen[bytes], seconds: float = 10) -> None:
    """Politely, then at once."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
