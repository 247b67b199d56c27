"""The whole protocol once, with a real server and real agents."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from checkpoint_files import write_checkpoint
from live import LiveAgent, LiveServer, done

MakeAgent = Callable[..., LiveAgent]


def test_an_agent_joins_inventories_seals_verifies_and_reloads(
    server: LiveServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run")
    agent = make_agent("happy-1", roots=[tmp_path / "run"]).start()
    inventory = done(server, server.call("create_task", agent.id, "inventory", {"root": str(tmp_path / "run")}))
    assert inventory["outcome"] == "done", inventory["error"]
    assert [one["path"] for one in inventory["result"]["checkpoints"]] == [str(checkpoint)]
    sealed = done(server, server.call("create_task", agent.id, "seal", {"path": str(checkpoint)}))
    assert sealed["outcome"] == "done", sealed["error"]
    manifest = sealed["result"]["manifest"]
    params = {"path": str(checkpoint), "manifest": manifest}
    verified = done(server, server.call("create_task", agent.id, "verify", params))
    assert verified["result"]["verified"] is True
    reload = {"path": str(checkpoint), "shards": [shard["path"] for shard in manifest["shards"]], "manifest": manifest}
    reloaded = done(server, server.call("create_task", agent.id, "reload", reload))
    assert reloaded["outcome"] == "done", reloaded["error"]
    assert reloaded["result"]["report"]["bytes"] == sum(shard["size_bytes"] for shard in manifest["shards"])
    assert "read" in reloaded["progress"]["phases"]


def start_together(server: LiveServer, agents: list[LiveAgent], checkpoint: Path) -> tuple[float, float]:
    """One reload on all agents behind a barrier: seconds from asking to the last start, and the starts' spread."""
    asked_at = time.time()
    group = server.call("create_group", len(agents))
    tasks = [
        server.call(
            "create_task",
            agent.id,
            "reload",
            {"path": str(checkpoint), "shards": [f"rank-{rank:05d}-of-00004.safetensors"]},
            group_id=group,
        )
        for rank, agent in enumerate(agents)
    ]
    results = [done(server, task) for task in tasks]
    assert [one["outcome"] for one in results] == ["done"] * len(agents), results
    starts = [one["result"]["started_unix_seconds"] for one in results]
    return max(starts) - asked_at, max(starts) - min(starts)


def test_four_agents_start_together_within_two_seconds_of_being_asked(
    server: LiveServer, make_agent: MakeAgent, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path / "run", ranks=4)
    agents = [make_agent(f"together-{number}", roots=[tmp_path / "run"]).start() for number in range(4)]
    time.sleep(1.0)  # all are waiting in their polls
    rounds = [start_together(server, agents, checkpoint) for _round in range(3)]
    print("seconds to the start and skew:", rounds)
    assert min(delay for delay, _skew in rounds) <= 2.0  # other processes of the suite may disturb one round
    assert min(skew for _delay, skew in rounds) <= 0.2
