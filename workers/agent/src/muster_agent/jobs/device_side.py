"""What of a reload happens on a GPU: which one was asked for, places for what it shall keep, the way there through
pinned host memory, and when everything has arrived."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from muster_agent.formats.base import TensorRange
from muster_agent.jobs.checkpoint_place import StatedShard
from muster_agent.jobs.chunks import block_bytes_for
from muster_agent.jobs.transports import DeviceShards, GdsTransport, PathTaken, Transport
from muster_agent.probes.cuda import read_cuda_devices
from muster_agent.probes.gds import GdsProbe
from muster_agent.protocol.results import Backend
from muster_agent.protocol.wire import ReloadParams
from muster_agent.reload import backends
from muster_agent.reload.backends import Choice, Device
from muster_agent.reload.bounce import BounceSession, CopyTotals
from muster_agent.reload.gds import GdsSession, GdsUnavailable
from muster_agent.reload.gpu.device import DeviceUnavailable
from muster_agent.reload.gpu.memory import DeviceTensor
from muster_agent.reload.pace import READERS
from muster_agent.reload.plan import Extent
from muster_agent.reload.reader import InPlace
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.base import ShardSource


def look_for_device(params: ReloadParams) -> Device | None:
    """The GPU that was asked for, and whether it is there; None where none was. Raises ValueError for a device that
    makes no sense with the backend."""
    index = backends.device_index_for(params.backend, params.device)
    if index is None:
        return None
    count, reason = read_cuda_devices()
    if index < count:
        return Device(index=index)
    return Device(index=index, missing=reason or f"this node has {count} CUDA devices, counted from 0")


_IN_HOST = ", so the bytes ended in host memory"


class Plan(NamedTuple):
    """What a transport is opened for. `chunk_bytes` are hashed at a time where there is a manifest (`verifies`);
    `keep`: by path, the part of each shard that shall stay in memory."""

    chunk_bytes: int
    verifies: bool
    keep: Mapping[str, Extent] | None = None

    @property
    def hashed_bytes(self) -> int | None:
        return self.chunk_bytes if self.verifies else None


def open_transport(
    choice: Choice, gds: GdsProbe | None, device: Device | None, plan: Plan, open_host: Callable[[Choice], Transport]
) -> tuple[Transport, DeviceShards | None]:
    """The transport of a choice, and what the device keeps. `open_host` gives the one into host memory, where the bytes
    end or from where they go on. Where cuFile or the GPU does not open after all, the next best way is taken and its
    reason says so. Raises NoDeviceRoom."""
    if not choice.gds and not choice.bounce:
        return open_host(choice), None
    index = device.index if device is not None else 0
    try:
        with contextlib.ExitStack() as undo:
            kept = DeviceShards(index, plan.keep) if plan.keep is not None else None
            if kept is not None:
                undo.callback(kept.arena.close)
            transport = _open_on_device(choice, index, plan, kept, open_host)
            undo.pop_all()
            return transport, kept
    except GdsUnavailable as error:
        note = f"{choice.reason}; but cuFile did not open ({error})"
        onward = f"; blocks go to cuda:{index} through pinned host memory" if device is not None else _IN_HOST
        changed = msgspec.structs.replace(choice, gds=False, bounce=device is not None, reason=note + onward)
    except DeviceUnavailable as error:
        unreached = f"the GPU could not be used ({error}){_IN_HOST}"
        reason = f"{choice.reason}; but {unreached}"
        changed = msgspec.structs.replace(choice, gds=False, bounce=False, reason=reason, unreached=unreached)
    return open_transport(changed, gds, device, plan, open_host)


def _open_on_device(
    choice: Choice, index: int, plan: Plan, kept: DeviceShards | None, open_host: Callable[[Choice], Transport]
) -> Transport:
    arena, block_bytes = kept.arena if kept is not None else None, block_bytes_for(plan.chunk_bytes)
    if choice.gds:
        session = GdsSession(index, block_bytes, readers=READERS, hash_chunks=plan.verifies, arena=arena)
        return GdsTransport(session, plan.hashed_bytes, kept)
    inner = open_host(choice)
    try:
        return BounceTransport(inner, BounceSession(index, inner.readers, block_bytes, arena), kept, plan.hashed_bytes)
    except BaseException:
        inner.close()
        raise


class BounceTransport:
    """Another transport's bytes, brought into pinned memory, hashed there by the CPU where `chunk_bytes` says how, and
    copied on by the device meanwhile."""

    in_host_memory = False
    piece_bytes: int | None = None

    def __init__(
        self, inner: Transport, session: BounceSession, kept: DeviceShards | None, chunk_bytes: int | None
    ) -> None:
        self._inner, self._session, self._kept = inner, session, kept
        self.readers = inner.readers
        self.in_place: InPlace | None = InPlace(chunk_bytes)
        self._verifies = chunk_bytes is not None

    def open(self, shard: StatedShard) -> ShardSource:
        """See `Transport`."""
        number = self._kept.numbers[shard.path] if self._kept is not None else 0
        return self._session.wrap(self._inner.open(shard), number)

    def path_taken(self, totals: ReadTotals) -> PathTaken:
        """See `Transport`."""
        taken, session = self._inner.path_taken(totals), self._session
        evidence = {**taken.evidence, "into_host": taken.effective, "device": session.device_name}
        evidence["pinned"] = not session.refused_pinning
        if session.refused_pinning:
            evidence["not_pinned_because"] = session.refused_pinning
        if self._verifies:
            evidence["verify_path"] = "host"
        return PathTaken(Backend.HOST_BOUNCE.value, taken.reason, evidence)

    def arrive(self) -> CopyTotals:
        """Wait until every byte that was read is on the device. Raises DeviceUnavailable."""
        return self._session.finish()

    def close(self) -> None:
        """See `Transport`. What the device keeps stays, until whoever keeps it closes it."""
        self._inner.close()
        self._session.close()


def copy_evidence(copied: CopyTotals | None) -> dict[str, Any]:
    """Bytes that arrived, their rate by the device's own clock, and how long readers waited for a buffer that was still
    being copied. Nothing where nothing was copied."""
    if copied is None:
        return {}
    rate = copied.copied_bytes / copied.copy_seconds if copied.copy_seconds > 0 else None
    return {
        "copied_bytes": copied.copied_bytes,
        "copy_bytes_per_second": rate,
        "copy_wait_seconds": copied.wait_seconds,
    }


class DeviceResident:
    """A checkpoint that a GPU holds: its tensors by name, until `close`."""

    def __init__(self, kept: DeviceShards, whole: Mapping[str, int], ranges: tuple[TensorRange, ...]) -> None:
        self._arena = kept.arena
        self.tensors: dict[str, list[DeviceTensor]] = kept.arena.tensors(whole, ranges)
        self.held_bytes = kept.arena.sizes(whole.values())

    def evidence(self) -> dict[str, Any]:
        """As for what stays in host memory."""
        return {"device_tensors": len(self.tensors), "device_bytes": self.held_bytes}

    def close(self) -> None:
        """Give the device's memory back."""
        self.tensors = {}
        self._arena.close()
