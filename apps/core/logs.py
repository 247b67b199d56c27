"""Log records as one JSON object a line, each with the request or the task that it belongs to."""

from __future__ import annotations

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

request_id: ContextVar[str] = ContextVar("muster_request_id", default="")
"""The request that is being answered, or from which the task that runs was woken."""
task_name: ContextVar[str] = ContextVar("muster_task_name", default="")
trace_id: ContextVar[str] = ContextVar("muster_trace_id", default="")
"""32 hex digits where traces are on (`apps.core.tracing`)."""

traceparent: ContextVar[str] = ContextVar("muster_traceparent", default="")
"""The span under which what is woken now belongs, as a W3C header."""

_CONTEXT = {"request_id": request_id, "task": task_name, "trace_id": trace_id}
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
MAX_TEXT = 16 * 1024


def set_trace(parent: str) -> None:
    """`parent` is a W3C traceparent, or empty."""
    traceparent.set(parent)
    trace_id.set(parent.split("-")[1] if parent else "")


class JsonFormatter(logging.Formatter):
    """`at` (UTC), `level`, `logger`, `message`; `request_id`, `task` and `trace_id` where there is one; `exception`
    with its traceback; and the plain values that the caller gave as `extra` (an object, such as the request that Django
    gives, may show anything). Never raises and never breaks a line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record))

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, Any] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        told.update({name: value for name, variable in _CONTEXT.items() if (value := variable.get())})
        for name, value in vars(record).items():
            if name not in _OF_EVERY_RECORD and name not in told and isinstance(value, str | int | float | bool):
                told[name] = value
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)[-MAX_TEXT:]
        return told


def _message(record: logging.LogRecord) -> str:
    """A call whose arguments do not fit its text still says what it can."""
    try:
        return record.getMessage()[:MAX_TEXT]
    except (TypeError, ValueError):
        return f"{record.msg!r} {record.args!r}"[:MAX_TEXT]
