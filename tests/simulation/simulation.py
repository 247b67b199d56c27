"""One seed: the fleet, what befalls it, and its history. Run with `make simulate SEEDS=1000`, or `SEED=7` for one."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from django.utils import timezone
from muster_agent.protocol.wire import InventoryParams, TaskKind
from muster_agent.runtime import barrier as agent_barrier
from muster_agent.runtime import courier, execution, holding, loop, poller
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.lease import Lease
from muster_agent.tasks.limits import LimitGuard

from apps.core import dispatch, fields, wakeups
from apps.core.models import Transition
from apps.fleet import barrier, polling, services, tasks
from apps.fleet.agent_api import auth, rereading, views
from apps.fleet.models import Agent, AgentEvent, AgentTask, Cluster, TaskGroup
from tests.simulation.history import GroupRow, History, TaskRow
from tests.simulation.machine import Machine, recording_spool
from tests.simulation.network import CALM, Faults, Network, SimulatedClient
from tests.simulation.server import Server
from tests.simulation.world import EPOCH_UNIX_SECONDS, Host, Threading, Time, World

QUIET_SECONDS = 1_500.0
"""After the faults: enough for every lease, lost agent and backoff to run its course."""


Replaced = tuple[Any, str, Any]
"""A module, the name in it, and what stands in for it."""


@dataclass(frozen=True, slots=True)
class Size:
    agents: int
    minutes: float
    tasks: int


SMALL = Size(agents=3, minutes=3, tasks=6)
FULL = Size(agents=50, minutes=60, tasks=300)


class Simulation:
    """Made and run inside `simulated(...)`. `run()` plays a random hour; a test may play its own instead."""

    def __init__(self, seed: int, size: Size, folder: Path) -> None:
        self.random = Random(seed)
        self.size = size
        self.world = World()
        self.history = History()
        self.server = Server(self.world, Random(seed + 1))
        self.network = Network(self.world, self.server, Random(seed + 2))
        self.server.after_sweep = self._look
        self.folder = folder
        self.ids = count(1)
        self.cluster: Cluster
        self.machines: list[Machine] = []

    # -- the fleet -----------------------------------------------------------------------------------------------------
    def build(self) -> None:
        self.cluster = services.create_cluster(name="simulated", actor="simulation")
        for number in range(self.size.agents):
            host = Host(f"node-{number}", self.random.uniform(0, 1e6), self.random.uniform(-2, 2))
            machine = Machine(self.world, host, self.folder, self.history, self._join_token)
            self.machines.append(machine)
            self.world.at(self.random.uniform(0, 5), machine.start)

    def _join_token(self) -> str:
        return services.create_join_token(cluster=self.cluster, actor="simulation")[1]

    def machine_here(self) -> Machine:
        """The one whose code runs."""
        host = self.world.host()
        return next(machine for machine in self.machines if machine.host is host)

    # -- what owners do ------------------------------------------------------------------------------------------------
    def create_task(self, machine: Machine, seconds: float, **options: Any) -> AgentTask | None:
        """None where the machine has not joined yet."""
        agent = Agent.objects.filter(pk=machine.agent_id).first() if machine.agent_id else None
        if agent is None:
            return None
        params = InventoryParams(root=f"/ckpt/{seconds:.0f}")
        return tasks.create_task(
            agent=agent, kind=TaskKind.INVENTORY, params=params, owner_kind="simulation", owner_id="one", **options
        )

    def create_drill(self, seconds: float, members: int) -> None:
        deadline_at = timezone.now() + timedelta(seconds=120)
        group = barrier.create_group(owner_kind="simulation", owner_id="one", quorum=members, deadline_at=deadline_at)
        for machine in self.random.sample(self.machines, members):
            self.create_task(machine, seconds, group=group)

    def cancel_one(self) -> None:
        unfinished = AgentTask.objects.exclude(state__in=AgentTask.FINISHED).order_by("pk")
        if unfinished:
            tasks.request_cancel(task=self.random.choice(list(unfinished)), reason="somebody cancelled it")

    # -- what befalls them ---------------------------------------------------------------------------------------------
    def kill(self, machine: Machine, *, wipe: bool, away_seconds: float) -> None:
        machine.kill()
        if machine.host.name not in self.network.cut:
            self.server.hang_up(machine.host.name)
        if wipe:
            machine.wipe()
        self.world.after(away_seconds, machine.start)

    def stop(self, machine: Machine, away_seconds: float) -> None:
        """SIGTERM, and the service manager starts it again."""
        machine.shut_down()
        self.world.after(away_seconds, machine.start)

    def cut(self, machine: Machine, seconds: float) -> None:
        self.network.cut.add(machine.host.name)
        self.world.after(seconds, lambda: self.network.cut.discard(machine.host.name))

    def restart_server(self, away_seconds: float) -> None:
        self.server.kill()
        self.world.after(away_seconds, lambda: setattr(self.server, "is_up", True))

    def take_away(self, what: str, seconds: float) -> None:
        setattr(self.server, what, False)
        self.world.after(seconds, lambda: setattr(self.server, what, True))

    def drain(self, machine: Machine, seconds: float) -> None:
        def call(service: Any) -> None:
            agent = Agent.objects.filter(pk=machine.agent_id).exclude(state=Agent.State.PENDING).first()
            if agent is not None:
                service(agent=agent, actor="simulation")

        call(services.drain_agent)
        self.world.after(seconds, partial(call, services.resume_agent))

    def jump_clock(self, machine: Machine) -> None:
        machine.host.skew_seconds += self.random.choice((-3600.0, 3600.0, -30.0, 30.0))

    # -- what a test scripts -------------------------------------------------------------------------------------------
    def wait(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)

    def begin(self, seconds: float, **options: Any) -> AgentTask:
        """A task of the first machine that has been worked on for a few seconds."""
        task = self.create_task(self.machines[0], seconds, **options)
        assert task is not None
        self.wait(15)
        task.refresh_from_db()
        assert task.state == AgentTask.State.RUNNING
        return task

    # -- the plan ------------------------------------------------------------------------------------------------------
    def run(self) -> History:
        self.build()
        self._plan()
        ends_at = self.size.minutes * 60
        self.world.run_until(ends_at)
        self.heal()
        self.settle()
        return self.collect()

    def _plan(self) -> None:
        choose, ends_at = self.random, self.size.minutes * 60
        self.network.faults = Faults(
            request_lost_ratio=choose.choice((0, 0.02, 0.1)),
            reply_lost_ratio=choose.choice((0, 0.02, 0.1)),
            duplicate_ratio=choose.choice((0, 0.05, 0.2)),
            slow_ratio=choose.choice((0, 0.1)),
            delay_seconds=choose.choice((1.0, 5.0, 25.0)),
        )
        for _number in range(self.size.tasks):
            self.world.at(choose.uniform(5, ends_at), self._make_work)
        for _number in range(self.size.tasks // 5):
            self.world.at(choose.uniform(5, ends_at), self.cancel_one)
        for _number in range(max(2, round(self.size.agents * self.size.minutes / 12))):
            self.world.at(choose.uniform(5, ends_at), self._strike)
        for _number in range(max(1, round(self.size.minutes / 10))):
            self.world.at(choose.uniform(5, ends_at), self._strike_server)

    def _make_work(self) -> None:
        seconds, machine = self.random.choice((4, 10, 30, 100)), self.random.choice(self.machines)
        kind = self.random.random()
        if kind < 0.15:
            self.create_drill(seconds, 2)
        else:
            self.create_task(machine, seconds, idempotent=kind < 0.8)

    def _strike(self) -> None:
        machine, choose = self.random.choice(self.machines), self.random
        strikes = (
            lambda: self.kill(machine, wipe=False, away_seconds=choose.choice((1, 20, 120, 400))),
            lambda: self.kill(machine, wipe=True, away_seconds=choose.choice((5, 120))),
            lambda: self.stop(machine, away_seconds=60),
            lambda: self.cut(machine, choose.choice((5, 30, 80, 130, 400))),
            lambda: self.cut(machine, choose.choice((20, 70, 100))),
            lambda: self.drain(machine, choose.choice((10, 100))),
            lambda: self.jump_clock(machine),
        )
        choose.choice(strikes)()

    def _strike_server(self) -> None:
        choose = self.random
        strikes = (
            lambda: self.restart_server(choose.choice((1, 10, 50, 100))),
            lambda: self.take_away("is_database_up", choose.choice((5, 30))),
            lambda: self.take_away("is_redis_up", choose.choice((10, 100))),
            lambda: self.take_away("is_swept", choose.choice((30, 120))),
        )
        choose.choice(strikes)()

    def heal(self) -> None:
        """From now on nothing fails. What was to come back later still does."""
        self.network.faults = CALM

    def settle(self) -> None:
        """Let everything end that will; stops as soon as every task has."""
        ends_at = self.world.now + QUIET_SECONDS
        while self.world.now < ends_at and self._has_unfinished():
            self.world.run_until(self.world.now + 30)

    def _has_unfinished(self) -> bool:
        return AgentTask.objects.exclude(state__in=AgentTask.FINISHED).exists()

    # -- history -------------------------------------------------------------------------------------------------------
    def _look(self) -> None:
        rows = AgentTask.objects.exclude(state__in=AgentTask.FINISHED).exclude(attempt=0)
        for task_id, attempt, state, ends_at in rows.values_list("pk", "attempt", "state", "lease_expires_at"):
            held = state in AgentTask.HELD and ends_at is not None
            self.history.seen[task_id].append((attempt, ends_at.timestamp() if held else None))

    def collect(self) -> History:
        moves: dict[str, list[tuple[str, str]]] = {}
        for owner, old, new in (
            Transition.objects.filter(owner_kind="agenttask").order_by("pk").values_list("owner_id", "old", "new")
        ):
            moves.setdefault(owner, []).append((old, new))
        seqs: dict[str, dict[int, list[int]]] = {}
        for task_id, attempt, seq in AgentEvent.objects.order_by("pk").values_list("task_id", "attempt", "seq"):
            seqs.setdefault(task_id, {}).setdefault(attempt, []).append(seq)
        for row in AgentTask.objects.order_by("pk"):
            self.history.tasks.append(
                TaskRow(
                    id=row.pk, state=row.state, outcome=row.outcome, attempt=row.attempt, runs=row.runs,
                    idempotent=row.idempotent, group_id=row.group_id, result=row.result,
                    moves=moves.get(row.pk, []), seqs=seqs.get(row.pk, {}),
                )
            )  # fmt: skip
        for group in TaskGroup.objects.all():
            starts_at = group.start_at.timestamp() - EPOCH_UNIX_SECONDS if group.start_at else None
            self.history.groups[group.pk] = GroupRow(group.state, starts_at)
        self.history.revoked = list(Agent.objects.filter(state=Agent.State.REVOKED).values_list("pk", flat=True))
        return self.history


@contextmanager
def simulated(seed: int, size: Size, folder: Path) -> Iterator[Simulation]:
    """A simulation with its clocks, threads, network and randomness in place of the real ones, at the edges only."""
    simulation = Simulation(seed, size, folder)
    SimulatedClient.network = simulation.network
    before = random.getstate()
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        for owner, name, value in (*_on_the_server(simulation), *_on_the_nodes(simulation)):
            stack.enter_context(patch.object(owner, name, value))
        stack.callback(random.setstate, before)
        random.seed(seed)
        try:
            yield simulation
        finally:
            for machine in simulation.machines:
                machine.kill()
            simulation.server.kill()


def _on_the_server(simulation: Simulation) -> Iterator[Replaced]:
    world, server = simulation.world, simulation.server
    yield timezone, "now", lambda: datetime.fromtimestamp(world.unix_seconds(), tz=UTC)
    yield fields, "new_id", lambda prefix: f"{prefix}_{next(simulation.ids):026d}"
    yield wakeups, "_publish", server.publish
    yield dispatch, "_send", lambda _name, _kwargs: None
    yield views, "Waiter", server.waiter
    yield rereading, "of_this_loop", server.of_this_loop
    for module in (auth, views):
        yield module, "in_database", server.in_database
    for module in (polling, views):
        yield module, "time", Time(world)


def _on_the_nodes(simulation: Simulation) -> Iterator[Replaced]:
    clock, threads = Time(simulation.world), Threading(simulation.world)
    for module in (loop, poller, courier, agent_barrier):
        yield module, "time", clock
    for module in (loop, poller, courier, holding):
        yield module, "threading", threads
    yield loop, "MAIN_TICK_SECONDS", 5.0
    yield courier, "TICK_SECONDS", 4.0
    yield loop, "uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"boot-{next(simulation.ids)}"))
    yield loop, "Client", SimulatedClient
    yield loop, "ServerClock", partial(ServerClock, clock.monotonic, clock.time)
    yield loop, "Lease", partial(Lease, monotonic=clock.monotonic)
    yield loop, "LimitGuard", partial(LimitGuard, monotonic=clock.monotonic)
    yield loop, "Spool", partial(recording_spool(simulation.history), wall=clock.time)
    yield loop, "read_facts", lambda _config: {"roots": ["/work"]}
    yield loop, "load_all", lambda: None
    yield execution, "handler_for", lambda _kind: simulation.machine_here().handler()
