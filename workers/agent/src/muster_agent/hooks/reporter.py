"""`RunReporter`: how a training process says what it does, without ever getting in its own way."""

from __future__ import annotations

import atexit
import contextlib
import math
import numbers
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from muster_agent.hooks.injection import InjectedFault, take_injection
from muster_agent.hooks.paths import WriterName, hook_directory
from muster_agent.hooks.processes import read_stat
from muster_agent.hooks.scheduler_job import scheduler_job
from muster_agent.hooks.spool_writer import SpoolWriter
from muster_agent.protocol.wire import HookRecord

CLOSE_TIMEOUT_SECONDS = 2.0


def attempt_of(attempt: str, environment: Mapping[str, str]) -> str:
    """`attempt`, with `+N` in the Nth restart inside one launch: torchrun, and NVRx's launcher that is built on it,
    start the processes anew and count in this variable. So each restart is a launch with a way back of its own."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "")
    return f"{attempt}+{count}" if count.isascii() and count.isdigit() and int(count) > 0 else attempt


class RunReporter:
    """Reports one process of one run attempt to the agent on this node.

    No method raises or blocks (but see `allow_injection`): each takes the time, queues a record and returns. A daemon
    thread appends it to this
    process's file in the hook folder (`directory`, else MUSTER_HOOK_DIR, else `<tempdir>/muster-hooks-<uid>`). What
    cannot be written is dropped and counted. After a fork the child writes a file of its own, and only once it reports.

    run: the training run's name. attempt: one launch of it; every rank of a launch uses the same, and a restart inside
    it is told apart by torchrun's own count. rank: None for processes beside the ranks, such as a launcher.
    allow_injection: a failover drill may have `step` raise `InjectedFault` here, as a bug in the training code would.
    at_unix_seconds: when everything that this reporter reports was, for one that tells of what has just happened; None:
    as it is told.
    """

    def __init__(
        self,
        run: str,
        attempt: str,
        rank: int | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        allow_injection: bool = False,
        at_unix_seconds: float | None = None,
    ) -> None:
        self.run = run
        self.attempt = attempt_of(attempt, os.environ)
        self.rank = rank
        self._directory = hook_directory(directory)
        self._allow_injection = allow_injection
        self._at_unix_seconds = at_unix_seconds
        self._pid = 0
        self._source = ""
        self._name: WriterName | None = None
        self._writer: SpoolWriter | None = None
        self._started = False
        self._closed = False
        # Here, where one thread is at work, so that threads that report at once share one writer.
        with contextlib.suppress(Exception):
            self._own_writer()
        atexit.register(self.close)

    def process_started(self) -> None:
        """This process is a rank of the run. Call it first: it is also what lets a drill on this node signal it."""
        opted_in = {"allow_injection": True} if self._allow_injection else {}
        self._report("process_started", data={**scheduler_job(), **opted_in})
        self._started = True

    def step(self, step: int, loss: float | None = None) -> None:
        """Step `step` is computed. `loss` is a number; for a tensor pass `loss.item()` where you have it anyway, as
        converting one here would wait for the GPU."""
        self._report("step", step=step, loss=loss)
        if self._allow_injection:
            self._raise_if_asked()

    def save_started(self, step: int) -> None:
        """A save of the state after `step` begins; training waits from here unless saves are asynchronous."""
        self._report("save_started", step=step)

    def save_finished(self, step: int, path: str | os.PathLike[str]) -> None:
        """The checkpoint of `step` is committed at `path`."""
        self._report("save_finished", step=step, path=path)

    def resumed_from(self, step: int, path: str | os.PathLike[str]) -> None:
        """The whole state of the checkpoint at `path` is in place; the next step is `step` + 1."""
        self._report("resumed_from", step=step, path=path)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase of a restart (a word of `muster_agent.protocol.phases`). An exception passes through and is
        noted on the end record."""
        self.phase_began(name)
        try:
            yield
        except BaseException as problem:
            self.phase_ended(name, failed=type(problem).__name__)
            raise
        self.phase_ended(name)

    def phase_began(self, name: str) -> None:
        self._report("phase", phase=name, edge="begin")

    def phase_ended(self, name: str, *, failed: str | None = None) -> None:
        """For a phase that another process began (`launch`), or that failed: `failed` says how."""
        self._report("phase", phase=name, edge="end", data={"failed": failed} if failed else {})

    def failure_detected(self, **detail: Any) -> None:
        """For schedulers: the attempt is known to have died. `detail` is JSON-like: exit status, signal, node."""
        self._report("failure_detected", data={**scheduler_job(), **detail})

    def launch_started(self, **detail: Any) -> None:
        """For schedulers: where the attempt runs next is decided, and its launch begins."""
        self._report("launch_started", data={**scheduler_job(), **detail})

    def close(self, timeout_seconds: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Write what is queued, waiting at most `timeout_seconds`. Runs by itself at a normal exit; a second call,
        or one in a forked child that reported nothing, does nothing."""
        writer, self._writer = self._writer, None
        if self._closed or writer is None or self._pid != os.getpid():
            return
        if self._started:
            writer.put(self._record("process_ended", {}))
        self._closed = True
        atexit.unregister(self.close)
        writer.close(timeout_seconds)

    def __enter__(self) -> RunReporter:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _problem: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _raise_if_asked(self) -> None:
        name = self._name
        if name is not None and name.pid == os.getpid() and take_injection(self._directory, name):
            self._report("fault_injected")
            raise InjectedFault(f"a failover drill of {self.run} asked this process to fail here")

    def _report(self, kind: str, **fields: Any) -> None:
        writer: SpoolWriter | None = None
        try:
            writer = self._own_writer()
            if writer is not None:
                writer.put(self._record(kind, _plain(fields)))
        except Exception as problem:
            # A hook that raised would end the training that it watches.
            if writer is not None:
                writer.drop(problem)

    def _own_writer(self) -> SpoolWriter | None:
        """This process's writer; a forked child, whose threads are gone, makes its own at its first record."""
        if self._closed:
            return None
        pid = os.getpid()
        if self._writer is None or self._pid != pid:
            stat = read_stat(pid)
            name = WriterName(pid, stat.start_ticks if stat else 0, secrets.token_hex(8))
            self._pid, self._source, self._started, self._name = pid, name.source, False, name
            self._writer = SpoolWriter(self._directory, name)
        return self._writer

    def _record(self, kind: str, fields: dict[str, Any]) -> HookRecord:
        now = time.time()
        at = now if self._at_unix_seconds is None else self._at_unix_seconds
        return HookRecord(
            source=self._source,
            seq=0,  # numbered by the writer, in the order of the file
            kind=kind,
            run=self.run,
            attempt=self.attempt,
            at_unix_seconds=at,
            mono_seconds=time.monotonic() - (now - at),
            pid=self._pid,
            rank=self.rank,
            **fields,
        )


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """The caller's values as a record holds them: numpy integers become int, paths text, odd losses a note."""
    plain = dict(fields)
    if plain.get("step") is not None:
        plain["step"] = int(plain["step"])
    if "path" in plain:
        plain["data"] = {"path": str(plain.pop("path"))}
    loss = plain.get("loss")
    if loss is None:
        return plain
    if not isinstance(loss, numbers.Real):
        return {**plain, "loss": None, "data": {"loss_ignored": type(loss).__name__}}
    value = float(loss)
    return (
        {**plain, "loss": value} if math.isfinite(value) else {**plain, "loss": None, "data": {"loss_text": str(value)}}
    )
