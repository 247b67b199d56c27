"""What is looked at around a reload, outside its clock: the manifest, the kind of storage, the way into a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from muster_agent.formats.base import Finding, Severity
from muster_agent.formats.codes import finding
from muster_agent.formats.places import is_bucket
from muster_agent.jobs.checkpoint_place import CheckpointPlace
from muster_agent.manifest.beside import SEAL_AGAIN, ManifestUnreadable, read_beside
from muster_agent.manifest.check import why_invalid
from muster_agent.manifest.model import Manifest
from muster_agent.probes.filesystem import read_file_system
from muster_agent.probes.gds import GdsProbe, read_cuda_devices, read_gds
from muster_agent.probes.lustre import read_stripe_count
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload.backends import Device

_STRIPES_LOOKED_AT = 16


def manifest_for(place: CheckpointPlace, given: Manifest | None) -> tuple[Manifest | None, tuple[Finding, ...]]:
    """The given one, else the one beside the data, if it can be relied on; else what is wrong with it."""
    if given is not None:
        fault = why_invalid(given)
        if fault is None:
            return given, ()
        detail = f"the manifest that was given is not usable: {fault}"
        return None, (
            finding("metadata_unreadable", path="manifest", detail=detail, severity=Severity.WARNING, cure=SEAL_AGAIN),
        )
    try:
        return read_beside(place.path, place.files), ()
    except ManifestUnreadable as error:
        return None, (error.finding,)


def stripe_facts(path: str, locations: Sequence[str]) -> dict[str, Any]:
    """On how few storage targets one of the largest files lies, where the file system tells."""
    if is_bucket(path) or read_file_system(path).name != "lustre":
        return {}
    largest = sorted(locations, key=_size_of, reverse=True)[:_STRIPES_LOOKED_AT]
    counts = [count for count in map(read_stripe_count, largest) if count is not None]
    return {"stripe_count": min(counts)} if counts else {}


def storage_facts(path: str) -> dict[str, Any]:
    """What kind of storage it is; what a server keeps in its own memory cannot be seen from here."""
    if is_bucket(path):
        return {"file_system": "s3", "server_cache": "unknown"}
    file_system = read_file_system(path)
    return {"file_system": file_system.name, **({"server_cache": "unknown"} if file_system.is_remote else {})}


def probe_gds(params: ReloadParams, locations: Sequence[str], device: Device | None) -> GdsProbe | None:
    """A canary read of the largest file, where cuFile may be used at all."""
    if params.backend not in ("auto", "gds") or params.device == "cpu":
        return None
    if params.backend == "auto" and read_cuda_devices()[0] == 0:
        return None
    if not locations:
        return GdsProbe(usable=False, reason="there is no shard to try it on")
    return read_gds(max(locations, key=_size_of), device.index if device is not None else 0)


def _size_of(location: str) -> int:
    try:
        return os.stat(location).st_size
    except OSError:
        return 0
