"""What Slurm's programs printed, recorded from a real 22.05 controller, and the shapes of later versions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apps.fleet.schedulers.base import SchedulerError
from apps.fleet.schedulers.hostlist import expand
from apps.fleet.schedulers.slurm_parsing import (
    parse_jobs,
    parse_nodes,
    parse_partitions,
    parse_requeue_hold,
    parse_version,
)

RECORDED = Path(__file__).parents[2] / "data" / "slurm"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_nodes_say_whether_new_work_is_placed_on_them_and_why_not() -> None:
    nodes = {node.name: node for node in parse_nodes(recorded("sinfo-22.05-mixed.json"))}
    assert {name: (node.state, node.usable, node.parked) for name, node in nodes.items()} == {
        "gpu-1": ("mixed", True, False),
        "gpu-2": ("mixed+drain", False, False),
        "gpu-3": ("down", False, False),
        "gpu-4": ("idle+drain", False, True),
    }
    assert [node.reason for node in nodes.values()] == ["", "bad nvlink", "no answer", "muster standby"]
    one = nodes["gpu-1"]
    assert (one.gpu_count, one.cpu_count, one.memory_bytes) == (8, 8, 1000 * 2**20)
    assert (one.partitions, one.features) == (("train",), ("rack-0",))


def test_a_requeued_job_says_how_often_and_until_when_it_is_held() -> None:
    [running, _waiting] = parse_jobs(recorded("squeue-22.05-running.json"))
    assert (running.job_id, running.name, running.state, running.nodes) == (
        "1",
        "llama-70b",
        "running",
        ("gpu-1", "gpu-2"),
    )
    assert (running.restart_count, running.reason) == (0, "")
    [requeued, waiting] = parse_jobs(recorded("squeue-22.05-requeued.json"))
    assert (requeued.state, requeued.reason, requeued.restart_count, requeued.nodes) == ("pending", "BeginTime", 1, ())
    assert requeued.submitted_at == datetime(2026, 11, 30, 22, 9, 13, tzinfo=UTC)
    assert requeued.eligible_at == datetime(2026, 11, 30, 22, 9, 19, tzinfo=UTC)
    assert waiting.started_at is None


def test_later_versions_write_states_as_lists_and_numbers_as_objects() -> None:
    def number(value: int) -> dict[str, object]:
        return {"set": True, "infinite": False, "number": value}

    node = {"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "muster standby: spare", "gres": "gpu:h100:8(S:0-1)"}
    [parsed] = parse_nodes(json.dumps({"nodes": [{**node, "cpus": 96, "real_memory": 1000, "partitions": ["a", "b"]}]}))
    assert (parsed.state, parsed.parked, parsed.gpu_count, parsed.partitions) == ("idle+drain", True, 8, ("a", "b"))
    job = {
        "job_id": 7,
        "job_state": ["RUNNING"],
        "restart_cnt": 2,
        "submit_time": number(1796076553),
        "nodes": "n[1-2]",
    }
    [parsed_job] = parse_jobs(json.dumps({"jobs": [{**job, "eligible_time": {**number(0), "set": False}}]}))
    assert (parsed_job.state, parsed_job.restart_count, parsed_job.nodes) == ("running", 2, ("n1", "n2"))
    assert parsed_job.submitted_at == datetime(2026, 11, 30, 22, 9, 13, tzinfo=UTC)
    assert parsed_job.eligible_at is None


@pytest.mark.parametrize(
    ("flags", "usable"), [(["IDLE", "PLANNED"], True), (["IDLE", "NOT_RESPONDING"], False), (["IDLE", "MAINT"], False)]
)
def test_a_flag_that_is_not_known_to_be_harmless_makes_a_node_unusable(flags: list[str], usable: bool) -> None:
    [node] = parse_nodes(json.dumps({"nodes": [{"name": "n1", "state": flags}]}))
    assert node.usable is usable


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"nodes": []}', '{"errors": [{"error": "no"}], "jobs": []}'])
def test_an_answer_without_jobs_is_an_error_and_never_an_empty_cluster(text: str) -> None:
    with pytest.raises(SchedulerError):
        parse_jobs(text)


def test_partitions_version_and_the_hold_of_a_requeue() -> None:
    line = "PartitionName=train AllowGroups=ALL Nodes=gpu-[1-4] State=UP TotalCPUs=32 TotalNodes=4\n"
    [partition] = parse_partitions(line)
    assert (partition.name, partition.state, partition.node_count) == ("train", "up", 4)
    assert parse_version("slurm-wlm 22.05.8\n") == "22.05.8"
    assert parse_requeue_hold("AuthInfo   = socket=/run/munge.sock,cred_expire=20\n") == 21.0
    assert parse_requeue_hold("AuthInfo   = (null)\nAuthType = auth/munge\n") == 121.0
    assert parse_requeue_hold("AuthType = auth/munge\n") is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("gpu-1", ("gpu-1",)),
        ("gpu-[1-3]", ("gpu-1", "gpu-2", "gpu-3")),
        ("gpu-[08-10],login", ("gpu-08", "gpu-09", "gpu-10", "login")),
        ("r[1-2]n[3,5]", ("r1n3", "r1n5", "r2n3", "r2n5")),
    ],
)
def test_host_lists_are_spelled_out(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["gpu-[1-3", "gpu-1]", "gpu-[3-1]", "gpu-[1-99999999]", "gpu-[[1]]", "gpu-[a]"])
def test_host_lists_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        expand(text)
