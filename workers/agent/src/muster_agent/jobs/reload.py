"""Reloading: read shards as a restart would, verify them on the way, and say honestly how long what took.

`prepare()` looks, loads the manifest and evicts; `PreparedReload.run()` starts the clock. A drill calls the first
before its barrier and the second after it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from muster_agent.formats.base import Finding
from muster_agent.formats.object_store import ObjectStore
from muster_agent.formats.places import is_bucket
from muster_agent.jobs.checkpoint_place import CheckpointPlace, StatedShard, place_at
from muster_agent.jobs.chunks import (
    ChunkDigester,
    Discard,
    block_bytes_for,
    extents_of,
    name_damaged_tensors,
)
from muster_agent.jobs.control import Cancelled, JobControl
from muster_agent.jobs.device_side import (
    BounceTransport,
    DeviceResident,
    Plan,
    copy_evidence,
    look_for_device,
    open_transport,
)
from muster_agent.jobs.given_place import GivenPlace
from muster_agent.jobs.host_ranks import share_among_ranks, was_stopped
from muster_agent.jobs.object_transport import ObjectTransport, node_urls
from muster_agent.jobs.reload_facts import manifest_for, probe_gds, storage_facts, stripe_facts
from muster_agent.jobs.reload_phases import CpuMeter, Moments, busy_of, phases_of
from muster_agent.jobs.reload_verdict import ReadPass, judge, ranks_evidence, unread_evidence
from muster_agent.jobs.selection import Selection, select
from muster_agent.jobs.transports import DeviceShards, HostTransport, PathTaken, Transport
from muster_agent.jobs.verify import fingerprint_of
from muster_agent.jobs.watched import watched
from muster_agent.manifest.model import CHUNK_BYTES, Manifest
from muster_agent.probes.filesystem import read_file_system
from muster_agent.probes.gds import GdsProbe
from muster_agent.probes.page_cache import cached_ratio, evict, why_unknown
from muster_agent.probes.process import PeakMemory
from muster_agent.protocol.phases import Phase
from muster_agent.protocol.results import CacheState, ReloadReport
from muster_agent.protocol.wire import ReloadBody, ReloadParams
from muster_agent.reload import backends
from muster_agent.reload.arena import Arena
from muster_agent.reload.backends import Device
from muster_agent.reload.bounce import CopyTotals
from muster_agent.reload.buffers import BufferRing
from muster_agent.reload.plan import Extent, bytes_by_shard, held_by_shard, plan_reads, share_of
from muster_agent.reload.reader import ReadRun
from muster_agent.reload.resident import Resident
from muster_agent.reload.shared import SharedArena
from muster_agent.reload.totals import ReadTotals
from muster_agent.storage.posix import ALIGN_BYTES
from muster_agent.storage.s3_urls import ObjectUrls
from muster_agent.storage.throttle import Throttle


class ReloadStopped(Cancelled):
    """The reload was told to stop amid the reads. `report` says what was read until then, and whether that is sound;
    its evidence `stopped` what was not read."""

    def __init__(self, report: ReloadReport) -> None:
        super().__init__("cancelled")
        self.report = report


class NotCold(Exception):
    """A cold read was required, and nothing was read; the message says what is cached, or why that is not known."""


class SeenBefore(NamedTuple):
    """What was looked at before the clock starts: where the shards lie, and the damage that their format shows."""

    locations: Sequence[str]
    damage: tuple[Finding, ...]


class PreparedReload:
    """A reload that is ready to start. Made by `prepare()`."""

    def __init__(
        self,
        params: ReloadParams,
        place: CheckpointPlace,
        manifest: Manifest | None,
        notes: tuple[Finding, ...],
        gds: GdsProbe | None,
        before: SeenBefore,
        device: Device | None = None,
        urls: ObjectUrls | None = None,
    ) -> None:
        self.params = params
        self.place, self.path = place, place.path
        self.manifest = manifest
        self._notes = notes
        self._gds = gds
        self._before, self._locations = before, before.locations
        self._stripes = stripe_facts(self.path, self._locations)
        self._device = device
        self._device_kept: DeviceShards | None = None
        self._urls = urls
        self._chunk_bytes = manifest.chunk_bytes if manifest else CHUNK_BYTES
        self._kept: Arena | None = None
        self.resident: Resident | None = None
        """The tensors in memory after `run` of a resident reload, until `close`."""
        self.on_device: DeviceResident | None = None
        """The tensors in a GPU's memory after `run` of a resident reload that ended there, until `close`."""

    def run(self, control: JobControl | None = None) -> ReloadBody:
        """Read and verify now. `started_unix_seconds` is this node's own clock. Raises Cancelled (ReloadStopped once
        the reads have begun), ShardsNotFound, CheckpointNotFound, NotCold, NoRoom, DeviceUnavailable; damage is in the
        report."""
        try:
            return self._run(control or JobControl())
        except BaseException:
            self.close()
            raise

    def _run(self, control: JobControl) -> ReloadBody:
        control.check()
        # What comes from a bucket goes through no cache of this node.
        measured = cached_ratio(self._locations) if self._urls is None else 0.0
        self._require_cold(measured)
        unknown = {} if measured is not None else {"cache_unknown_because": why_unknown(self._locations)}
        choice = backends.choose(self.params.backend, measured, self._gds, self._device)
        memory = PeakMemory()
        with contextlib.ExitStack() as cleanup:
            started_unix_seconds, began_at, cpu = time.time(), time.monotonic(), CpuMeter()
            read = self._read(choice, control, cleanup, cpu)
            verified, findings = judge(read, self.place, self.manifest, self.params)
            verified_at = time.monotonic()
            cpu.lap(Phase.READ if self.manifest is None else Phase.VERIFY)
            self._materialize(read)
            materialized_at = time.monotonic() if self.resident or self.on_device else None
            if materialized_at is not None:
                cpu.lap(Phase.MATERIALIZE)
            copied, arrived_at = self._arrive(read, cpu)
            peak_rss_bytes = memory.extra_bytes()
        if self.manifest is not None and not read.stopped:
            findings = name_damaged_tensors(self.place, self.manifest, findings)
        shared = share_among_ranks(self._kept, self.params.ranks_on_host, control) if not read.stopped else {}
        moments = Moments(began_at, read.resolved_at, read.allocated_at, verified_at, materialized_at, arrived_at)
        seconds, verifies = moments.ended_at - began_at, self.manifest is not None
        report = ReloadReport(
            bytes=read.totals.read_bytes,
            seconds=seconds,
            bytes_per_second=read.totals.read_bytes / seconds,
            requested=self.params.backend,
            effective=read.taken.effective,
            evidence={
                **read.taken.evidence,
                **unknown,
                **self._kept_evidence(),
                **copy_evidence(copied),
                **unread_evidence(read),
                **ranks_evidence(read),
                **shared,
            },
            reason=read.taken.reason,
            cache_state=backends.cache_state(measured).value,
            cached_ratio_before=measured,
            phases=phases_of(moments, read.totals, verifies=verifies),
            busy=busy_of(read.totals, verifies=verifies, copy_seconds=copied.copy_seconds if copied else None),
            cpu_seconds=sum(cpu.seconds.values()),
            cpu_by_phase=cpu.seconds,
            peak_rss_bytes=peak_rss_bytes,
            verified=verified,
            findings=(*self._notes, *findings),
        )
        if read.stopped or was_stopped(shared):
            raise ReloadStopped(report)
        fingerprint = fingerprint_of(read.shards)
        return ReloadBody(report=report, started_unix_seconds=started_unix_seconds, fingerprint=fingerprint)

    def _require_cold(self, measured: float | None) -> None:
        if not self.params.cold_required or backends.cache_state(measured) is CacheState.COLD:
            return
        why = why_unknown(self._locations) if measured is None else f"{measured:.1%} of the bytes are in memory already"
        raise NotCold(f"this would not be a cold read: {why}")

    def _read(
        self, choice: backends.Choice, control: JobControl, cleanup: contextlib.ExitStack, cpu: CpuMeter
    ) -> ReadPass:
        selection = watched(self.path, self._select, control.check)
        selection = selection._replace(damage=tuple(dict.fromkeys((*self._before.damage, *selection.damage))))
        shards = self.place.stat_all(selection.shards)
        extents = extents_of(shards, self.manifest)
        if self.params.share is not None:
            extents = share_of(extents, *self.params.share, self._chunk_bytes)
        block_bytes = block_bytes_for(self._chunk_bytes)
        plan = plan_reads(extents, block_bytes)
        resolved_at = time.monotonic()
        cpu.lap(Phase.RESOLVE)
        transport = self._transport(choice, shards, extents)
        cleanup.callback(transport.close)
        readers = max(1, min(transport.readers, len(plan)))
        arena = self._arena(shards, extents) if transport.in_host_memory else None
        at_a_time = transport.piece_bytes or block_bytes
        ring = BufferRing(readers, at_a_time if arena is None and transport.in_place is None else ALIGN_BYTES)
        cleanup.callback(ring.close)
        digester = ChunkDigester(len(shards), self._chunk_bytes) if self.manifest else None
        allocated_at = time.monotonic()
        cpu.lap(Phase.ALLOCATE)
        run = ReadRun(
            plan=plan,
            open_shard=lambda number: transport.open(shards[number]),
            consumer=digester or Discard(),
            ring=ring,
            control=control,
            throttle=Throttle(self.params.max_bytes_per_second),
            readers=readers,
            in_place=transport.in_place,
            piece_bytes=transport.piece_bytes,
            arena=arena,
        )
        stopped = False
        try:
            run.run()
        except Cancelled:
            stopped = True
        totals = run.totals
        cpu.lap_reading(totals, verifies=digester is not None)
        facts = {"readers": readers, "huge_pages": ring.huge_pages if arena is None else arena.huge_pages}
        taken = self._path_taken(transport, totals, facts)
        planned = bytes_by_shard(extents)
        return ReadPass(
            shards, selection, digester, totals, taken, resolved_at, allocated_at, planned, stopped, transport
        )

    def _select(self) -> Selection:
        return select(self.place, self.params.shards, self.params.ranks, with_tensors=self.params.resident)

    def _transport(
        self, choice: backends.Choice, shards: Sequence[StatedShard], extents: Sequence[Extent]
    ) -> Transport:
        kept = None
        if self.params.resident:
            held = held_by_shard(extents, len(shards))
            kept = {stated.path: part for stated, part in zip(shards, held, strict=True)}
        plan = Plan(self._chunk_bytes, self.manifest is not None, kept)
        transport, self._device_kept = open_transport(choice, self._gds, self._device, plan, self._into_host)
        return transport

    def _into_host(self, choice: backends.Choice) -> Transport:
        if self._urls is not None:
            return ObjectTransport(self._urls, self.params.backend, choice)
        return HostTransport(choice, self._gds, is_remote=read_file_system(self.path).is_remote)

    def _arrive(self, read: ReadPass, cpu: CpuMeter) -> tuple[CopyTotals | None, float | None]:
        """What was copied to a device, and when the last byte was there."""
        if not isinstance(read.transport, BounceTransport):
            return None, None
        copied = read.transport.arrive()
        cpu.lap(Phase.TO_DEVICE)
        return copied, time.monotonic()

    def _path_taken(self, transport: Transport, totals: ReadTotals, facts: dict[str, Any]) -> PathTaken:
        taken = transport.path_taken(totals)
        return taken._replace(evidence={**storage_facts(self.path), **self._stripes, **taken.evidence, **facts})

    def _arena(self, shards: Sequence[StatedShard], extents: Sequence[Extent]) -> Arena | None:
        """Room for every byte that will be read. Raises NoRoom."""
        if not self.params.resident:
            return None
        kind = SharedArena if self.params.ranks_on_host else Arena
        self._kept = kind(held_by_shard(extents, len(shards)))
        return self._kept

    def _materialize(self, read: ReadPass) -> None:
        if read.stopped or (self._kept is None and self._device_kept is None):
            return
        numbers = {one.path: number for number, one in enumerate(read.shards) if one.size_bytes is not None}
        whole = {path: number for path, number in numbers.items() if number not in read.totals.errors}
        if self._kept is not None:
            self.resident = Resident(self._kept, whole, read.selection.tensors)
        elif self._device_kept is not None:
            self.on_device = DeviceResident(self._device_kept, whole, read.selection.tensors)

    def _kept_evidence(self) -> dict[str, Any]:
        if self.on_device is not None:
            return self.on_device.evidence()
        if self.resident is None:
            return {}
        held = {"resident_tensors": len(self.resident.tensors), "resident_bytes": sum(self.resident.sizes())}
        return {**held, **({"cut_tensors": self.resident.cut} if self.resident.cut else {})}

    def close(self) -> None:
        """Give the memory of a resident reload back."""
        if isinstance(self.place, GivenPlace):
            self.place.close()
        if self.resident is not None:
            self.resident.close()
        elif self._kept is not None:
            self._kept.close()
        if self._device_kept is not None:
            self._device_kept.arena.close()


def prepare(params: ReloadParams, *, stores: Sequence[ObjectStore] = ()) -> PreparedReload:
    """Look at what shall be read, load its manifest (the given one, else the one beside the data) and evict the page
    cache where asked; nothing is timed. A manifest that cannot be relied on is a finding, and `verified` stays None.
    `stores` are the clients of a path in a bucket, one per endpoint: the first lists, all are read from. Raises
    CheckpointNotFound, ShardsNotFound, RootUnreadable, and ValueError for an unknown backend."""
    place = (
        GivenPlace(params.path, params.objects) if params.objects else place_at(params.path, next(iter(stores), None))
    )
    place.require()
    backends.choose(params.backend, None, None)
    device = look_for_device(params)
    manifest, notes = manifest_for(place, params.manifest)
    # Where there is nothing to compare with, what the format itself shows is all that can tell of damage.
    deep = manifest is None and not params.shards
    wanted = watched(place.path, lambda: select(place, params.shards, params.ranks, with_tensors=deep))
    locations = [stated.location for stated in place.stat_all(wanted.shards) if stated.size_bytes is not None]
    before = SeenBefore(locations, wanted.damage)
    if is_bucket(place.path):
        urls = place.urls if isinstance(place, GivenPlace) else node_urls(place.path, stores)
        return PreparedReload(params, place, manifest, notes, None, before, device, urls)
    gds = probe_gds(params, locations, device)
    if params.evict:
        evict(locations)
    return PreparedReload(params, place, manifest, notes, gds, before, device)


def reload(
    path: str,
    *,
    shards: Sequence[str] | None = None,
    manifest: Manifest | None = None,
    backend: str = "auto",
    device: str = "auto",
    evict: bool = True,
    max_bytes_per_second: int | None = None,
    control: JobControl | None = None,
) -> ReloadReport:
    """`prepare()` and `run()` in one. Without `shards` the whole checkpoint is read, block over block."""
    params = ReloadParams(
        path=path,
        shards=tuple(shards or ()),
        manifest=manifest,
        backend=backend,
        device=device,
        evict=evict,
        max_bytes_per_second=max_bytes_per_second,
    )
    return prepare(params).run(control).report
