"""Objects of a bucket as shards: ranged GETs of many readers over kept connections, asked again where trouble passes.

Every reader has a connection of its own. An object is pinned by its ETag, of its listing or of the first answer: bytes
of an object that was written again meanwhile are never mixed with those of the older one.
"""

from __future__ import annotations

import errno
import random
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from muster_agent.storage.s3_answers import ObjectPin, Passing, SignatureRefused, require_same
from muster_agent.storage.s3_urls import ObjectUrls
from muster_agent.storage.s3_wire import Origin, Part, Wire, WireTimes, tls_context

ATTEMPTS = 8
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 8.0
RANGE_SECONDS = 100.0
"""Of one range with all its attempts: less than after which the engine gives the whole reader up."""
_LEFT_OUT_AFTER = 2
"""Failures in a row of one endpoint, while another one answers."""


@dataclass(slots=True, eq=False)
class _Reader:
    """What one thread has: its turn among endpoints, and its connections."""

    turn: int
    thread: threading.Thread
    times: WireTimes = field(default_factory=WireTimes)
    wires: dict[Origin, Wire] = field(default_factory=dict)


class Endpoints:
    """Which endpoint a reader uses: its own, unless that one is left out. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: Counter[int] = Counter()
        self._names: dict[int, str] = {}
        self.left_out: dict[str, str] = {}
        """By name, with the reason."""

    def choose(self, turn: int, count: int) -> int:
        """The number of an endpoint among `count`."""
        with self._lock:
            alive = [number for number in range(count) if self._names.get(number) not in self.left_out]
            return (alive or range(count))[turn % len(alive or range(count))]

    def met(self, number: int, name: str, trouble: Passing | None, count: int) -> None:
        """What came of a request to it. The last one that is left is never left out."""
        with self._lock:
            self._names[number] = name
            if trouble is None or not trouble.is_dead:
                self._failures[number] = 0
                return
            self._failures[number] += 1
            is_last = len(self.left_out) + 1 >= count
            if self._failures[number] >= _LEFT_OUT_AFTER and not is_last:
                self.left_out[name] = str(trouble)

    def names(self) -> list[str]:
        """Those that were asked."""
        with self._lock:
            return sorted(self._names.values())


class S3Reads:
    """What all shards of one pass share. `close` ends every read that is still under way."""

    def __init__(
        self, urls: ObjectUrls, *, tls: ssl.SSLContext | None = None, first_wait_seconds: float = FIRST_WAIT_SECONDS
    ) -> None:
        self._urls, self._tls, self._first_wait_seconds = urls, tls, first_wait_seconds
        self._endpoints = Endpoints()
        self._mine = threading.local()
        self._readers: list[_Reader] = []
        self._retries: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._parsed: dict[str, tuple[Origin, str]] = {}

    def open(self, key: str, pin: ObjectPin, mtime_ns: int) -> S3Shard:
        """The object that the pin names, which knows its size; no request is made before the first read."""
        return S3Shard(self, key, pin, mtime_ns)

    def look(self, key: str) -> ObjectPin:
        """What the object is now. Raises OSError."""
        found: list[ObjectPin] = []
        self._tried(key, lambda wire, target: found.append(wire.look(target)), lambda: len(found))
        return found[0]

    def fill(self, key: str, part: Part) -> None:
        """Bring what is missing of the part. Raises OSError."""
        self._tried(key, lambda wire, target: wire.read_range(target, part), lambda: part.done_bytes)

    def evidence(self) -> dict[str, Any]:
        """How the bytes came: requests, connections and their costs, summed over all readers. `retries` by what was
        met; JSON values only, and nothing secret."""
        times = WireTimes()
        with self._lock:
            for reader in self._readers:
                times.add(reader.times)
            retries = dict(self._retries)
        told: dict[str, Any] = {
            "endpoints": self._endpoints.names(),
            "addresses": sorted(times.addresses),
            "signed_by": self._urls.signed_by,
            "requests": times.requests,
            "connections": times.connections,
            "retries": retries,
            "resolve_seconds": times.resolve_seconds,
            "connect_seconds": times.connect_seconds,
            "first_byte_seconds": times.first_byte_seconds,
            "slowest_first_byte_seconds": times.slowest_first_byte_seconds,
            "body_seconds": times.body_seconds,
        }
        if times.tls_version:
            told |= {"tls": times.tls_version, "tls_seconds": times.tls_seconds}
        if self._endpoints.left_out:
            told["endpoints_left_out"] = dict(self._endpoints.left_out)
        return told

    def close(self) -> None:
        """Close all connections; readers that are inside a request leave it with an error."""
        self._closed.set()
        with self._lock:
            readers = list(self._readers)
        for reader in readers:
            is_idle = reader.thread is threading.current_thread() or not reader.thread.is_alive()
            for wire in list(reader.wires.values()):
                wire.cut()
                if is_idle:
                    wire.drop()

    # -- one request, as often as it takes -----------------------------------------------------------------------------
    def _tried(self, key: str, ask: Callable[[Wire, str], object], progress: Callable[[], int]) -> None:
        reader, count = self._reader(), self._urls.count(key)
        if not count:
            raise FileNotFoundError(errno.ENOENT, "no URL of it was given")
        trial = _Trial(self._first_wait_seconds)
        again = False
        while True:
            number = self._endpoints.choose(reader.turn + trial.moved, count)
            url = self._urls.url(key, number, again=again)
            if url is None:
                raise trial.refusal or PermissionError(errno.EACCES, "the store refused its signature")
            wire, target, name = self._wire(reader, url)
            before = progress()
            try:
                ask(wire, target)
            except SignatureRefused as refusal:
                # An old signature may only have run out of time; a fresh one that is refused too is an answer.
                if again:
                    raise
                trial.refusal, again = refusal, True
                continue
            except Passing as trouble:
                again = False
                self._endpoints.met(number, name, trouble, count)
                self._wait(trial, trouble, name, progress() > before)
                continue
            self._endpoints.met(number, name, None, count)
            return

    def _wait(self, trial: _Trial, trouble: Passing, name: str, moved_on: bool) -> None:
        """Until it is time to ask again. Raises OSError once that was done often enough."""
        seconds = trial.next_wait(trouble, moved_on)
        if seconds is None:
            told = f"{trouble}, {trial.count} times in {trial.seconds():.0f} s, from {name}"
            raise OSError(errno.EIO, told) from trouble
        with self._lock:
            self._retries[trouble.kind] += 1
        if self._closed.wait(seconds):
            raise OSError(errno.ECANCELED, "the reading was ended")

    def _reader(self) -> _Reader:
        reader: _Reader | None = getattr(self._mine, "reader", None)
        if reader is None:
            with self._lock:
                reader = self._mine.reader = _Reader(len(self._readers), threading.current_thread())
                self._readers.append(reader)
        return reader

    def _wire(self, reader: _Reader, url: str) -> tuple[Wire, str, str]:
        origin, target = self._parsed.get(url) or self._parse(url)
        wire = reader.wires.get(origin)
        if wire is None:
            tls = self._verified_tls() if origin.scheme == "https" else None
            wire = reader.wires[origin] = Wire(origin, tls, reader.times, reader.turn, self._urls.networks)
            if self._closed.is_set():
                wire.cut()
        return wire, target, origin.name

    def _parse(self, url: str) -> tuple[Origin, str]:
        """Kept, since every range of an object has the same."""
        parts = urlsplit(url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        parsed = self._parsed[url] = Origin.of(parts), target
        return parsed

    def _verified_tls(self) -> ssl.SSLContext:
        with self._lock:
            if self._tls is None:
                self._tls = tls_context()
            return self._tls


class _Trial:
    """How often one range has been asked for, and when it is asked for again."""

    def __init__(self, first_wait_seconds: float) -> None:
        self._first_wait_seconds = first_wait_seconds
        self._began_at = time.monotonic()
        self._in_vain = 0
        self.count = 0
        self.moved = 0
        """How many endpoints on from the reader's own it is by now."""
        self.refusal: SignatureRefused | None = None

    def next_wait(self, trouble: Passing, moved_on: bool) -> float | None:
        """Seconds, ever more of them while nothing comes; None once it is enough."""
        self.count += 1
        self._in_vain = 1 if moved_on else self._in_vain + 1
        self.moved += trouble.is_dead
        doubled = self._first_wait_seconds * 2 ** (self._in_vain - 1) * random.uniform(0.75, 1.25)
        seconds = min(max(doubled, trouble.after_seconds), LONGEST_WAIT_SECONDS)
        enough = self._in_vain >= ATTEMPTS or self.seconds() + seconds > RANGE_SECONDS
        return None if enough else seconds

    def seconds(self) -> float:
        """Since the first attempt."""
        return time.monotonic() - self._began_at


class S3Shard:
    """One object; see `ShardSource`. It stays the object that it was when it was opened: once it is written again,
    reading it raises ESTALE."""

    def __init__(self, reads: S3Reads, key: str, pin: ObjectPin, mtime_ns: int) -> None:
        self._reads, self._key, self._pin = reads, key, pin
        self._lock = threading.Lock()
        self.size_bytes = pin.size_bytes or 0
        self.mtime_ns = mtime_ns
        self.network_bytes = 0

    def read_into(self, buffer: memoryview, offset_bytes: int, length_bytes: int) -> int:
        """See `ShardSource.read_into`."""
        length_bytes = min(length_bytes, self.size_bytes - offset_bytes)
        if length_bytes <= 0:
            return 0
        part = Part(buffer, offset_bytes, length_bytes, self._pin)
        self._reads.fill(self._key, part)
        with self._lock:
            require_same(self._pin, part.pin)
            self._pin = part.pin.over(self._pin)
            self.network_bytes += part.done_bytes
        return part.done_bytes

    def close(self) -> None:
        """Connections belong to the readers, and stay for their next shard."""
