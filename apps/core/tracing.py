"""OpenTelemetry traces, switched on and configured by the OTEL_* variables alone: requests, tasks, and drills.

Without an endpoint in the environment no exporter is imported and no span is made. A collector that is away costs
nothing but its traces: spans are sent in batches from a thread of their own and dropped when they do not get through.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache
from typing import Any

log = logging.getLogger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_fixed: ContextVar[tuple[int, int] | None] = ContextVar("muster_fixed_ids", default=None)


def is_on(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether traces go anywhere."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    wanted = environment.get("OTEL_TRACES_EXPORTER", "otlp") in ("otlp", "")
    return wanted and any(environment.get(name) for name in ENDPOINTS)


def trace_of(key: str) -> tuple[int, int]:
    """The trace id and the id of the first span of what has this id: the same for whoever asks, with nothing stored."""
    digest = hashlib.sha256(key.encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


@cache
def tracer() -> Any:
    """Of this process; made at its first span, so that a worker's children have one of their own. None where the extra
    `otel` is not installed, which is said once."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ImportError:
        log.warning("OTEL_* asks for traces and OpenTelemetry is not installed: pip install 'muster[otel]'")
        return None

    class Ids(RandomIdGenerator):
        """Random but where a span's ids follow from a row's."""

        def generate_trace_id(self) -> int:
            fixed = _fixed.get()
            return fixed[0] if fixed else super().generate_trace_id()

        def generate_span_id(self) -> int:
            fixed = _fixed.get()
            return fixed[1] if fixed else super().generate_span_id()

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "muster"}
    provider = TracerProvider(resource=Resource.create(named), id_generator=Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider.get_tracer("muster")


def flush() -> None:
    """Send what waits; for processes that end, and for tests."""
    if (made := tracer()) is not None:
        made.span_processor.force_flush(5000)


@contextmanager
def span(name: str, *, kind: str, traceparent: str = "", **attributes: Any) -> Iterator[Any]:
    """One span around what runs, below the one that `traceparent` names. Gives None where traces are off."""
    made = tracer() if is_on() else None
    if made is None:
        yield None
        return
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    parent = TraceContextTextMapPropagator().extract({"traceparent": traceparent}) if traceparent else None
    with made.start_as_current_span(name, context=parent, kind=SpanKind[kind], attributes=attributes) as current:
        yield current


def traceparent_of(current: Any) -> str:
    """The W3C header of a span, empty for None."""
    if current is None:
        return ""
    context = current.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def record_span(
    name: str,
    began_at: datetime,
    seconds: float,
    *,
    parent: Any = None,
    ids: tuple[int, int] | None = None,
    **told: Any,
) -> Any:
    """A span of what has already been, with its own times. Gives the context of its children."""
    from opentelemetry import trace
    from opentelemetry.context import Context

    began_ns = int(began_at.timestamp() * 1e9)
    attributes = {key: value for key, value in told.items() if value is not None and value != ""}
    token = _fixed.set(ids)
    try:
        made = tracer().start_span(
            name, context=parent if parent is not None else Context(), start_time=began_ns,
            attributes=attributes,
        )  # fmt: skip
    finally:
        _fixed.reset(token)
    if told.get("failed"):
        made.set_status(trace.Status(trace.StatusCode.ERROR, str(told["failed"])[:200]))
    made.end(began_ns + int(seconds * 1e9))
    return trace.set_span_in_context(made, Context())
