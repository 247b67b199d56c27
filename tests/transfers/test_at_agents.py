"""Transfers of places that the workers do not reach: an agent does each step, the control plane keeps the row."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import factories
import pytest
from django.utils import timezone
from muster_agent.jobs import copy_retire
from muster_agent.jobs.control import JobControl
from muster_agent.protocol.wire import TaskOrder, TaskResult
from muster_agent.runtime.execution import execute
from muster_agent.tasks import copy as copy_task
from muster_agent.tasks.context import TaskContext
from muster_agent.tasks.limits import Limits
from muster_agent.tasks.roots import Roots

from apps.checkpoints import placements
from apps.checkpoints.models import InventoryScan, Placement
from apps.core.errors import Conflict, InvalidInput
from apps.fleet import tasks
from apps.fleet.models import Agent, AgentTask
from apps.transfers import at_agents, marks, moving, planning, policies, services
from apps.transfers.models import Transfer
from apps.transfers.services import request_transfer
from tests.transfers.conftest import Tiers
from tests.transfers.test_moving import bytes_of, states

pytestmark = pytest.mark.django_db


class Node:
    """An agent without its loop: it takes up what is queued for it, does it for real, and reports."""

    def __init__(self, tiers: Tiers, name: str = "gpu-1", *, copy_roots: list[str] | None = None) -> None:
        self.root = str(Path(tiers.hot.uri).parent)
        self.copy_roots = [self.root] if copy_roots is None else copy_roots
        node = factories.node(tiers.hot.cluster, name, facts={"copy_roots": self.copy_roots})
        self.agent: Agent = factories.agent(node, roots=[self.root])
        self.control = JobControl()
        self.stopped: Any = None

    def end_all(self) -> None:
        return

    @property
    def reporter(self) -> Any:
        return self

    def work(self) -> list[TaskResult]:
        return [self.do(task) for task in tasks.claim(agent=self.agent, slots=4)]

    def do(self, task: AgentTask) -> TaskResult:
        tasks.acknowledge(agent=self.agent, task_id=task.pk, attempt=task.attempt)
        order = TaskOrder(task_id=task.pk, attempt=task.attempt, kind=task.kind, params=task.params, lease_seconds=60)
        result = execute(order, self._context(), self, lambda: None)  # type: ignore[arg-type]
        tasks.finish(agent=self.agent, task_id=task.pk, attempt=task.attempt, result=result)
        return result

    def _context(self) -> TaskContext:
        return TaskContext(
            roots=Roots([self.root]),
            copy_roots=Roots(self.copy_roots),
            limits=Limits(),
            control=self.control,
            reporter=self,  # type: ignore[arg-type]
            clock_offset_seconds=lambda: 0.0,
            hook_directory=None,
        )


@pytest.fixture
def node(tiers: Tiers, settings: Any) -> Node:
    settings.WORKER_ROOTS = []
    return Node(tiers)


@pytest.fixture
def saved(tiers: Tiers) -> Tiers:
    tiers.save(10, 20)
    return tiers


def move(tiers: Tiers, **wishes: Any) -> Transfer:
    wanted = {"kind": "move", "target_tier": tiers.cold, "actor": "olga", **wishes}
    return request_transfer(placement=tiers.placement(10), **wanted)


def drive(transfer: Transfer, *nodes: Node, rounds: int = 40) -> Transfer:
    """The workers and the agents in turn, until it rests."""
    for _ in range(rounds):
        moving.work(transfer.pk)
        for node in nodes:
            node.work()
        transfer.refresh_from_db()
        if transfer.next_attempt_at is None or transfer.state == Transfer.State.PAUSED:
            return transfer
    raise AssertionError(f"it is still {transfer.state}: {transfer.problem}")


def test_an_agent_moves_what_the_workers_do_not_reach(saved: Tiers, node: Node) -> None:
    before = bytes_of(saved.path(10))
    transfer = move(saved)
    assert transfer.agent == node.agent
    done = drive(transfer, node)
    assert (done.state, done.problem) == ("done", "")
    assert states(done) == ["planned", "copying", "proving", "switching", "retiring", "done"]
    assert not saved.path(10).exists() and bytes_of(saved.cold_path(10)) == before
    made = saved.placement(10, saved.cold)
    assert (made.status, made.trust, saved.placement(10).status) == ("complete", "verified", "missing")
    assert done.copy_seconds > 0 and done.prove_seconds > 0 and done.proof_detail["by"] == "read_back"
    assert done.task == "" and not Placement.objects.exclude(leaving="").exists()
    assert list(Path(saved.cold.uri).rglob(".muster-copy-*")) == []
    carried = AgentTask.objects.filter(owner_id=done.pk).values_list("params", "result")
    assert all(set(params) == {"step"} and result is None for params, result in carried)


def test_who_moves_it_is_as_was_asked_for(saved: Tiers, node: Node, settings: Any) -> None:
    with pytest.raises(Conflict, match="The workers, who were asked for, do not reach"):
        move(saved, where="workers")
    settings.WORKER_ROOTS = [node.root]
    assert move(saved).agent is None
    Transfer.objects.all().delete()
    by_policy = saved.policy(keep_newest=1, where="agents")
    planning.run_policy(policy=by_policy, actor="olga")
    transfer = Transfer.objects.get()
    assert transfer.agent == node.agent and drive(transfer, node).state == "done"
    with pytest.raises(InvalidInput):
        policies.update_policy(policy=by_policy, changes={"where": "anybody"}, actor="olga")
    Agent.objects.update(state="lost")
    with pytest.raises(Conflict, match="No agent that is online, as was asked for"):
        request_transfer(
            placement=saved.placement(20), kind="copy", target_tier=saved.cold, actor="olga", where="agents"
        )


def test_a_long_copy_goes_on_where_the_last_task_ended(
    saved: Tiers, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_agents, "STEP_SECONDS", -1.0)
    transfer = move(saved)
    for _ in range(3):
        moving.work(transfer.pk)
        node.work()
    transfer.refresh_from_db()
    assert transfer.state in ("planned", "copying")
    monkeypatch.setattr(at_agents, "STEP_SECONDS", 60.0)
    assert drive(transfer, node).state == "done"


def test_an_unsealed_source_is_sealed_on_the_way(tiers: Tiers, node: Node) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("django.conf.settings.WORKER_ROOTS", [node.root])
        tiers.save(10, 20, sealed=False)
    assert drive(move(tiers, kind="copy"), node).state == "done"
    assert tiers.placement(10).manifest_id == tiers.placement(10, tiers.cold).manifest_id is not None


def test_the_rules_are_asked_before_the_removal_and_an_old_answer_is_not_acted_upon(
    saved: Tiers, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = move(saved)
    for _ in range(20):
        moving.work(transfer.pk)
        transfer.refresh_from_db()
        if transfer.state == "retiring":
            break
        node.work()
    with monkeypatch.context() as slow:
        slow.setattr(copy_task, "FRESH_SECONDS", -1.0)
        node.work()
    assert saved.path(10).is_dir()
    marks.pin(checkpoint=saved.placement(10).checkpoint, reason="paper", actor="olga")
    done = drive(transfer, node)
    assert (done.state, done.problem_code) == ("done", "source_stays") and "pinned" in done.problem
    assert saved.path(10).is_dir() and saved.placement(10).leaving == ""
    placements.hold(placement=saved.placement(10), source_kind="drill", source_id="drl_1")


def test_a_colder_copy_that_is_gone_keeps_the_source(saved: Tiers, node: Node) -> None:
    drive(move(saved, kind="copy"), node)
    (saved.cold_path(10) / "checkpoint.json").unlink()
    done = drive(move(saved, kind="retire", target_tier=None), node)
    assert done.state == "cancelled" and "lacks checkpoint.json" in done.problem
    assert saved.path(10).is_dir()


def test_a_node_that_lets_nothing_be_written_is_not_asked(saved: Tiers, node: Node) -> None:
    type(node.agent.node).objects.update(facts={"copy_roots": []})
    with pytest.raises(Conflict, match="--copy-root") as refused:
        move(saved)
    assert refused.value.code == "out_of_reach"


def test_what_the_server_asks_outside_of_the_copy_roots_is_refused_on_the_node(saved: Tiers, node: Node) -> None:
    transfer = move(saved)
    node.copy_roots = [saved.hot.uri]
    failed = drive(transfer, node)
    assert (failed.state, failed.problem_code) == ("failed", "out_of_reach")
    assert saved.cold.uri in failed.problem and not saved.cold_path(10).exists()


def test_paused_it_keeps_what_was_copied_and_cancelled_it_leaves_nothing(saved: Tiers, node: Node) -> None:
    transfer = move(saved)
    for _ in range(2):
        moving.work(transfer.pk)
        node.work()
    moving.work(transfer.pk)
    services.pause(transfer=transfer, actor="olga")
    assert node.work() == [] and AgentTask.objects.filter(state="queued").count() == 0
    services.resume(transfer=transfer, actor="olga")
    moving.work(transfer.pk)
    node.work()
    transfer.refresh_from_db()
    assert transfer.state in ("copying", "proving") and list(Path(saved.cold.uri).rglob(".muster-copy-*"))
    services.cancel(transfer=transfer, actor="olga")
    Transfer.objects.update(next_attempt_at=timezone.now())
    moving.work(transfer.pk)
    node.work()
    Transfer.objects.update(next_attempt_at=timezone.now())
    moving.work(transfer.pk)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.is_clean, transfer.next_attempt_at) == ("cancelled", True, None)
    assert list(Path(saved.cold.uri).rglob(".muster-*")) == [] and saved.path(10).is_dir()


def test_damage_met_by_the_agent_marks_the_source(saved: Tiers, node: Node) -> None:
    shard = next(saved.path(10).glob("*.safetensors"))
    at = shard.stat().st_mtime_ns
    data = bytearray(shard.read_bytes())
    data[-9] ^= 4
    shard.write_bytes(data)
    os.utime(shard, ns=(at, at))
    failed = drive(move(saved), node)
    assert (failed.state, failed.problem_code) == ("failed", "source_damaged")
    assert saved.placement(10).status == "corrupt"


def test_one_step_at_a_time_on_a_node(tiers: Tiers, node: Node) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("django.conf.settings.WORKER_ROOTS", [node.root])
        tiers.save(10, 20, 30)
    first, second = (
        move(tiers),
        request_transfer(placement=tiers.placement(20), kind="move", target_tier=tiers.cold, actor="olga"),
    )
    moving.work(first.pk)
    moving.work(second.pk)
    assert AgentTask.objects.filter(kind="copy").count() == 1
    assert drive(first, node).state == "done"
    assert drive(second, node).state == "done"


def test_a_lost_agent_pauses_it_and_another_one_goes_on(saved: Tiers, node: Node) -> None:
    transfer = move(saved)
    for _ in range(2):
        moving.work(transfer.pk)
        node.work()
    moving.work(transfer.pk)
    Agent.objects.update(state=Agent.State.LOST)
    for task in AgentTask.objects.filter(state="queued"):
        tasks.give_up(task, "the agent on gpu-1 was lost")
    moving.work(transfer.pk)
    transfer.refresh_from_db()
    assert (transfer.state, transfer.problem_code) == ("paused", "agent_lost")
    other = Node(saved, "gpu-2")
    services.resume(transfer=transfer, actor="olga")
    done = drive(transfer, other)
    assert done.state == "done" and done.agent == other.agent, done.problem


def test_of_a_local_tier_only_the_node_that_listed_it_copies(saved: Tiers, node: Node) -> None:
    other = Node(saved, "gpu-0")
    type(saved.hot).objects.filter(pk=saved.hot.pk).update(kind="local_nvme")
    saved.hot.refresh_from_db()
    InventoryScan.objects.filter(tier=saved.hot).update(agent=node.agent)
    assert move(saved).agent == node.agent != other.agent


def test_a_removal_that_was_under_way_is_finished_whatever_the_rules_say_by_then(
    saved: Tiers, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent was killed when the source was out of sight already."""
    transfer = move(saved)

    class Killed(BaseException):
        pass

    def die(point: str) -> None:
        if point == "retire.aside":
            raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(copy_retire, "failpoint", die)
        with pytest.raises(Killed):
            drive(transfer, node)
    assert not saved.path(10).exists() and list(Path(saved.hot.uri).rglob(".muster-retire-*"))
    task = AgentTask.objects.get(state__in=AgentTask.HELD)
    tasks.orphan(task, "its lease ran out")
    marks.pin(checkpoint=saved.placement(10).checkpoint, reason="paper", actor="olga")
    with monkeypatch.context() as slow:
        slow.setattr(copy_task, "FRESH_SECONDS", -1.0)
        node.work()
    done = drive(transfer, node)
    assert (done.state, done.problem) == ("done", "")
    assert not saved.path(10).exists()
    assert list(Path(saved.hot.uri).rglob(".muster-retire-*")) == []
