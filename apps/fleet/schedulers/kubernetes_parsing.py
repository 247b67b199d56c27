"""From what the API server of Kubernetes answers to nodes and jobs, and the changes of a node as patches. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from apps.fleet.schedulers.base import PARKED_REASON, SchedulerError, SchedulerJob, SchedulerNode

STANDBY, FAILED = "muster.dev/standby", "muster.dev/failed"
"""Keys of the taints by which a spare is kept out of use, and a failed node emptied."""
REASON = "muster.dev/reason"
"""The annotation that says why a node is out of use; kubectl shows it."""
GPU = "nvidia.com/gpu"
_BLOCKING = ("NoSchedule", "NoExecute")
_UNITS = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30,
    "Ti": 2.0**40,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]{0,2})")


def parse_nodes(document: Any) -> tuple[SchedulerNode, ...]:
    """A NodeList. Raises SchedulerError."""
    return tuple(parse_node(item) for item in _items(document))


def parse_jobs(document: Any) -> tuple[SchedulerJob, ...]:
    """A JobList of batch/v1. Raises SchedulerError."""
    return tuple(parse_job(item) for item in _items(document))


def parse_node(item: dict[str, Any]) -> SchedulerNode:
    metadata, spec, status = (item.get(name) or {} for name in ("metadata", "spec", "status"))
    taints = [one for one in spec.get("taints") or () if one.get("effect") in _BLOCKING]
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    ready = conditions.get("Ready") == "True"
    cordoned = bool(spec.get("unschedulable"))
    capacity = status.get("capacity") or {}
    keys = [str(one.get("key")) for one in taints]
    said = (metadata.get("annotations") or {}).get(REASON, "")
    return SchedulerNode(
        name=str(metadata.get("name") or ""),
        state="+".join(["ready" if ready else "not_ready", *(["cordoned"] if cordoned else []), *keys]),
        usable=ready and not cordoned and not taints,
        parked=ready and STANDBY in keys,
        reason=str(said),
        cpu_count=_whole(capacity.get("cpu")),
        gpu_count=_whole(capacity.get(GPU)) or 0,
        memory_bytes=_whole(capacity.get("memory")),
        features=tuple(f"{key}={value}" for key, value in sorted((metadata.get("labels") or {}).items())),
    )


def parse_job(item: dict[str, Any]) -> SchedulerJob:
    metadata, status = item.get("metadata") or {}, item.get("status") or {}
    ended = next((one["type"] for one in status.get("conditions") or () if one.get("status") == "True"), "")
    return SchedulerJob(
        job_id=f"{metadata.get('namespace')}/{metadata.get('name')}",
        name=str(metadata.get("name") or ""),
        state=str(ended).lower() or ("running" if status.get("active") else "pending"),
        partition=str(metadata.get("namespace") or ""),
        restart_count=status.get("failed") or 0,
        submitted_at=_moment(metadata.get("creationTimestamp")),
        started_at=_moment(status.get("startTime")),
    )


def out_of_use(node: dict[str, Any], reason: str, *, evict: bool = False) -> dict[str, Any]:
    """A merge patch that cordons a node and says why; a spare and a node to be emptied get a taint too. It names the
    version that it was made for, so that a change in between is a conflict and not lost."""
    keys = [STANDBY] * reason.startswith(PARKED_REASON) + [FAILED] * evict
    effects = {STANDBY: "NoSchedule", FAILED: "NoExecute"}
    taints = _foreign_taints(node) + [{"key": key, "effect": effects[key]} for key in keys]
    labels = {STANDBY: "true" if STANDBY in keys else None}
    return _patch(node, {"unschedulable": True, "taints": taints}, labels, {REASON: reason})


def in_use(node: dict[str, Any]) -> dict[str, Any]:
    """A merge patch that takes back whatever Muster has put on a node. Taints of others stay."""
    return _patch(node, {"unschedulable": None, "taints": _foreign_taints(node)}, {STANDBY: None}, {REASON: None})


def _patch(
    node: dict[str, Any], spec: dict[str, Any], labels: dict[str, Any], annotations: dict[str, Any]
) -> dict[str, Any]:
    version = (node.get("metadata") or {}).get("resourceVersion")
    return {"metadata": {"resourceVersion": version, "labels": labels, "annotations": annotations}, "spec": spec}


def _foreign_taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    """All but Muster's own, and the one that the API server adds to a cordoned node by itself."""
    own = (STANDBY, FAILED, "node.kubernetes.io/unschedulable")
    return [one for one in (node.get("spec") or {}).get("taints") or () if one.get("key") not in own]


def _items(document: Any) -> list[dict[str, Any]]:
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise SchedulerError(f"Kubernetes' answer is no list: {str(document)[:200]}")
    return [item for item in items if isinstance(item, dict)]


def _whole(quantity: Any) -> int | None:
    """`8`, `7500m`, `1056Mi`: rounded down; None for anything else."""
    found = _QUANTITY.fullmatch(str(quantity or ""))
    if found is None or found[2] not in _UNITS:
        return None
    return int(float(found[1]) * _UNITS[found[2]])


def _moment(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")) if text else None
    except ValueError:
        return None
