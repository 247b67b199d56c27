"""The Kubernetes adapter against a small stand-in for its API server, which keeps nodes, versions and merge patches as
the real one does. No real API server is run here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import factories
import pytest

from apps.fleet import cluster_inventory
from apps.fleet.schedulers.base import PARKED_REASON, SchedulerError
from apps.fleet.schedulers.kubernetes import Kubernetes
from apps.fleet.schedulers.kubernetes_parsing import out_of_use, parse_job, parse_node

TOKEN = "admintoken"


def node(name: str, *, ready: str = "True", gpus: str = "8", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": "1", "labels": {"rack": "a"}},
        "spec": spec,
        "status": {
            "capacity": {"cpu": "96", "memory": "1056Mi", "nvidia.com/gpu": gpus},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        },
    }


class ApiServer:
    def __init__(self) -> None:
        self.nodes = {f"gpu-{number}": node(f"gpu-{number}") for number in range(1, 4)}
        self.jobs: list[dict[str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*server.get(self.path, self.headers["Authorization"]))

            def do_PATCH(self) -> None:
                assert self.headers["Content-Type"] == "application/merge-patch+json"
                patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(*server.patch(self.path.rpartition("/")[2], patch))

            def _answer(self, status: int, document: dict[str, Any]) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def get(self, path: str, authorization: str | None) -> tuple[int, dict[str, Any]]:
        if authorization != f"Bearer {TOKEN}":
            return 401, {"message": "Unauthorized"}
        url = urlsplit(path)
        if url.path == "/version":
            return 200, {"gitVersion": "v1.31.0"}
        if url.path == "/api/v1/nodes":  # two pages, whatever limit was asked for
            names = sorted(self.nodes)
            rest = "continue" in parse_qs(url.query)
            shown = names[2:] if rest else names[:2]
            metadata = {} if rest else {"continue": "page two"}
            return 200, {"items": [self.nodes[name] for name in shown], "metadata": metadata}
        if url.path == "/apis/batch/v1/jobs":
            return 200, {"items": self.jobs, "metadata": {}}
        found = self.nodes.get(url.path.rpartition("/")[2])
        return (200, found) if found else (404, {"message": "not found"})

    def patch(self, name: str, patch: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        found = self.nodes[name]
        if patch["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        self.nodes[name] = merged(found, patch)
        self.nodes[name]["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
        return 200, self.nodes[name]


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@pytest.fixture
def server() -> Iterator[ApiServer]:
    running = ApiServer()
    yield running
    running.http.shutdown()
    running.http.server_close()


def kubeconfig(folder: Path, url: str, **user: str) -> str:
    path = folder / "kubeconfig.json"
    document = {"clusters": [{"cluster": {"server": url}}], "users": [{"user": user or {"token": TOKEN}}]}
    path.write_text(json.dumps(document))
    return str(path)


@pytest.fixture
def adapter(server: ApiServer, tmp_path: Path) -> Kubernetes:
    return Kubernetes(kubeconfig(tmp_path, server.url))


def test_nodes_of_all_pages_say_whether_work_is_placed_on_them(server: ApiServer, adapter: Kubernetes) -> None:
    server.nodes["gpu-2"] = node("gpu-2", ready="Unknown")
    server.nodes["gpu-3"] = node("gpu-3", taints=[{"key": "bad", "effect": "NoSchedule"}])
    found = adapter.snapshot()
    assert [(one.name, one.state, one.usable) for one in found.nodes] == [
        ("gpu-1", "ready", True),
        ("gpu-2", "not_ready", False),
        ("gpu-3", "ready+bad", False),
    ]
    one = found.nodes[0]
    assert (one.gpu_count, one.cpu_count, one.memory_bytes, one.features) == (8, 96, 1056 * 2**20, ("rack=a",))
    assert found.version == "v1.31.0"


def test_a_spare_is_cordoned_tainted_and_labelled_and_all_of_it_is_taken_back(
    server: ApiServer, adapter: Kubernetes
) -> None:
    foreign = {"key": "team", "effect": "PreferNoSchedule"}
    server.nodes["gpu-2"] = node("gpu-2", taints=[foreign])
    adapter.drain("gpu-2", PARKED_REASON)
    parked = adapter.node("gpu-2")
    assert (parked.usable, parked.parked, parked.reason) == (False, True, PARKED_REASON)
    row = server.nodes["gpu-2"]
    assert row["spec"]["unschedulable"] is True
    assert row["spec"]["taints"] == [foreign, {"key": "muster.dev/standby", "effect": "NoSchedule"}]
    assert row["metadata"]["labels"] == {"rack": "a", "muster.dev/standby": "true"}
    adapter.resume("gpu-2")
    row = server.nodes["gpu-2"]
    assert adapter.node("gpu-2").usable
    assert row["spec"] == {"taints": [foreign]}
    assert (row["metadata"]["labels"], row["metadata"]["annotations"]) == ({"rack": "a"}, {})


def test_a_drained_node_keeps_its_pods_and_a_failed_one_loses_them(server: ApiServer, adapter: Kubernetes) -> None:
    adapter.drain("gpu-1", "muster drill drl_1")
    assert server.nodes["gpu-1"]["spec"]["taints"] == []
    assert adapter.node("gpu-1").state == "ready+cordoned"
    adapter.fail("gpu-1", "muster drill drl_1")
    assert server.nodes["gpu-1"]["spec"]["taints"] == [{"key": "muster.dev/failed", "effect": "NoExecute"}]
    assert adapter.node("gpu-1").reason == "muster drill drl_1"


def test_a_change_in_between_is_a_conflict_and_nothing_is_lost(server: ApiServer, adapter: Kubernetes) -> None:
    stale = out_of_use(server.nodes["gpu-1"], "muster drill drl_1")
    adapter.drain("gpu-1", "somebody else")
    with pytest.raises(SchedulerError, match="gave 409: the object has been modified"):
        adapter._patch("gpu-1", stale)
    assert adapter.node("gpu-1").reason == "somebody else"


def test_jobs_say_how_often_their_pods_failed() -> None:
    metadata = {"namespace": "train", "name": "llm", "creationTimestamp": "2026-11-30T22:09:13Z"}
    job = parse_job({"metadata": metadata, "status": {"active": 2, "failed": 3, "startTime": "2026-11-30T22:09:14Z"}})
    assert (job.job_id, job.state, job.restart_count, job.partition) == ("train/llm", "running", 3, "train")
    assert job.started_at is not None
    ended = parse_job({"metadata": metadata, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    assert ended.state == "complete"
    assert parse_node({}).usable is False, "what says nothing is not ready"


def test_what_cannot_be_asked_is_an_error_and_never_empty(server: ApiServer, tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="gave 401: Unauthorized"):
        Kubernetes(kubeconfig(tmp_path, server.url, token="wrong")).snapshot()
    with pytest.raises(SchedulerError, match="does not answer"):
        Kubernetes(kubeconfig(tmp_path, "http://127.0.0.1:9")).snapshot()
    with pytest.raises(SchedulerError, match="only sent over https"):
        Kubernetes(kubeconfig(tmp_path, "http://k8s.example"))
    with pytest.raises(SchedulerError, match="no kubeconfig in JSON"):
        Kubernetes(str(tmp_path / "absent.json"))
    with pytest.raises(SchedulerError, match="knows no node gpu-9"):
        Kubernetes(kubeconfig(tmp_path, server.url)).node("gpu-9")


@pytest.mark.django_db
def test_a_cluster_on_kubernetes_is_inventoried(server: ApiServer, tmp_path: Path, settings: Any) -> None:
    cluster = factories.cluster("west", scheduler="kubernetes")
    settings.SCHEDULERS = {"west": kubeconfig(tmp_path, server.url)}
    row = cluster_inventory.take_inventory(cluster.pk)
    assert row is not None
    assert (row.error, row.node_count, row.usable_count, row.gpu_count) == ("", 3, 3, 24)
