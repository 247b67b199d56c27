"""Is a node fit to train: what it says of itself against what the work needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster_agent.protocol.probe import MountFact, ProbeBody

MIN_FREE_RATIO = 0.05
MIN_SPEED_RATIO = 0.5
"""A node that reloads at less than half of the others' median has something wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """`gpu_count` and `agent_version`: None and "" where nobody says. `file_systems`: by root. `peer_bytes_per_second`:
    the median of the other nodes' last reloads."""

    gpu_count: int | None = None
    agent_version: str = ""
    file_systems: Mapping[str, str]
    peer_bytes_per_second: float | None = None


@dataclass(frozen=True)
class Check:
    """`is_fit` None: it could not be told, which stops nobody and is shown."""

    name: str
    is_fit: bool | None
    detail: str


def checks(probe: ProbeBody, needs: Needs, own_bytes_per_second: float | None) -> list[Check]:
    """Every check, in the order of a page."""
    return [
        _mounts(probe, needs),
        _space(probe),
        _gpus(probe, needs),
        _version(probe, needs),
        _speed(own_bytes_per_second, needs.peer_bytes_per_second),
    ]


def unfit(found: Sequence[Check]) -> str:
    """What is wrong, as one sentence; "" where nothing is."""
    return "; ".join(check.detail for check in found if check.is_fit is False)


def _mounts(probe: ProbeBody, needs: Needs) -> Check:
    there = {mount.root: mount for mount in probe.mounts}
    wrong = [mount.problem for mount in probe.mounts if mount.problem]
    for root, name in needs.file_systems.items():
        mount = there.get(root)
        if mount is None:
            wrong.append(f"its agent may not read {root}")
        elif not mount.problem and mount.file_system != name:
            wrong.append(f"{root} is {mount.file_system} and not {name}")
    return Check("mounts", not wrong, "; ".join(wrong) or f"{len(probe.mounts)} mounted as expected")


def _space(probe: ProbeBody) -> Check:
    measured = [mount for mount in probe.mounts if mount.total_bytes]
    full = [mount.root for mount in measured if _free_ratio(mount) < MIN_FREE_RATIO]
    if full:
        return Check("free_space", False, f"less than {MIN_FREE_RATIO:.0%} is free on {', '.join(full)}")
    if not measured:
        return Check("free_space", None, "no root tells its free space")
    return Check("free_space", True, f"at least {min(map(_free_ratio, measured)):.0%} is free")


def _free_ratio(mount: MountFact) -> float:
    return (mount.free_bytes or 0) / (mount.total_bytes or 1)


def _gpus(probe: ProbeBody, needs: Needs) -> Check:
    if probe.gpu_count is None or needs.gpu_count is None:
        return Check("gpus", None, "the number of GPUs is not told")
    is_fit = probe.gpu_count >= needs.gpu_count
    return Check("gpus", is_fit, f"{probe.gpu_count} GPUs, {needs.gpu_count} needed")


def _version(probe: ProbeBody, needs: Needs) -> Check:
    if not needs.agent_version:
        return Check("agent_version", None, "there is no agent to compare the version with")
    is_fit = probe.agent_version == needs.agent_version
    return Check(
        "agent_version", is_fit, f"agent {probe.agent_version}, {needs.agent_version} on the node it stands in for"
    )


def _speed(own: float | None, peers: float | None) -> Check:
    if own is None or peers is None:
        return Check("reload_speed", None, "no reload drill has measured it and the others within 90 days")
    ratio = own / peers if peers else 1.0
    return Check("reload_speed", ratio >= MIN_SPEED_RATIO, f"its last reload ran at {ratio:.0%} of the others' median")
