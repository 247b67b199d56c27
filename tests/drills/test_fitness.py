"""Whether a node is fit to train, check by check: pure."""

from __future__ import annotations

from typing import Any

import pytest
from muster_agent.protocol.probe import MountFact, ProbeBody

from apps.drills.fitness import Needs, checks, unfit

NVME = MountFact(root="/nvme", file_system="xfs", total_bytes=1000, free_bytes=400)


def probe(*mounts: MountFact, **fields: Any) -> ProbeBody:
    return ProbeBody(**{"agent_version": "0.1.0", "gpu_count": 8, "mounts": mounts or (NVME,), **fields})


def needs(**fields: Any) -> Needs:
    defaults = {"gpu_count": 8, "agent_version": "0.1.0", "file_systems": {"/nvme": "xfs"}}
    return Needs(**{**defaults, "peer_bytes_per_second": 10e9, **fields})


def verdicts(body: ProbeBody, asked: Needs, own: float | None = 9e9) -> dict[str, bool | None]:
    return {check.name: check.is_fit for check in checks(body, asked, own)}


def test_a_node_like_the_others_is_fit() -> None:
    assert set(verdicts(probe(), needs()).values()) == {True}
    assert unfit(checks(probe(), needs(), 9e9)) == ""


@pytest.mark.parametrize(
    ("body", "name", "said"),
    [
        (probe(MountFact(root="/nvme", problem="/nvme is not mounted")), "mounts", "/nvme is not mounted"),
        (probe(MountFact(root="/other", file_system="xfs")), "mounts", "its agent may not read /nvme"),
        (probe(MountFact(root="/nvme", file_system="tmpfs")), "mounts", "/nvme is tmpfs and not xfs"),
        (
            probe(MountFact(root="/nvme", file_system="xfs", total_bytes=1000, free_bytes=49)),
            "free_space",
            "less than 5% is free on /nvme",
        ),
        (probe(gpu_count=7), "gpus", "7 GPUs, 8 needed"),
        (probe(agent_version="0.0.9"), "agent_version", "agent 0.0.9"),
    ],
)
def test_what_is_wrong_is_named(body: ProbeBody, name: str, said: str) -> None:
    assert verdicts(body, needs())[name] is False
    assert said in unfit(checks(body, needs(), 9e9))


def test_a_node_that_reloads_at_less_than_half_of_the_others_is_not_fit() -> None:
    assert verdicts(probe(), needs(), 4.9e9)["reload_speed"] is False
    assert verdicts(probe(), needs(), 5.0e9)["reload_speed"] is True


def test_what_nobody_tells_stops_nobody_and_is_not_called_fit() -> None:
    bucket = MountFact(root="/nvme", file_system="xfs")
    unknown = verdicts(probe(bucket, gpu_count=None), needs(agent_version="", peer_bytes_per_second=None), None)
    assert unknown == {"mounts": True, "free_space": None, "gpus": None, "agent_version": None, "reload_speed": None}
    assert unfit(checks(probe(bucket, gpu_count=None), needs(agent_version=""), None)) == ""
