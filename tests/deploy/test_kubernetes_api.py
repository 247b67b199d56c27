"""deploy/kubernetes applied to a real API server, twice: it takes every object as it stands, and a second time changes
nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from servers.kubernetes import KubeApi

from tests.deploy.conftest import ROOT

pytestmark = pytest.mark.kubernetes
FILES = ("namespace.yaml", "state.yaml", "server.yaml", "agent.yaml", "scheduler-access.yaml", "train-job.yaml")
OLDER = {"policy/v1": "policy/v1beta1", ("batch/v1", "CronJob"): "batch/v1beta1"}
"""Where the API server that Debian has (1.20) knows the object by the version before, which has the same fields."""

NEWER = {"podFailurePolicy"}
"""Of a Job; Kubernetes has it since 1.26."""


def documents() -> list[dict[str, Any]]:
    folder = ROOT / "deploy/kubernetes"
    return [one for name in FILES for one in yaml.safe_load_all((folder / name).read_text())]


def known(kube_api: KubeApi, one: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The object in a version that the server has, and its path."""
    version, kind = one["apiVersion"], one["kind"]
    if kind not in kube_api.resources(version):
        version = OLDER.get((version, kind)) or OLDER[version]
    found = kube_api.resources(version)[kind]
    root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    place = f"/namespaces/{one['metadata'].get('namespace', 'default')}" if found["namespaced"] else ""
    taken = {**one, "apiVersion": version}
    if kind == "Job":
        taken["spec"] = {name: value for name, value in one["spec"].items() if name not in NEWER}
    return taken, f"{root}{place}/{found['name']}/{one['metadata']['name']}"


def test_every_object_is_taken_and_a_second_time_changes_nothing(kube_api: KubeApi) -> None:
    first, second = ([applied(kube_api, one) for one in documents()] for _time in range(2))
    assert second == first


def applied(kube_api: KubeApi, one: dict[str, Any]) -> dict[str, Any]:
    """What the server holds then, without the note of when who wrote it."""
    document, path = known(kube_api, one)
    status, answer = kube_api.apply(document, path)
    assert status in (200, 201), (path, answer.get("message"))
    for name in ("managedFields", "resourceVersion"):
        del answer["metadata"][name]
    return dict(answer)


def test_a_misspelt_object_is_refused(kube_api: KubeApi) -> None:
    kube_api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "muster-agents"}})
    one = next(one for one in documents() if one["kind"] == "DaemonSet")
    wrong = {**one, "metadata": {**one["metadata"], "name": "wrong"}, "spec": {**one["spec"], "selektor": {}}}
    _document, path = known(kube_api, wrong)
    status, answer = kube_api.apply(wrong, path)
    assert status >= 400 and "selektor" in answer["message"]
