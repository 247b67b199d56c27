"""Task kind `disrupt`: a signal to one process that the trainer's own hook registered, and to no other."""

from __future__ import annotations

import os
import signal
import time

from muster_agent.hooks.processes import is_running
from muster_agent.hooks.registry import RegisteredProcess, live_processes
from muster_agent.protocol.wire import DisruptBody, DisruptParams
from muster_agent.tasks.context import Run, TaskContext, TaskFailed

SIGNALS = {
    name: signal.Signals[name] for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGHUP")
}
"""All of them end the process. SIGSTOP is not among them: whoever stops a process must be there to continue it."""


def prepare(params: DisruptParams, context: TaskContext) -> Run:
    if not context.allow_disrupt:
        raise TaskFailed("disrupt_not_allowed", "this node's agent was set up with --no-disrupt")
    if params.signal_name not in SIGNALS:
        raise TaskFailed("signal_not_allowed", f"{params.signal_name} is not allowed; use one of {', '.join(SIGNALS)}")
    target(params, context)

    def run() -> DisruptBody:
        return _inject(params, context)

    return run


def target(params: DisruptParams, context: TaskContext) -> RegisteredProcess:
    """The process to signal: the given pid, else the lowest rank. Raises TaskFailed where none is registered."""
    registered = [
        process
        for process in live_processes(context.hook_directory, params.run)
        if params.attempt in ("", process.attempt) and params.pid in (None, process.pid)
    ]
    if not registered:
        asked = f" with pid {params.pid}" if params.pid is not None else ""
        raise TaskFailed(
            "process_not_registered",
            f"no running process of attempt {params.attempt or '(any)'} of run {params.run}{asked} has registered "
            "itself with the training hook on this node, so nothing may be signalled",
        )
    return registered[0]


def _inject(params: DisruptParams, context: TaskContext) -> DisruptBody:
    process = target(params, context)
    handle = _open(process)
    try:
        # The handle holds the very process: its pid cannot be reused between this check and the signal.
        if not is_running(process.pid, process.start_ticks):
            raise TaskFailed("process_ended", f"process {process.pid} ended by itself before it was signalled")
        at_unix_seconds, mono_seconds = time.time(), time.monotonic()
        signal.pidfd_send_signal(handle, SIGNALS[params.signal_name])
    except ProcessLookupError as error:
        raise TaskFailed("process_ended", f"process {process.pid} ended by itself before it was signalled") from error
    finally:
        os.close(handle)
    data = {"pid": process.pid, "signal_name": params.signal_name, "run": params.run, "attempt": process.attempt}
    context.reporter.injected(at_unix_seconds, mono_seconds, data)
    return DisruptBody(
        pid=process.pid,
        signal_name=params.signal_name,
        injected_unix_seconds=at_unix_seconds + context.clock_offset_seconds(),
    )


def _open(process: RegisteredProcess) -> int:
    try:
        return os.pidfd_open(process.pid)
    except ProcessLookupError as error:
        raise TaskFailed("process_ended", f"process {process.pid} ended by itself before it was signalled") from error
