"""What the agent tells about its node: read once per boot."""

from __future__ import annotations

import os
import platform
from typing import Any

from muster_agent.formats.places import is_bucket
from muster_agent.probes.filesystem import read_file_system
from muster_agent.probes.gpu_count import read_gpu_count
from muster_agent.runtime.config import AgentConfig


def read_facts(config: AgentConfig) -> dict[str, Any]:
    """JSON values only."""
    return {
        "roots": list(config.roots),
        "copy_roots": list(config.copy_roots),
        "file_systems": {root: _file_system(root) for root in config.roots},
        "gpu_count": read_gpu_count(),
        "cpu_count": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "slots": config.slots,
        "loaders": sorted(config.loaders),
        "allows_disrupt": config.allow_disrupt,
        "links": sorted(config.links),
    }


def _file_system(root: str) -> str:
    return "s3" if is_bucket(root) else read_file_system(root).name


def read_machine_id() -> str:
    """What tells this machine from others: systemd's machine id, else the host's name."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, encoding="ascii", errors="replace") as stream:
                found = stream.read(128).strip()
        except OSError:
            continue
        if found:
            return found
    return f"host-{platform.node()}"[:128]
