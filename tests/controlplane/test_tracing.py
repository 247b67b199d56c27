"""Traces reach a collector over real OTLP/HTTP, as a collector reads them; without the variables there are none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import factories
import pytest
from django.test import Client
from django.utils import timezone
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from apps.accounts.models import Role
from apps.core import dispatch, logs, tracing
from apps.drills.models import Drill, DrillRung, RankResult
from apps.drills.traces import send as trace_drill
from controlplane import task_logs

pytestmark = pytest.mark.django_db


class Collector:
    """Takes OTLP over HTTP in protobuf, as every collector does."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_given: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for one in request.resource_spans:
            self.resources.append({item.key: item.value.string_value for item in one.resource.attributes})
            self.spans += [span for scope in one.scope_spans for span in scope.spans]

    def named(self) -> dict[str, Any]:
        tracing.flush()
        return {span.name: span for span in self.spans}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    running = Collector()
    for name in (*tracing.ENDPOINTS, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
    tracing.tracer.cache_clear()
    yield running
    tracing.tracer().span_processor.shutdown()
    tracing.tracer.cache_clear()
    running.server.shutdown()
    running.server.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def test_a_request_is_a_span_below_its_caller_s(client: Client, collector: Collector) -> None:
    client.force_login(factories.user("olga", Role.VIEWER))
    parent = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
    client.get("/api/v1/whoami/", headers={"traceparent": parent, "X-Request-Id": "req-5"})
    span = collector.named()["GET /api/v1/whoami/"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == ("ab" * 16, "cd" * 8)
    told = attributes(span)
    assert (told["http.response.status_code"], told["muster.request_id"]) == (200, "req-5")
    assert collector.resources[0]["service.name"] == "muster"


def test_ids_are_no_part_of_a_span_s_name(client: Client, collector: Collector) -> None:
    client.force_login(factories.user("olga", Role.VIEWER))
    client.get("/runs/run_0190/")
    assert [name for name in collector.named() if "run_0190" in name] == []


def test_probes_make_no_spans(client: Client, collector: Collector) -> None:
    client.get("/healthz")
    assert collector.named() == {}


def test_a_task_is_a_span_below_the_request_that_woke_it(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(dispatch.current_app, "send_task", lambda *_args, **given: sent.append(given))
    with tracing.span("GET", kind="SERVER") as current:
        logs.traceparent.set(tracing.traceparent_of(current))
        dispatch._send("muster.control.advance", {})
    logs.traceparent.set("")

    class Task:
        name = "muster.control.advance"
        request = type("Request", (), {"headers": sent[0]["headers"]})

    task_logs.began(task=Task)
    assert logs.trace_id.get() == tracing.traceparent_of(current).split("-")[1]
    task_logs.ended()
    spans = collector.named()
    assert spans["muster.control.advance"].parent_span_id == spans["GET"].span_id
    assert logs.trace_id.get() == ""


def finished_drill() -> Drill:
    began = timezone.now() - timedelta(seconds=60)
    cluster = factories.cluster()
    run = factories.run(cluster, "llama-8b")
    drill = Drill.objects.create(
        kind="reload", run=run, cluster=cluster, state="finished", outcome="passed", objective_state="met",
        seconds=12.0, total_bytes=1000, requested_by="olga", created_at=began, started_at=began,
        finished_at=began + timedelta(seconds=20), phases={"read": 9.0, "verify": 3.0},
    )  # fmt: skip
    rung = DrillRung.objects.create(drill=drill, order=1, client_count=20)
    for rank in range(20):
        RankResult.objects.create(
            rung=rung, rank=rank, task_id=f"tsk-{rank}", outcome="passed", bytes=50, seconds=2.0 + rank,
            started_at=began + timedelta(seconds=1), phases={"verify": 0.5, "read": 1.5 + rank},
        )  # fmt: skip
    return drill


def test_a_drill_is_one_trace_with_its_slowest_clients_and_their_phases(collector: Collector) -> None:
    drill = finished_drill()
    assert trace_drill(drill.pk)
    spans = collector.named()
    whole = spans["drill reload"]
    trace_id, span_id = tracing.trace_of(drill.pk)
    assert (int(whole.trace_id.hex(), 16), int(whole.span_id.hex(), 16)) == (trace_id, span_id)
    assert whole.parent_span_id == b""
    assert (whole.end_time_unix_nano - whole.start_time_unix_nano) / 1e9 == pytest.approx(20)
    assert attributes(whole)["muster.drill.id"] == drill.pk
    assert {span.trace_id for span in collector.spans} == {whole.trace_id}

    clients = [span for span in collector.spans if span.name.startswith("rank ")]
    assert sorted(int(span.name.split()[1]) for span in clients) == list(range(4, 20))
    assert {span.parent_span_id for span in clients} == {whole.span_id}
    slowest = spans["rank 19"]
    phases = sorted(
        (span for span in collector.spans if span.parent_span_id == slowest.span_id),
        key=lambda span: span.start_time_unix_nano,
    )
    assert [span.name for span in phases] == ["read", "verify"]
    assert phases[0].start_time_unix_nano == slowest.start_time_unix_nano
    assert phases[1].end_time_unix_nano == slowest.end_time_unix_nano


def test_a_drill_that_did_not_pass_is_an_error(collector: Collector) -> None:
    drill = finished_drill()
    Drill.objects.filter(pk=drill.pk).update(outcome="failed", reason="gpu-3 (rank 2) failed: damage")
    trace_drill(drill.pk)
    assert collector.named()["drill reload"].status.message.startswith("gpu-3")


def test_a_drill_is_traced_once_it_has_ended(collector: Collector) -> None:
    drill = finished_drill()
    Drill.objects.filter(pk=drill.pk).update(state="running")
    assert not trace_drill(drill.pk)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_SERVICE_NAME": "muster"}, False),
    ],
)
def test_only_an_endpoint_switches_traces_on(environment: dict[str, str], expected: bool) -> None:
    assert tracing.is_on(environment) is expected


def test_without_it_nothing_is_exported_and_no_exporter_is_even_imported() -> None:
    # redis-py imports the SDK by itself wherever it is installed; only an exporter sends anything.
    script = (
        "import json, sys, django; django.setup(); import controlplane.asgi, workers.tasks.control;"
        "print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry.exporter')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_a_collector_that_is_away_holds_nobody_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    tracing.tracer.cache_clear()
    try:
        assert client.get("/sign-in/").status_code == 200
    finally:
        tracing.tracer.cache_clear()
