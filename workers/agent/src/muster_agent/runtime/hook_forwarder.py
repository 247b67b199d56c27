"""The thread that forwards what training hooks wrote to the node's disk, and forgets it only once it was accepted."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import msgspec

from muster_agent.hooks.log_follower import LogFollower
from muster_agent.hooks.nvrx_cycles import CycleReader
from muster_agent.hooks.spool_reader import HookSpoolReader
from muster_agent.protocol.wire import HookBatch, HookRecord
from muster_agent.runtime.client import Client
from muster_agent.runtime.clock import ServerClock
from muster_agent.runtime.retry import Conflicted, Refused, ServerError, wait_seconds

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
BATCH_RECORDS = 1_000
CYCLE_LOOK_SECONDS = 5.0


class HookForwarder(threading.Thread):
    """`directory` None: the hooks' default. The records' times are brought to the server's clock on the way."""

    def __init__(
        self,
        client: Client,
        clock: ServerClock,
        directory: Path | None,
        offsets_path: Path,
        cycles: CycleReader | None = None,
        logs: LogFollower | None = None,
    ) -> None:
        super().__init__(name="hook-forwarder", daemon=True)
        self._client = client
        self._clock = clock
        self._reader = HookSpoolReader(directory, state_path=offsets_path)
        self._cycles = cycles or CycleReader({})
        self._logs = logs
        self._look_at_cycles_at = 0.0
        self._ended = threading.Event()
        self._failures = 0

    def stop(self) -> None:
        self._ended.set()

    def run(self) -> None:
        wait = LOOK_SECONDS
        while not self._ended.wait(wait):
            wait = self.forward()

    def _forward_cycles(self) -> None:
        """What NVRx's launcher wrote, every few seconds. An error leaves it for the next look."""
        if time.monotonic() < self._look_at_cycles_at:
            return
        self._look_at_cycles_at = time.monotonic() + CYCLE_LOOK_SECONDS
        records = self._cycles.read_new()[:BATCH_RECORDS]
        if records:
            self._client.hook_records(HookBatch(records=tuple(map(self._at_server, records))))
            self._cycles.sent(records)

    def _forward_logs(self) -> None:
        """Steps that trainers without the hook wrote into their logs. An error leaves them for the next look."""
        records = self._logs.read_new()[:BATCH_RECORDS] if self._logs else []
        if not records or self._logs is None:
            return
        try:
            self._client.hook_records(HookBatch(records=tuple(map(self._at_server, records))))
        except (Refused, Conflicted) as error:
            log.error("%d records of logs were refused and are dropped: %s", len(records), error)
        self._logs.sent(records)

    def forward(self) -> float:
        """Forward what is new; gives the seconds until the next look."""
        try:
            records = self._reader.read_new(BATCH_RECORDS)
            if records:
                self._client.hook_records(HookBatch(records=tuple(map(self._at_server, records))))
            self._reader.commit()
            self._forward_cycles()
            self._forward_logs()
        except (Refused, Conflicted) as error:
            log.error("%d hook records were refused and are dropped: %s", len(records), error)
            self._commit()
        except (ServerError, OSError) as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("hook records wait on disk: %s", error)
            return wait_seconds(min(self._failures, 4), getattr(error, "after_seconds", 0.0))
        self._failures = 0
        return 0.0 if len(records) >= BATCH_RECORDS else LOOK_SECONDS

    def _commit(self) -> None:
        try:
            self._reader.commit()
        except OSError as error:
            log.warning("the hook offsets cannot be written: %s", error)

    def _at_server(self, record: HookRecord) -> HookRecord:
        offset = self._clock.offset_seconds() or 0.0
        return msgspec.structs.replace(record, at_unix_seconds=record.at_unix_seconds + offset)


def drain(forwarder: HookForwarder, seconds: float) -> None:
    """At shutdown: a last look, for at most this long."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at and forwarder.forward() == 0.0:
        pass
