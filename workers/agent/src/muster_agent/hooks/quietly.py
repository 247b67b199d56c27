"""What is called from inside a framework's training loop must not end it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from muster_agent.hooks.injection import InjectedFault

logger = logging.getLogger("muster_agent.hooks")
Hook = TypeVar("Hook", bound=Callable[..., Any])
_said: set[str] = set()


def quietly(hook: Hook) -> Hook:
    """`hook` gives None instead of raising, and says so once; only a fault that a drill asked for passes."""

    @functools.wraps(hook)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return hook(*args, **kwargs)
        except InjectedFault:
            raise
        except Exception as problem:
            if hook.__qualname__ not in _said:
                _said.add(hook.__qualname__)
                logger.warning("Muster hook: %s is not reported (%r). Training goes on.", hook.__qualname__, problem)
            return None

    return guarded  # type: ignore[return-value]
