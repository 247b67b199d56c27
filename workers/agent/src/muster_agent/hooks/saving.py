"""Saves as a training loop writes them, reported from their beginning to their commit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from muster_agent.hooks.quietly import quietly
from muster_agent.hooks.reporter import RunReporter


class Future(Protocol):
    """What asynchronous saves give (`torch.distributed.checkpoint.async_save`, `concurrent.futures`)."""

    def add_done_callback(self, fn: Callable[[Any], Any], /) -> Any: ...


@contextlib.contextmanager
def reported_save(reporter: RunReporter, step: int, path: str | os.PathLike[str]) -> Iterator[None]:
    """`with reported_save(reporter, step, path): dcp.save(state, checkpoint_id=path)`. A save that raises is not
    reported as finished; the exception passes through."""
    reporter.save_started(step)
    yield
    reporter.save_finished(step, path)


def report_async_save(reporter: RunReporter, step: int, path: str | os.PathLike[str], future: Future) -> None:
    """After `future = dcp.async_save(...)`: finished is reported when the checkpoint is committed, from whatever thread
    completes it, and never where it failed. Call `reporter.save_started(step)` before the save itself."""

    @quietly
    def done(completed: Any) -> None:
        if completed.exception() is None:
            reporter.save_finished(step, path)

    future.add_done_callback(done)
