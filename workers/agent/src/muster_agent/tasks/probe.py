"""Task kind `probe`: is this node fit to take over, as far as it can tell itself?"""

from __future__ import annotations

import os

from muster_agent import __version__
from muster_agent.formats.places import is_bucket
from muster_agent.probes.filesystem import missing_mount, read_file_system
from muster_agent.probes.gpu_count import read_gpu_count
from muster_agent.protocol.probe import MountFact, ProbeBody, ProbeParams
from muster_agent.tasks.context import Run, TaskContext


def prepare(_params: ProbeParams, context: TaskContext) -> Run:
    def run() -> ProbeBody:
        return ProbeBody(
            agent_version=__version__,
            gpu_count=read_gpu_count(),
            mounts=tuple(read_mount(root) for root in context.roots.roots),
        )

    return run


def read_mount(root: str) -> MountFact:
    """What lies at a root now. A bucket has no free space to tell."""
    if is_bucket(root):
        return MountFact(root=root, file_system="s3")
    try:
        found = os.statvfs(root)
        with os.scandir(root) as entries:
            next(entries, None)
    except OSError as error:
        return MountFact(root=root, problem=f"{root} cannot be listed: {error.strerror}")
    absent = missing_mount(root)
    return MountFact(
        root=root,
        file_system=read_file_system(root).name,
        total_bytes=found.f_frsize * found.f_blocks,
        free_bytes=found.f_frsize * found.f_bavail,
        problem=f"{absent} is not mounted" if absent else "",
    )
