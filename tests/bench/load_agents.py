"""Some of bench_load's agents, in a process of its own: the agent's own client and poller, one thread each.

Reads commands from stdin, a line each, and answers each with a line of JSON:
`enrol` joins all; `poll` starts all pollers at once; `report` tells what has come so far.
A task whose root is `/load/now` is acknowledged and done at once; `/load/drill/60` tells of 120 events over 60 s.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
from typing import Any

import msgspec
import urllib3
from muster_agent.protocol.wire import (
    EnrolRequest,
    EventBatch,
    PollReply,
    RunningTask,
    TaskEvent,
    TaskOrder,
    TaskResult,
)
from muster_agent.runtime.client import Client, Reply
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.poller import Poller
from muster_agent.runtime.retry import ServerError, TryAgain, wait_seconds

EVENTS = 120
BATCH_EVENTS = 15
REPEATED_RATIO = 0.05
CUT_RATIO = 0.02


class CutClient(Client):
    """The agent's client, of whose calls a share is cut off after it was sent and before it was answered."""

    counts: dict[str, int]
    chance: random.Random

    def _call(self, method: str, path: str, message: msgspec.Struct, reply_type: type[Reply]) -> Reply:
        self.counts["requests"] += 1
        if self.chance.random() < CUT_RATIO and path.startswith("/tasks/"):
            self._cut_off(method, path, message)
            self.counts["cut"] += 1
            raise TryAgain("cut off")
        return super()._call(method, path, message, reply_type)

    def _cut_off(self, method: str, path: str, message: msgspec.Struct) -> None:
        body, headers = self._encode(message)
        connection = self._connection(10.0)
        try:
            connection.request(method, self._prefix + path, body=body, headers=headers)
            if connection.sock is not None:
                connection.sock.shutdown(socket.SHUT_RDWR)
        except (urllib3.exceptions.HTTPError, OSError):
            pass
        finally:
            connection.close()


class Seen:
    """What all agents of this process saw; times are Unix seconds."""

    def __init__(self) -> None:
        self.counts = {"requests": 0, "cut": 0, "tried_again": 0}
        self.online: dict[str, float] = {}
        self.received: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.events_seconds: list[float] = []
        self.problems: list[str] = []


class LoadAgent:
    """`poller.Work` for one node."""

    is_draining = False

    def __init__(self, url: str, name: str, seen: Seen) -> None:
        self.name = name
        self._seen = seen
        self._credential = ""
        self._running: dict[str, RunningTask] = {}
        self._clock = ServerClock()
        self._chance = random.Random(name)
        self.client = CutClient(url, credential=lambda: self._credential, clock=self._clock, agent_version="bench")
        self.client.counts, self.client.chance = seen.counts, self._chance
        self.poller = Poller(
            self, self.client, self._clock, boot_id=f"boot-{name}", agent_version="bench", facts={"roots": ["/load"]},
            reload_credential=lambda: False,
        )  # fmt: skip

    def enrol(self, token: str) -> None:
        request = EnrolRequest(
            join_token=token, node_name=self.name, machine_id=f"machine-{self.name}", nonce=f"nonce-{self.name}",
            agent_version="bench", protocols=(1,),
        )  # fmt: skip
        self._credential = self._insist(lambda: self.client.enrol(request)).credential

    def free_slots(self) -> int:
        return 1 - len(self._running)

    def running(self) -> tuple[RunningTask, ...]:
        return tuple(self._running.values())

    def obey(self, reply: PollReply) -> None:
        self._seen.online.setdefault(self.name, time.time())
        for order in reply.tasks:
            self._seen.received.setdefault(order.task_id, time.time())
            self._running[order.task_id] = RunningTask(task_id=order.task_id, attempt=order.attempt)
            threading.Thread(target=self._work, args=(order,), daemon=True).start()

    def give_up(self, error: ServerError) -> None:
        self._seen.problems.append(f"{self.name}: {error}")

    def _work(self, order: TaskOrder) -> None:
        try:
            self._insist(lambda: self.client.ack(order.task_id, order.attempt))
            kind, _, seconds = order.params["root"].removeprefix("/load/").partition("/")
            if kind == "drill":
                self._drill(order, float(seconds))
            result = TaskResult(outcome="done", body={"root": order.params["root"], "checkpoints": []})
            self._insist(lambda: self.client.result(order.task_id, order.attempt, result))
            self._seen.ended[order.task_id] = time.time()
        except ServerError as error:
            self._seen.problems.append(f"{self.name}: {error}")
        finally:
            del self._running[order.task_id]
            self.poller.poll_now()

    def _drill(self, order: TaskOrder, seconds: float) -> None:
        began = time.monotonic() + self._chance.uniform(0, seconds * BATCH_EVENTS / EVENTS)
        for first in range(1, EVENTS + 1, BATCH_EVENTS):
            due = began + seconds * (first - 1) / EVENTS
            time.sleep(max(0.0, due - time.monotonic()))
            batch = EventBatch(attempt=order.attempt, events=tuple(map(_event, range(first, first + BATCH_EVENTS))))
            for _time in range(2 if self._chance.random() < REPEATED_RATIO else 1):
                sent = time.monotonic()
                self._insist(lambda batch=batch: self.client.events(order.task_id, batch))
                self._seen.events_seconds.append(time.monotonic() - sent)

    def _insist(self, call: Any) -> Any:
        """As the agent's courier does: what may be tried again is."""
        failures = 0
        while True:
            try:
                return call()
            except TryAgain as error:
                failures += 1
                self._seen.counts["tried_again"] += 1
                time.sleep(wait_seconds(failures, error.after_seconds))


def _event(seq: int) -> TaskEvent:
    return TaskEvent(
        seq=seq, kind="progress", at_unix_seconds=time.time(), mono_seconds=time.monotonic(), phase="read",
        done_bytes=seq << 20, total_bytes=EVENTS << 20,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "token", "prefix"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--agents", type=int, required=True)
    options = parser.parse_args()
    threading.stack_size(256 * 1024)
    seen = Seen()
    agents = [LoadAgent(options.url, f"{options.prefix}-{number}", seen) for number in range(options.agents)]
    for line in sys.stdin:
        if line.strip() == "enrol":
            for agent in agents:
                agent.enrol(options.token)
        elif line.strip() == "poll":
            for agent in agents:
                agent.poller.start()
        print(json.dumps(vars(seen)), flush=True)


if __name__ == "__main__":
    main()
