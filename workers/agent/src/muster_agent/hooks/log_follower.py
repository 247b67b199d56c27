"""Steps from training logs, for jobs without the hook, as the records that a hook would have left.

A line's time is when it was seen: exact to the look (a fifth of a second), and to whatever the job holds back in its
buffers.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from muster_agent.hooks.step_patterns import LinePatterns, StepLog, Told
from muster_agent.hooks.tailed_file import TailedFile
from muster_agent.protocol.wire import HookRecord

MAX_WAITING_RECORDS = 20_000
"""While the server is away; of more the newest are kept."""

logger = logging.getLogger("muster_agent.hooks")


class LogState(msgspec.Struct, kw_only=True):
    """What is remembered of one log across starts of the agent. `attempt` empty: no launch was seen yet."""

    source: str
    seq: int = 0
    attempt: str = ""
    job: str = ""
    restart_count: int = 0
    last_step: int | None = None
    """Of `attempt`; None until it has done one."""


class LogFollower:
    """`logs` as the agent's configuration has them. Neither a path nor a pattern ever comes from the server."""

    def __init__(self, logs: Sequence[StepLog], state_path: Path, clock: Callable[[], float] = time.time) -> None:
        self._state_path = state_path
        known = _load(state_path) if logs else {}
        self._followed = [_Followed(log, known.get(_key(log)), clock) for log in logs]
        self._waiting: list[HookRecord] = []

    def read_new(self) -> list[HookRecord]:
        """Records that `sent` was not called for yet."""
        for one in self._followed:
            self._waiting += one.records()
        if len(self._waiting) > MAX_WAITING_RECORDS:
            logger.warning("Muster: %d records of logs were dropped", len(self._waiting) - MAX_WAITING_RECORDS)
            del self._waiting[:-MAX_WAITING_RECORDS]
        return list(self._waiting)

    def sent(self, records: Iterable[HookRecord]) -> None:
        """The server has them. What could not be written down only means that the next start begins a new launch."""
        gone = {(one.source, one.seq) for one in records}
        self._waiting = [one for one in self._waiting if (one.source, one.seq) not in gone]
        try:
            _store(self._state_path, {_key(one.log): one.state for one in self._followed})
        except OSError as error:
            logger.warning("Muster: %s cannot be written: %s", self._state_path, error)


class _Followed:
    def __init__(self, log: StepLog, state: LogState | None, clock: Callable[[], float]) -> None:
        self.log = log
        self.state = state or LogState(source=f"log-{secrets.token_hex(8)}")
        self._patterns, self._file, self._clock = LinePatterns(log), TailedFile(log.path), clock
        self._was_away = bool(self.state.attempt)

    def records(self) -> list[HookRecord]:
        found: list[HookRecord] = []
        while lines := self._file.lines():
            now = self._clock()
            for line in lines:
                told = self._patterns.read(line)
                if told is not None:
                    found += self._follow(told, now)
            if len(found) > MAX_WAITING_RECORDS:
                break
        return found

    def _follow(self, told: Told, now: float) -> list[HookRecord]:
        found = []
        if self._is_new_launch(told):
            self._begin_launch(now)
            found.append(self._record("log_found", now, data={"path": self.log.path}))
        if told.kind == "step":
            if self.state.last_step is not None and told.step <= self.state.last_step:
                return found  # another rank's line of the same step
            self.state.last_step = told.step
        data = {"path": told.path} if told.path else {}
        return [*found, self._record(told.kind, now, told.step, data)]

    def _is_new_launch(self, told: Told) -> bool:
        """The first, that of another job, or one whose state was put in place after steps had been done. Where the
        agent was away its resuming may not have been seen: then a step that goes back tells."""
        state, was_away = self.state, self._was_away
        self._was_away = False
        if not state.attempt or (self._file.job and self._file.job != state.job):
            return True
        if told.kind == "resumed_from":
            return state.last_step is not None
        return was_away and state.last_step is not None and told.step < state.last_step

    def _begin_launch(self, now: float) -> None:
        state = self.state
        same_job = bool(state.attempt) and self._file.job == state.job
        state.restart_count = state.restart_count + 1 if same_job else 0
        state.job, state.last_step = self._file.job, None
        state.attempt = f"{state.job or 'log'}.{state.restart_count}-{int(now)}"

    def _record(self, kind: str, now: float, step: int | None = None, data: dict[str, Any] | None = None) -> HookRecord:
        state = self.state
        state.seq += 1
        job = {"job_id": state.job, "job_restart_count": state.restart_count} if state.job else {}
        return HookRecord(
            source=state.source,
            seq=state.seq,
            kind=kind,
            run=self.log.run,
            attempt=state.attempt,
            at_unix_seconds=now,
            mono_seconds=time.monotonic(),
            step=step,
            data={"from": "log", **job, **(data or {})} if kind != "step" else {},
        )


def _key(log: StepLog) -> str:
    return f"{log.run}\n{log.path}"


def _load(path: Path) -> dict[str, LogState]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, LogState])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError) as problem:
        logger.warning("Muster: %s cannot be used, so the logs' launches begin anew: %s", path, problem)
        return {}


def _store(path: Path, states: dict[str, LogState]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(states))
    os.replace(temporary, path)
