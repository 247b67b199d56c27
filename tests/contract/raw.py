"""The agent's own HTTP client, driven by hand: what one poll or one PUT does, without the loop around it."""

from __future__ import annotations

from itertools import count
from typing import Any

from live import LiveServer
from muster_agent.protocol.wire import EnrolReply, EnrolRequest, EventBatch, PollReply, PollRequest, TaskEvent
from muster_agent.runtime.client import Client
from muster_agent.runtime.clock import ServerClock

_numbers = count(1)


def enrolment(token: str, name: str, **fields: Any) -> EnrolRequest:
    values: dict[str, Any] = {
        "join_token": token,
        "node_name": name,
        "machine_id": f"machine-of-{name}",
        "nonce": f"nonce-of-{name}",
        "agent_version": "0.1.0",
        "protocols": (1,),
        "facts": {"roots": ["/data"]},
    }
    return EnrolRequest(**{**values, **fields})


class RawAgent:
    """Enrolled on `server` under a name of its own. `client` speaks with its credential."""

    def __init__(self, server: LiveServer, *, token: str = "", cluster: str = "contract") -> None:
        self.server = server
        self.name = f"raw-{next(_numbers)}"
        token = token or server.call("join_token", server.call("cluster", cluster))
        self.request = enrolment(token, self.name)
        self.credential = ""
        self.client = self._client()
        self.take(self.client.enrol(self.request))
        self._seq = count(1)

    def take(self, reply: EnrolReply) -> None:
        self.id, self.credential = reply.agent_id, reply.credential

    def _client(self) -> Client:
        return Client(self.server.url, credential=lambda: self.credential, clock=ServerClock(), agent_version="0.1.0")

    def poll(self, *, boot: str = "boot-1", wait_seconds: float = 0.0, **fields: Any) -> PollReply:
        values = {"boot_id": boot, "seq": next(self._seq), "free_slots": 1, "wait_seconds": wait_seconds}
        return self.client.poll(PollRequest(**{**values, **fields}))

    def inventory(self, **fields: Any) -> str:
        """A queued task's id."""
        task_id: str = self.server.call("create_task", self.id, "inventory", {"root": "/data"}, **fields)
        return task_id

    def held(self, **fields: Any) -> str:
        """A task that was polled and acknowledged, attempt 1."""
        task_id = self.inventory(**fields)
        assert [order.task_id for order in self.poll().tasks] == [task_id]
        self.client.ack(task_id, 1)
        return task_id


def progress(*seqs: int, attempt: int = 1, dropped: int = 0) -> EventBatch:
    events = tuple(
        TaskEvent(
            seq=seq, kind="progress", at_unix_seconds=1_700_000_000.0 + seq, mono_seconds=float(seq), phase="read",
            done_bytes=seq, total_bytes=100,
        )
        for seq in seqs
    )  # fmt: skip
    return EventBatch(attempt=attempt, events=events, dropped=dropped)
