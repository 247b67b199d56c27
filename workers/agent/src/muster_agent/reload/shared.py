"""Bytes that one process reads and many on the same host use: an arena in a memory file, whose descriptor is handed on.

As a program it is one of those ranks: it attaches the memory, reads every byte of it once, and prints what it found as
one JSON line. It ends with the process that started it, so that a host's memory is not held by what nobody waits for.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import xxhash

from muster_agent.reload.arena import Arena
from muster_agent.reload.plan import Extent

ATTACH_SECONDS = 600.0
_STEP_BYTES = 4 * 1024 * 1024
_LOOK_SECONDS = 0.2
_ALONE = 3
"""The exit code of a rank whose starter is gone."""


def _go_on() -> None:
    return


class NotShared(Exception):
    """A rank could not attach, or saw other bytes; the message says which and why."""


class SharedArena(Arena):
    """See `Arena`. Other processes map the descriptor `fd`; `places` says where in the file each shard lies. Raises
    NotShared too."""

    def __init__(self, held: Sequence[Extent]) -> None:
        self.fd = -1
        try:
            super().__init__(held, self._map)
        except BaseException:
            if self.fd >= 0:
                os.close(self.fd)
            raise

    def _map(self, size_bytes: int) -> mmap.mmap:
        try:
            self.fd = os.memfd_create("muster-shards", os.MFD_CLOEXEC)
            os.ftruncate(self.fd, size_bytes)
            return mmap.mmap(self.fd, size_bytes)
        except OSError as error:
            raise NotShared(f"this host gives no shared memory of {size_bytes} bytes: {error.strerror}") from error

    def places(self) -> list[tuple[int, int]]:
        """(offset in the memory file, length in bytes) of each shard."""
        return [(self._start + begin, part.length_bytes) for begin, part in zip(self._begins, self.held, strict=True)]

    def close(self) -> None:
        """See `Arena.close`. Ranks that have attached keep the memory until they end."""
        super().close()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def deliver(arena: SharedArena, ranks: int, check: Callable[[], None] = _go_on) -> dict[str, Any]:
    """Let `ranks` processes attach the arena at the same time and read all of it; what it took, as evidence. Bytes are
    read from the storage once. `check` is called several times a second, and what it raises ends the ranks. Raises
    NotShared."""
    places = arena.places()
    expected = _digest(memoryview(arena._mapping), places, check)
    command = [sys.executable, "-m", __name__, str(arena.fd), json.dumps(places), str(os.getpid())]
    began = time.monotonic()
    with contextlib.ExitStack() as cleanup:
        started = [_start(rank, command, arena.fd, cleanup, check) for rank in range(ranks)]
        answers = [_answer(rank, process, expected, check) for rank, process in enumerate(started)]
    unique = sum(size for _, size in places)
    slowest = max(answer["seconds"] for answer in answers)
    return {
        "ranks": ranks,
        "unique_bytes": unique,
        "delivered_bytes": sum(answer["bytes"] for answer in answers),
        "slowest_rank_seconds": slowest,
        "seconds": time.monotonic() - began,
    }


def _start(
    rank: int, command: Sequence[str], fd: int, cleanup: contextlib.ExitStack, check: Callable[[], None]
) -> subprocess.Popen[bytes]:
    check()
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[fd])
    except OSError as error:
        raise NotShared(f"rank {rank} could not be started: {error.strerror}") from error
    cleanup.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _answer(rank: int, process: subprocess.Popen[bytes], expected: str, check: Callable[[], None]) -> dict[str, Any]:
    output = _output_of(rank, process, check)
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError as error:
        raise NotShared(f"rank {rank} could not attach the shared memory (exit code {process.returncode})") from error
    if answer["digest"] != expected:
        raise NotShared(f"rank {rank} sees other bytes than were read")
    return answer


def _output_of(rank: int, process: subprocess.Popen[bytes], check: Callable[[], None]) -> bytes:
    until = time.monotonic() + ATTACH_SECONDS
    while True:
        check()
        try:
            return process.communicate(timeout=_LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired as error:
            if time.monotonic() > until:
                told = f"rank {rank} did not read the shared memory within {ATTACH_SECONDS:.0f} s"
                raise NotShared(told) from error


def _digest(memory: memoryview, places: Sequence[tuple[int, int]], check: Callable[[], None] = _go_on) -> str:
    hasher = xxhash.xxh3_64()
    with memory:
        for offset, size in places:
            for begin in range(offset, offset + size, _STEP_BYTES):
                check()
                hasher.update(memory[begin : min(begin + _STEP_BYTES, offset + size)])
    return hasher.hexdigest()


def main(arguments: Sequence[str]) -> int:
    """`FD PLACES PARENT`: attach, read everything, say what it was; 3 where the process PARENT ends meanwhile."""
    fd, places, parent = int(arguments[0]), json.loads(arguments[1]), int(arguments[2])

    def require_parent() -> None:
        if os.getppid() != parent:
            sys.exit(_ALONE)

    began = time.monotonic()
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapping:
        digest = _digest(memoryview(mapping), places, require_parent)
    seconds = time.monotonic() - began
    total = sum(size for _, size in places)
    sys.stdout.write(json.dumps({"bytes": total, "seconds": seconds, "digest": digest}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
