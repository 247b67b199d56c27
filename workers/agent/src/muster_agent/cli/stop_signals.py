"""SIGTERM and Ctrl-C as a request to stop: the work ends within a second, gives back what it holds and says how far it
came. A second signal ends the process at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from muster_agent.jobs.control import Cancelled, JobControl

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHELL_OFFSET = 128


class StopSignals:
    """What came, if anything: `exit_code` is the one that shells give to a command ended by that signal."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.is_at_once = False

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, where nothing is held that must be given back and nobody looks at the control, the first signal
        raises Cancelled."""
        self.is_at_once = True
        try:
            yield
        finally:
            self.is_at_once = False

    @property
    def exit_code(self) -> int:
        """143 after SIGTERM, 130 after Ctrl-C; 1 where none came."""
        return _SHELL_OFFSET + int(self.received) if self.received else 1

    @property
    def name(self) -> str:
        """Such as SIGTERM."""
        return self.received.name if self.received else "a request"


@contextlib.contextmanager
def stopping(control: JobControl) -> Iterator[StopSignals]:
    """Inside, the first of the signals cancels the control."""
    signals = StopSignals()

    def stop(number: int, _frame: FrameType | None) -> None:
        signals.received = signal.Signals(number)
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        control.cancel()
        if signals.is_at_once:
            raise Cancelled("cancelled")

    before = {one: signal.signal(one, stop) for one in _SIGNALS}
    try:
        yield signals
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
