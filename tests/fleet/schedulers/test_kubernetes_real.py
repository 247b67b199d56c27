"""The Kubernetes adapter against a real API server: what cordoning, labels, taints and versions really do there."""

from __future__ import annotations

from typing import Any

import pytest
from servers.kube_apiserver import KubeApiServer

from apps.fleet.schedulers.base import PARKED_REASON, SchedulerError
from apps.fleet.schedulers.kubernetes import Kubernetes
from apps.fleet.schedulers.kubernetes_parsing import out_of_use

MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def adapter(kube_apiserver: KubeApiServer) -> Kubernetes:
    """Over two nodes that are ready, as their kubelets would say, and one that is not."""
    for number, ready in ((1, "True"), (2, "True"), (3, "False")):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"gpu-{number}", "labels": {"rack": "a"}}}
        kube_apiserver.call("POST", "/api/v1/nodes", node)
        status = {
            "capacity": {"cpu": "96", "memory": "1056Mi", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": ready}],
        }
        path = f"/api/v1/nodes/gpu-{number}"
        kube_apiserver.call("PATCH", f"{path}/status", {"status": status}, MERGE)
        # a new node is tainted as not ready until its controller has seen it
        kube_apiserver.call("PATCH", path, {"spec": {"taints": None}}, MERGE)
    return Kubernetes(kube_apiserver.kubeconfig())


def row(server: KubeApiServer, name: str) -> Any:
    return server.call("GET", f"/api/v1/nodes/{name}")


def test_nodes_and_jobs_are_inventoried(kube_apiserver: KubeApiServer, adapter: Kubernetes) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "train", "image": "train"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "llm"}, "spec": {"template": template}}
    kube_apiserver.call("POST", "/apis/batch/v1/namespaces/default/jobs", job)
    found = adapter.snapshot()
    assert [(one.name, one.usable, one.gpu_count) for one in found.nodes] == [
        ("gpu-1", True, 8), ("gpu-2", True, 8), ("gpu-3", False, 8),
    ]  # fmt: skip
    assert [(one.job_id, one.state) for one in found.jobs] == [("default/llm", "pending")]
    assert found.version.startswith("v1.")
    [told] = [adapter.job("default/llm")]
    assert told is not None and told.name == "llm"
    assert adapter.job("default/none") is None


def test_a_spare_is_parked_and_brought_in_and_what_others_put_there_stays(
    kube_apiserver: KubeApiServer, adapter: Kubernetes
) -> None:
    foreign = {"key": "team", "value": "a", "effect": "PreferNoSchedule"}
    kube_apiserver.call("PATCH", "/api/v1/nodes/gpu-2", {"spec": {"taints": [foreign]}}, MERGE)
    adapter.drain("gpu-2", PARKED_REASON)
    parked = adapter.node("gpu-2")
    assert (parked.usable, parked.parked, parked.reason) == (False, True, PARKED_REASON)
    node = row(kube_apiserver, "gpu-2")
    assert node["spec"]["unschedulable"] is True
    assert {(one["key"], one["effect"]) for one in node["spec"]["taints"]} >= {
        ("team", "PreferNoSchedule"), ("muster.dev/standby", "NoSchedule"),
    }  # fmt: skip
    labelled = kube_apiserver.call("GET", "/api/v1/nodes?labelSelector=muster.dev%2Fstandby%3Dtrue")
    assert [one["metadata"]["name"] for one in labelled["items"]] == ["gpu-2"]
    adapter.resume("gpu-2")
    node = row(kube_apiserver, "gpu-2")
    assert adapter.node("gpu-2").usable
    assert "unschedulable" not in node["spec"] and node["spec"]["taints"] == [foreign]
    assert "muster.dev/standby" not in node["metadata"]["labels"]
    assert "muster.dev/reason" not in (node["metadata"].get("annotations") or {})


def test_a_failed_node_is_tainted_so_that_its_pods_are_evicted_and_comes_back(
    kube_apiserver: KubeApiServer, adapter: Kubernetes
) -> None:
    adapter.fail("gpu-1", "muster drill drl_1")
    taints = {(one["key"], one["effect"]) for one in row(kube_apiserver, "gpu-1")["spec"]["taints"]}
    assert ("muster.dev/failed", "NoExecute") in taints
    assert (adapter.node("gpu-1").usable, adapter.node("gpu-1").reason) == (False, "muster drill drl_1")
    adapter.resume("gpu-1")
    assert adapter.node("gpu-1").usable


def test_a_change_in_between_is_a_conflict_and_nothing_is_lost(
    kube_apiserver: KubeApiServer, adapter: Kubernetes
) -> None:
    stale = out_of_use(row(kube_apiserver, "gpu-1"), "muster drill drl_1")
    kube_apiserver.call("PATCH", "/api/v1/nodes/gpu-1", {"metadata": {"labels": {"rack": "b"}}}, MERGE)
    with pytest.raises(SchedulerError, match="gave 409"):
        adapter._patch("gpu-1", stale)
    assert adapter.node("gpu-1").usable
    adapter.drain("gpu-1", "muster drill drl_1")
    assert row(kube_apiserver, "gpu-1")["metadata"]["labels"]["rack"] == "b"
    adapter.resume("gpu-1")


def test_a_wrong_token_and_an_unknown_node_are_errors_in_its_words(
    kube_apiserver: KubeApiServer, adapter: Kubernetes
) -> None:
    with pytest.raises(SchedulerError, match="gave 401: Unauthorized"):
        Kubernetes(kube_apiserver.kubeconfig("wrong")).snapshot()
    with pytest.raises(SchedulerError, match="knows no node gpu-9"):
        adapter.node("gpu-9")
