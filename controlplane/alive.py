"""Signs of life of a worker and of beat for whoever starts them: a file that is touched (`MUSTER_ALIVE_FILE`, for the
probes of containers), and systemd's readiness and watchdog where it asks for them. Both come from the main loop itself,
so one that hangs gives none."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from celery import signals
from celery.beat import PersistentScheduler

LEAST_SECONDS = 1.0
_last = float("-inf")


def give_sign() -> None:
    """At most once a second. Never raises: a full disk must not end the work that this only tells of."""
    global _last
    if time.monotonic() - _last < LEAST_SECONDS:
        return
    _last = time.monotonic()
    try:
        if path := os.environ.get("MUSTER_ALIVE_FILE"):
            Path(path).touch()
        if address := os.environ.get("NOTIFY_SOCKET"):
            _tell_systemd(address, b"READY=1\nWATCHDOG=1")
    except OSError:
        return


def _tell_systemd(address: str, message: bytes) -> None:
    """`sd_notify`; a name that begins with @ is an abstract socket's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
        notifier.sendto(message, "\0" + address[1:] if address.startswith("@") else address)


def _on_worker_signal(**_told: Any) -> None:
    give_sign()


def watch_workers() -> None:
    """Have the worker of this process give signs: when it takes work, and with each heartbeat of its loop (2 s)."""
    signals.worker_ready.connect(_on_worker_signal, weak=False)
    signals.heartbeat_sent.connect(_on_worker_signal, weak=False)


class WatchedScheduler(PersistentScheduler):
    """Beat's scheduler, which gives a sign whenever it looks what is due."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        give_sign()
        return float(super().tick(*args, **kwargs))
