"""Bytes that one process reads and many on the same host use: an arena in a memory file, whose descriptor is handed on.

As a program it is one of those ranks: it attaches the memory, reads every byte of it once, and prints what it found as
one JSON line.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import xxhash

from muster_agent.reload.arena import Arena

ATTACH_SECONDS = 600.0
_STEP_BYTES = 4 * 1024 * 1024


class NotShared(Exception):
    """A rank could not attach, or saw other bytes; the message says which and why."""


class SharedArena(Arena):
    """See `Arena`. Other processes map the descriptor `fd`; `places` says where in the file each shard lies."""

    def __init__(self, sizes_bytes: Sequence[int]) -> None:
        self.fd = os.memfd_create("muster-shards", os.MFD_CLOEXEC)
        try:
            super().__init__(sizes_bytes, self._map)
        except BaseException:
            os.close(self.fd)
            raise

    def _map(self, size_bytes: int) -> mmap.mmap:
        os.ftruncate(self.fd, size_bytes)
        return mmap.mmap(self.fd, size_bytes)

    def places(self) -> list[tuple[int, int]]:
        """(offset in the memory file, length in bytes) of each shard."""
        return [(self._start + begin, size) for begin, size in zip(self._begins, self._sizes, strict=True)]

    def close(self) -> None:
        """See `Arena.close`. Ranks that have attached keep the memory until they end."""
        super().close()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def deliver(arena: SharedArena, ranks: int) -> dict[str, Any]:
    """Let `ranks` processes attach the arena at the same time and read all of it; what it took, as evidence. Bytes are
    read from the storage once. Raises NotShared."""
    places = arena.places()
    expected = _digest(memoryview(arena._mapping), places)
    command = [sys.executable, "-m", __name__, str(arena.fd), json.dumps(places)]
    began = time.monotonic()
    started = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[arena.fd])
        for _ in range(ranks)
    ]
    try:
        answers = [_answer(rank, process, expected) for rank, process in enumerate(started)]
    finally:
        for process in started:
            process.kill()
            process.wait()
    unique = sum(size for _, size in places)
    slowest = max(answer["seconds"] for answer in answers)
    return {
        "ranks": ranks,
        "unique_bytes": unique,
        "delivered_bytes": sum(answer["bytes"] for answer in answers),
        "slowest_rank_seconds": slowest,
        "seconds": time.monotonic() - began,
    }


def _answer(rank: int, process: subprocess.Popen[bytes], expected: str) -> dict[str, Any]:
    try:
        output, _ = process.communicate(timeout=ATTACH_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NotShared(f"rank {rank} did not read the shared memory within {ATTACH_SECONDS:.0f} s") from error
    try:
        answer: dict[str, Any] = json.loads(output)
    except ValueError as error:
        raise NotShared(f"rank {rank} could not attach the shared memory (exit code {process.returncode})") from error
    if answer["digest"] != expected:
        raise NotShared(f"rank {rank} sees other bytes than were read")
    return answer


def _digest(memory: memoryview, places: Sequence[tuple[int, int]]) -> str:
    hasher = xxhash.xxh3_64()
    with memory:
        for offset, size in places:
            for begin in range(offset, offset + size, _STEP_BYTES):
                hasher.update(memory[begin : min(begin + _STEP_BYTES, offset + size)])
    return hasher.hexdigest()


def main(arguments: Sequence[str]) -> int:
    """`FD PLACES`: attach, read everything, say what it was."""
    fd, places = int(arguments[0]), json.loads(arguments[1])
    began = time.monotonic()
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapping:
        digest = _digest(memoryview(mapping), places)
    seconds = time.monotonic() - began
    total = sum(size for _, size in places)
    sys.stdout.write(json.dumps({"bytes": total, "seconds": seconds, "digest": digest}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
