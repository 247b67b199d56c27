"""deploy/kubernetes: every object against Kubernetes' own schemas, strictly, and rules that the schemas do not know."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.conftest import ROOT

FOLDER = ROOT / "deploy/kubernetes"
OBJECTS = [
    (path.name, document)
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
]
WORKLOADS = [(name, one) for name, one in OBJECTS if one["kind"] not in {"Namespace"} and "spec" in one]


def label(one: Any) -> str:
    return f"{one['kind']}-{one['metadata']['name']}" if isinstance(one, dict) else str(one)


def pods() -> list[tuple[str, dict[str, Any]]]:
    """Every pod template, with the name of its object."""
    found = []
    for _file, one in WORKLOADS:
        spec = one["spec"].get("jobTemplate", {}).get("spec", one["spec"])
        if "template" in spec:
            found.append((label(one), spec["template"]["spec"]))
    return found


PODS = pods()
CONTAINERS = [
    (f"{name}-{container['name']}", pod, container)
    for name, pod in PODS
    for container in [*pod.get("initContainers", []), *pod["containers"]]
]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize(("file", "one"), OBJECTS, ids=label)
def test_kubernetes_schema_accepts_it(file: str, one: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.slow
def test_a_misspelt_field_would_be_noticed() -> None:
    one = yaml.safe_load(yaml.safe_dump(next(one for _file, one in OBJECTS if one["kind"] == "DaemonSet")))
    one["spec"]["template"]["spec"]["nodeSelektor"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, "1.37", strict=True)


def test_there_are_as_many_objects_as_expected() -> None:
    assert {one["kind"] for _file, one in OBJECTS} >= {
        "Deployment",
        "DaemonSet",
        "Job",
        "CronJob",
        "Service",
        "Ingress",
    }
    assert len(PODS) == 9


@pytest.mark.parametrize(("name", "pod", "container"), CONTAINERS, ids=[name for name, *_ in CONTAINERS])
def test_containers_are_locked_in_and_bounded(name: str, pod: dict[str, Any], container: dict[str, Any]) -> None:
    both = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
    assert both["allowPrivilegeEscalation"] is False
    assert both["capabilities"]["drop"] == ["ALL"]
    assert both["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "memory" in container["resources"]["limits"]
    if name != "DaemonSet-muster-agent-folders":  # it gives two folders of the node to the agent's user, and ends
        assert both["runAsNonRoot"] is True
        assert both["runAsUser"] > 0


@pytest.mark.parametrize(("name", "pod"), PODS, ids=[name for name, _pod in PODS])
def test_no_pod_gets_a_token_of_the_api_server(name: str, pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("name", "pod", "container"), CONTAINERS, ids=[name for name, *_ in CONTAINERS])
def test_everything_mounted_is_a_volume(name: str, pod: dict[str, Any], container: dict[str, Any]) -> None:
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    claimed = {"data"} if name.startswith("StatefulSet") else set()
    assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes | claimed


def test_every_setting_of_the_config_map_is_one() -> None:
    documented = set(re.findall(r"`([A-Z_]+)`", (ROOT / "docs/settings.md").read_text()))
    settings = next(one for _file, one in OBJECTS if one["kind"] == "ConfigMap")["data"]
    ours = {name.removesuffix("_FILE") if name not in documented else name for name in settings} - {
        "FORWARDED_ALLOW_IPS"
    }
    assert ours <= documented


def test_selectors_find_their_pods() -> None:
    for _file, one in WORKLOADS:
        if one["kind"] in {"Deployment", "StatefulSet", "DaemonSet"}:
            wanted = one["spec"]["selector"]["matchLabels"].items()
            assert wanted <= one["spec"]["template"]["metadata"]["labels"].items()


def test_a_web_pod_outlives_what_its_server_waits_for() -> None:
    text = (ROOT / "deploy/docker/Dockerfile").read_text()
    grace = re.search(r'"--timeout-graceful-shutdown", "(\d+)"', text)
    assert grace is not None
    web = next(one for _file, one in OBJECTS if one["metadata"]["name"] == "muster-web" and one["kind"] == "Deployment")
    assert web["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > int(grace[1])
