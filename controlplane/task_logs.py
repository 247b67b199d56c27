"""Which task, and which request woke it, stands on every line that a worker logs; it is a span where traces are on."""

from __future__ import annotations

from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

from celery import signals

from apps.core import logs, tracing

_span: ContextVar[ExitStack | None] = ContextVar("muster_task_span", default=None)


def began(task: Any = None, **_told: Any) -> None:
    headers = getattr(task.request, "headers", None) or {}
    logs.task_name.set(str(getattr(task, "name", "")))
    logs.request_id.set(_header(task, headers, "request_id"))
    if tracing.is_on():
        stack = ExitStack()
        parent = _header(task, headers, "traceparent")
        current = stack.enter_context(tracing.span(task.name, kind="CONSUMER", traceparent=parent))
        logs.set_trace(tracing.traceparent_of(current))
        _span.set(stack)


def ended(**_told: Any) -> None:
    stack = _span.get()
    if stack is not None:
        stack.close()
        _span.set(None)
    logs.task_name.set("")
    logs.request_id.set("")
    logs.set_trace("")


def _header(task: Any, headers: dict[str, Any], name: str) -> str:
    """Celery gives a message's own headers in one of two places, by how it came."""
    return str(headers.get(name) or getattr(task.request, name, None) or "")


def watch_tasks() -> None:
    """In this process, a worker's or its child's."""
    signals.task_prerun.connect(began, weak=False)
    signals.task_postrun.connect(ended, weak=False)
