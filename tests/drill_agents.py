"""In-process agents for drill tests: fleet's real task life, and the real reload engine on real files."""

from __future__ import annotations

import time
from pathlib import Path

import factories
import msgspec
from muster_agent.formats.checkpoint import files_of, read_checkpoint
from muster_agent.formats.fingerprint import fingerprint
from muster_agent.jobs.reload import prepare
from muster_agent.jobs.seal import seal
from muster_agent.manifest.model import manifest_id
from muster_agent.protocol.wire import ReloadParams, TaskResult

from apps.checkpoints import manifests
from apps.checkpoints.models import Placement, Shard, TrainingRun
from apps.drills import engine
from apps.drills.models import Drill
from apps.fleet import barrier, tasks
from apps.fleet.models import Agent, AgentTask, Cluster
from apps.storage.models import StorageTier
from tests.agent.checkpoint_factory import write_checkpoint


class Yard:
    """A cluster with `node_count` online agents, one tier at `folder`, and a run."""

    def __init__(self, folder: Path, node_count: int = 4) -> None:
        self.cluster: Cluster = factories.cluster()
        self.nodes = [factories.node(self.cluster, f"gpu-{number}") for number in range(1, node_count + 1)]
        self.agents: list[Agent] = [factories.agent(node, roots=[str(folder)]) for node in self.nodes]
        self.folder = folder / "llama-70b"
        self.tier: StorageTier = factories.tier(self.cluster, uri=str(folder))
        self.run: TrainingRun = factories.run(self.cluster)

    def checkpoint(
        self,
        step: int = 10,
        *,
        world_size: int = 4,
        sealed: bool = True,
        trust: str = "verified",
        rank_bytes: int = 60_000,
    ) -> Placement:
        """A real checkpoint on disk with its rows as a scan would leave them."""
        path = write_checkpoint(self.folder, step, world_size=world_size, rank_bytes=rank_bytes)
        shard_map = read_checkpoint(str(path))
        placement = factories.placement(self.run, self.tier, step, shards=0, path=str(path), trust=trust)
        Shard.objects.bulk_create(
            Shard(
                placement=placement,
                path=shard.path,
                size_bytes=shard.size_bytes,
                rank=shard.rank,
                role=shard.role.value,
                mtime_ns=shard.mtime_ns,
            )
            for shard in shard_map.shards
        )
        placement.fingerprint = fingerprint(files_of(shard_map))
        placement.total_bytes = shard_map.total_bytes
        placement.shard_count = len(shard_map.shards)
        if sealed:
            manifest = seal(str(path), write_beside=False).manifest
            assert manifest is not None
            placement.manifest = manifests.store_manifest(checkpoint=placement.checkpoint, manifest=manifest)
            assert placement.manifest.pk == manifest_id(manifest)
        placement.save()
        return placement


def work(agents: list[Agent], *, leave: tuple[str, ...] = ()) -> None:
    """Each agent takes up its tasks, all meet at the barrier, and each reads what it was told to read. Agents on the
    nodes named in `leave` take nothing up."""
    held = [task for agent in agents if agent.node.name not in leave for task in tasks.claim(agent=agent, slots=4)]
    ready = []
    for task in held:
        tasks.acknowledge(agent=task.agent, task_id=task.pk, attempt=task.attempt)
        task.refresh_from_db()
        ready.append((task, prepare(msgspec.convert(task.params, ReloadParams))))
        barrier.mark_ready(task)
    for group_id in {task.group_id for task in held if task.group_id}:
        barrier.settle(group_id)
    for task, prepared in ready:
        body = prepared.run()
        report(task, TaskResult(outcome="done", body=msgspec.to_builtins(body)))


def report(task: AgentTask, result: TaskResult) -> None:
    tasks.finish(agent=task.agent, task_id=task.pk, attempt=task.attempt, result=result)


def fail_task(task: AgentTask, error: str) -> None:
    """The agent took the task up and failed."""
    claimed = tasks.claim(agent=task.agent, slots=4)
    mine = next(one for one in claimed if one.pk == task.pk)
    tasks.acknowledge(agent=mine.agent, task_id=mine.pk, attempt=mine.attempt)
    report(mine, TaskResult(outcome="failed", error=error, error_code="io"))


def tasks_of(drill: Drill) -> list[AgentTask]:
    return list(tasks.tasks_of("drill", drill.pk).order_by("agent__node__name", "created_at"))


def advanced(drill: Drill) -> Drill:
    engine.advance(drill.pk)
    drill.refresh_from_db()
    return drill


def run_to_end(drill: Drill, agents: list[Agent], *, seconds: float = 20) -> Drill:
    """Let engine and agents take turns until the drill has finished."""
    deadline = time.monotonic() + seconds
    while advanced(drill).state != Drill.State.FINISHED:
        assert time.monotonic() < deadline, f"{drill.state}: {drill.reason}"
        work(agents)
    return drill
