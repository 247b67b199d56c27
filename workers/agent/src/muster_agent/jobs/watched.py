"""A look at metadata that a dead mount may never answer, given up like a read of the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from muster_agent.formats.root import RootUnreadable

METADATA_SECONDS = 900.0
"""As long as a child process may read one checkpoint's metadata."""
_LOOK_SECONDS = 0.05

_T = TypeVar("_T")


class _Answer(threading.Thread, Generic[_T]):
    """A daemon: what hangs in the kernel must not keep the process from ending."""

    def __init__(self, look: Callable[[], _T]) -> None:
        super().__init__(name="muster-metadata", daemon=True)
        self._look = look
        self.value: list[_T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value.append(self._look())
        except BaseException as error:
            self.error = error


def watched(
    path: str, look: Callable[[], _T], check: Callable[[], None] = lambda: None, seconds: float | None = None
) -> _T:
    """What `look` returns or raises. `check` is called many times a second and may raise to leave. Raises
    RootUnreadable once it took longer than `seconds` (METADATA_SECONDS); its thread is then on its own."""
    answer = _Answer(look)
    answer.start()
    left = METADATA_SECONDS if seconds is None else seconds
    while answer.is_alive():
        answer.join(_LOOK_SECONDS)
        left -= _LOOK_SECONDS
        check()
        if left <= 0 and answer.is_alive():
            reason = f"the storage did not answer while its metadata was read (thread {answer.name} was given up)"
            raise RootUnreadable(path, reason, "check the mount and its server, then run again")
    if answer.error is not None:
        raise answer.error
    return answer.value[0]
