"""Task kind `disrupt`: break one worker of a run, by a signal to a process that the trainer's own hook registered (and
to no other), by an exception where the trainer opted in, or by a link command that this node's configuration holds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from muster_agent.hooks.injection import request_injection
from muster_agent.hooks.paths import hook_directory
from muster_agent.hooks.processes import is_running
from muster_agent.hooks.registry import RegisteredProcess, live_processes
from muster_agent.protocol.wire import DisruptBody, DisruptParams
from muster_agent.tasks.context import Run, TaskContext, TaskFailed
from muster_agent.tasks.link_fault import LinkNotBroken, break_link

SIGNALS = {
    name: signal.Signals[name] for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGABRT", "SIGSEGV", "SIGBUS", "SIGHUP")
}
"""All of them end the process. SIGSTOP is not among them: whoever stops a process must be there to continue it."""


def prepare(params: DisruptParams, context: TaskContext) -> Run:
    if not context.allow_disrupt:
        raise TaskFailed("disrupt_not_allowed", "this node's agent was set up with --no-disrupt")
    if params.fault not in _FAULTS:
        raise TaskFailed("fault_not_known", f"this agent knows no fault {params.fault!r}; update it")
    check, inject = _FAULTS[params.fault]
    check(params, context)

    def run() -> DisruptBody:
        return inject(params, context)

    return run


def target(params: DisruptParams, context: TaskContext) -> RegisteredProcess:
    """The process to break: the given pid, else the lowest rank. Raises TaskFailed where none is registered."""
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


# -- a signal ----------------------------------------------------------------------------------------------------------
def _check_signal(params: DisruptParams, context: TaskContext) -> None:
    if params.signal_name not in SIGNALS:
        raise TaskFailed("signal_not_allowed", f"{params.signal_name} is not allowed; use one of {', '.join(SIGNALS)}")
    target(params, context)


def _signal(params: DisruptParams, context: TaskContext) -> DisruptBody:
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


# -- an exception ------------------------------------------------------------------------------------------------------
def _check_opted_in(params: DisruptParams, context: TaskContext) -> None:
    process = target(params, context)
    if not process.allow_injection:
        raise TaskFailed(
            "injection_not_allowed",
            f"process {process.pid} did not opt in: start it with RunReporter(..., allow_injection=True)",
        )


def _exception(params: DisruptParams, context: TaskContext) -> DisruptBody:
    process = target(params, context)
    at_unix_seconds, mono_seconds = time.time(), time.monotonic()
    try:
        request_injection(hook_directory(context.hook_directory), process.writer)
    except OSError as error:
        raise TaskFailed("hook_folder_unwritable", f"the hook folder takes no file: {error}") from error
    data = {"pid": process.pid, "run": params.run, "attempt": process.attempt}
    context.reporter.injected(at_unix_seconds, mono_seconds, data)
    return DisruptBody(pid=process.pid, injected_unix_seconds=at_unix_seconds + context.clock_offset_seconds())


# -- a link ------------------------------------------------------------------------------------------------------------
def _check_link(params: DisruptParams, context: TaskContext) -> None:
    if params.link not in context.links:
        known = ", ".join(sorted(context.links)) or "none"
        raise TaskFailed("link_not_known", f"this node's configuration has no link {params.link!r}; it has: {known}")
    target(params, context)


def _link(params: DisruptParams, context: TaskContext) -> DisruptBody:
    fault = context.links[params.link]
    at_unix_seconds, mono_seconds = time.time(), time.monotonic()
    try:
        break_link(fault)
    except LinkNotBroken as error:
        raise TaskFailed("link_not_broken", str(error)) from error
    context.reporter.injected(at_unix_seconds, mono_seconds, {"link": params.link, "run": params.run})
    return DisruptBody(
        injected_unix_seconds=at_unix_seconds + context.clock_offset_seconds(), undone_after_seconds=fault.seconds
    )


_Check = Callable[[DisruptParams, TaskContext], None]
_Inject = Callable[[DisruptParams, TaskContext], DisruptBody]
_FAULTS: dict[str, tuple[_Check, _Inject]] = {
    "process": (_check_signal, _signal),
    "exception": (_check_opted_in, _exception),
    "link": (_check_link, _link),
}
"""What may be refused before a barrier, and the breaking itself."""
