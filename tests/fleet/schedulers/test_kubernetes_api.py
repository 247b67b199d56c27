"""The Kubernetes adapter against a real API server, with the rights that deploy/kubernetes gives and no others."""

from __future__ import annotations

from typing import Any

import factories
import pytest
import yaml
from servers.kubernetes import KubeApi

from apps.fleet import cluster_inventory
from apps.fleet.schedulers.base import PARKED_REASON, SchedulerError
from apps.fleet.schedulers.kubernetes import Kubernetes
from apps.fleet.schedulers.kubernetes_parsing import FAILED, STANDBY, out_of_use
from tests.deploy.conftest import ROOT

pytestmark = pytest.mark.kubernetes
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": None}


@pytest.fixture(scope="module")
def account(kube_api: KubeApi) -> str:
    """The kubeconfig of the account in deploy/kubernetes/scheduler-access.yaml."""
    documents = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/scheduler-access.yaml").read_text()))
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    places = {"ClusterRole": f"{rbac}/clusterroles", "ClusterRoleBinding": f"{rbac}/clusterrolebindings"}
    accounts = "/api/v1/namespaces/muster-agents/serviceaccounts"
    assert kube_api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "muster-agents"}})[0] == 201
    for one in documents:
        path = places.get(one["kind"]) or (accounts if one["kind"] == "ServiceAccount" else "")
        if path:
            status, answer = kube_api.apply(one, f"{path}/{one['metadata']['name']}")
            assert status == 201, answer
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    status, made = kube_api.call("POST", f"{accounts}/muster-scheduler/token", asked)
    assert status == 201, made
    return kube_api.kubeconfig(made["status"]["token"])


@pytest.fixture
def nodes(kube_api: KubeApi) -> Any:
    """Three nodes with GPUs, as kubelets report them; gone after the test."""
    names = ["gpu-1", "gpu-2", "gpu-3"]
    for name in names:
        status, made = kube_api.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"rack": "a"}}})
        assert status == 201, made
        made["status"] = {"capacity": {"cpu": "96", "memory": "1056Mi", "nvidia.com/gpu": "8"}, "conditions": [READY]}
        status, answer = kube_api.call("PUT", f"/api/v1/nodes/{name}/status", made)
        assert status == 200, answer
        kube_api.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": []}}, "application/merge-patch+json")
    yield names
    for name in names:
        kube_api.call("DELETE", f"/api/v1/nodes/{name}")


def test_nodes_are_listed_page_by_page(nodes: list[str], account: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.fleet.schedulers.kubernetes._PAGE", 2)
    found = Kubernetes(account).snapshot()
    assert [(one.name, one.usable, one.gpu_count, one.cpu_count, one.memory_bytes) for one in found.nodes] == [
        (name, True, 8, 96, 1056 * 2**20) for name in nodes
    ]
    assert found.version.startswith("v")


def test_a_spare_is_kept_out_of_use_and_brought_back(kube_api: KubeApi, nodes: list[str], account: str) -> None:
    adapter = Kubernetes(account)
    foreign = {"taints": [{"key": "team", "value": "b", "effect": "PreferNoSchedule"}]}
    kube_api.call("PATCH", "/api/v1/nodes/gpu-2", {"spec": foreign}, "application/merge-patch+json")
    adapter.drain("gpu-2", PARKED_REASON)
    parked = adapter.node("gpu-2")
    assert (parked.usable, parked.parked, parked.reason) == (False, True, PARKED_REASON)
    _status, row = kube_api.call("GET", "/api/v1/nodes/gpu-2")
    assert row["spec"]["unschedulable"] is True
    assert {one["key"] for one in row["spec"]["taints"]} >= {"team", STANDBY}
    adapter.resume("gpu-2")
    assert adapter.node("gpu-2").usable
    _status, row = kube_api.call("GET", "/api/v1/nodes/gpu-2")
    assert [one["key"] for one in row["spec"]["taints"]] == ["team"]
    assert STANDBY not in row["metadata"]["labels"]


def test_a_failed_node_is_emptied(kube_api: KubeApi, nodes: list[str], account: str) -> None:
    Kubernetes(account).fail("gpu-3", "muster drill drl_1")
    _status, row = kube_api.call("GET", "/api/v1/nodes/gpu-3")
    assert {(one["key"], one["effect"]) for one in row["spec"]["taints"]} >= {(FAILED, "NoExecute")}


def test_a_change_in_between_is_a_conflict_and_nothing_is_lost(nodes: list[str], account: str) -> None:
    adapter = Kubernetes(account)
    stale = out_of_use(adapter._node("gpu-1"), "muster drill drl_1")
    adapter.drain("gpu-1", "somebody else")
    with pytest.raises(SchedulerError, match="gave 409"):
        adapter._patch("gpu-1", stale)
    assert adapter.node("gpu-1").reason == "somebody else"


def test_a_job_is_found_with_its_failures(kube_api: KubeApi, account: str) -> None:
    container = {"name": "train", "image": "train:1"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "llm"}, "spec": {"template": template}}
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    status, made = kube_api.call("POST", jobs, job)
    assert status == 201, made
    made["status"] = {"active": 1, "failed": 2, "startTime": made["metadata"]["creationTimestamp"]}
    assert kube_api.call("PUT", f"{jobs}/llm/status", made)[0] == 200
    adapter = Kubernetes(account)
    found = adapter.job("default/llm")
    assert found is not None and (found.state, found.restart_count) == ("running", 2)
    assert found in adapter.snapshot().jobs
    assert adapter.job("default/none") is None


def test_what_the_account_may_not_do_is_refused_in_words(kube_api: KubeApi, account: str) -> None:
    with pytest.raises(SchedulerError, match="403.*cannot list resource"):
        Kubernetes(account)._call("GET", "/api/v1/secrets")
    with pytest.raises(SchedulerError, match="gave 401"):
        Kubernetes(kube_api.kubeconfig("wrong")).snapshot()


@pytest.mark.django_db
def test_a_cluster_on_it_is_inventoried(nodes: list[str], account: str, settings: Any) -> None:
    cluster = factories.cluster("west", scheduler="kubernetes")
    settings.SCHEDULERS = {"west": account}
    row = cluster_inventory.take_inventory(cluster.pk)
    assert row is not None
    assert (row.error, row.node_count, row.usable_count, row.gpu_count) == ("", 3, 3, 24)
