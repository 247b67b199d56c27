"""The inventory job: what lies under a root, with the manifests that lie beside it."""

from __future__ import annotations

from collections.abc import Iterable

from muster_agent.formats.base import Finding, ShardMap
from muster_agent.formats.walk import inventory
from muster_agent.jobs.control import JobControl
from muster_agent.jobs.root_mark import root_mark
from muster_agent.manifest.beside import ManifestUnreadable, read_beside
from muster_agent.manifest.model import Manifest
from muster_agent.protocol.wire import InventoryBody, InventoryParams


def run_inventory(params: InventoryParams, control: JobControl | None = None) -> InventoryBody:
    """Every checkpoint under the root, without tensors. Raises RootUnreadable where the root cannot be listed."""
    control = control or JobControl()
    found = inventory(params.root, control=control)
    manifests, problems = read_manifests(found.checkpoints, control)
    return InventoryBody(
        root=params.root,
        checkpoints=found.checkpoints,
        manifests=manifests,
        findings=(*found.findings, *problems),
        pointers=found.pointers,
        root_mark=root_mark(params.root),
    )


def read_manifests(
    shard_maps: Iterable[ShardMap], control: JobControl
) -> tuple[dict[str, Manifest], tuple[Finding, ...]]:
    """Manifests beside the checkpoints, by checkpoint path, and what is wrong with those that cannot be relied on."""
    manifests: dict[str, Manifest] = {}
    problems: list[Finding] = []
    for shard_map in shard_maps:
        control.check()
        try:
            manifest = read_beside(shard_map.path)
        except ManifestUnreadable as unreadable:
            problems.append(unreadable.finding)
            continue
        if manifest is not None:
            manifests[shard_map.path] = manifest
    return manifests, tuple(problems)
