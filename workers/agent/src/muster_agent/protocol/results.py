"""Results that the CLI prints as JSON and the agent sends to the control plane, field for field the same."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from muster_agent.formats.base import Finding


class Backend(StrEnum):
    """The path the bytes really took."""

    GDS = "gds"
    MIXED = "mixed"
    UNKNOWN = "unknown"
    HOST_BOUNCE = "host_bounce"
    HOST_DIRECT = "host_direct"
    HOST_BUFFERED = "host_buffered"
    S3 = "s3"


class CacheState(StrEnum):
    COLD = "cold"
    WARM = "warm"
    MIXED = "mixed"
    UNKNOWN = "unknown"


class ReloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one reload did. `phases` are critical-path seconds that add up to `seconds`; `busy` are seconds of work over
    all threads; a phase that was not measured is absent. `cached_ratio_before` (0..1) is measured after any eviction,
    immediately before the first read; None where the page cache cannot be asked. `cpu_by_phase` adds up to
    `cpu_seconds`; its `verify` is all hashing, also that which `phases` hides behind the reads."""

    bytes: int
    seconds: float
    bytes_per_second: float
    requested: str
    effective: str
    evidence: dict[str, Any]
    reason: str
    cache_state: str
    cached_ratio_before: float | None
    phases: dict[str, float]
    busy: dict[str, float]
    cpu_seconds: float
    cpu_by_phase: dict[str, float] = {}
    peak_rss_bytes: int
    verified: bool | None
    findings: tuple[Finding, ...] = ()


class LoaderReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the team's own loader used, start of its process included. `phases` as it told them, else empty; `bytes` as
    it told, else those of the files; `error` where it did not end in order."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    bytes: int
    phases: dict[str, float] = {}
    cached_ratio_before: float | None = None
    error: str = ""


class CeilingTry(msgspec.Struct, frozen=True, kw_only=True):
    """One way to read. `cached_ratio_before` (0..1) None where it is not known; `reason` says why there is no rate."""

    reader: str
    block_bytes: int
    depth: int
    read_bytes: int = 0
    seconds: float = 0.0
    bytes_per_second: float | None = None
    cached_ratio_before: float | None = None
    path_taken: str = ""
    reason: str = ""


class CeilingReport(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes_per_second` is the best try's, None where no try can be relied on; `notes` say what limits the figure."""

    path: str
    measured_at: str
    bytes_per_second: float | None
    method: str
    tries: tuple[CeilingTry, ...]
    notes: tuple[str, ...] = ()
