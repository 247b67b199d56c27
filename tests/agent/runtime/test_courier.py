"""The order in which an agent delivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster_agent.protocol.wire import EventBatch, EventReply, ResultReply, TaskEvent, TaskResult
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.courier import Courier
from muster_agent.runtime.spool import Spool

FIRST, SECOND = ("tsk_1", 1), ("tsk_2", 1)


def event(seq: int) -> TaskEvent:
    return TaskEvent(seq=seq, kind="phase", at_unix_seconds=0.0, mono_seconds=0.0, phase="read", edge="end")


class WorkerFinishesMeanwhile:
    """A server that, while it takes the first task's events, lets the second task end: its events, then its result."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.calls: list[tuple[str, str]] = []

    def events(self, task_id: str, batch: EventBatch) -> EventReply:
        self.calls.append(("events", task_id))
        if task_id == FIRST[0]:
            self._spool.put_event(SECOND, event(1))
            self._spool.put_result(SECOND, TaskResult(outcome="done"))
        return EventReply(acked_seq=batch.events[-1].seq, cancel=False, lease_seconds=60.0)

    def result(self, task_id: str, _attempt: int, _result: TaskResult) -> ResultReply:
        self.calls.append(("result", task_id))
        return ResultReply(state="done")


def test_a_result_never_overtakes_its_own_events(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite3")
    server: Any = WorkerFinishesMeanwhile(spool)
    spool.put_event(FIRST, event(1))
    Courier(server, spool, ServerClock(), lambda: []).deliver()
    assert server.calls == [("events", "tsk_1"), ("events", "tsk_2"), ("result", "tsk_2")]
