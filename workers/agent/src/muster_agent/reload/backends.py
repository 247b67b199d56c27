"""Which path the bytes shall take, and which they took. Pure: decided from facts that probes gathered."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_agent.probes.cuda import parse_device
from muster_agent.probes.gds import GdsProbe, classify_counts
from muster_agent.protocol.results import Backend, CacheState

REQUESTABLE = ("auto", "host", "host_direct", "host_buffered", "gds", "host_bounce")
_INTO_DEVICE = ("auto", "host", "gds", "host_bounce")
"""With a device named, these bring the bytes into its memory; the others end in host memory by their name."""

_COLD_AT_MOST, _WARM_AT_LEAST = 0.01, 0.99
_CACHE_PAYS_AT_LEAST = 0.5
"""From memory at five to ten times the disk's rate, a file that is half cached reads faster through the cache."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that the bytes were asked to go to; `missing` says why it cannot be used, and is empty where it can."""

    index: int
    missing: str = ""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """`gds`: read through cuFile; `bounce`: read into pinned memory and copy to the device; `direct`: ask for reads
    around the page cache; `from_cache`: most bytes are in memory already, so the CPU is the limit and more readers than
    CPUs only cost. `reason` is one sentence; `unreached`, part of it, why a device that was asked for gets nothing."""

    gds: bool
    direct: bool
    reason: str
    from_cache: bool = False
    bounce: bool = False
    unreached: str = ""


def cache_state(cached_ratio: float | None) -> CacheState:
    """The word for a share of cached bytes: cold up to 1 %, warm from 99 %, unknown where it could not be measured."""
    if cached_ratio is None:
        return CacheState.UNKNOWN
    if cached_ratio <= _COLD_AT_MOST:
        return CacheState.COLD
    return CacheState.WARM if cached_ratio >= _WARM_AT_LEAST else CacheState.MIXED


def device_index_for(requested: str, device: str) -> int | None:
    """The GPU that a request means: the one that is named, the first for a backend that cannot do without one, else
    None. Raises ValueError for a word that names no device, or a device with a backend that ends in host memory."""
    index = parse_device(device)
    if index is not None and requested not in _INTO_DEVICE:
        raise ValueError(f"{requested} keeps the bytes in host memory: leave out the device {device}")
    if device == "cpu" and requested in ("gds", "host_bounce"):
        raise ValueError(f"{requested} needs a GPU, and the device that was asked for is cpu")
    return 0 if index is None and requested in ("gds", "host_bounce") else index


def choose(requested: str, cached_ratio: float | None, gds: GdsProbe | None, device: Device | None = None) -> Choice:
    """The path to try. `gds` is None where it was not probed, `device` where no GPU was asked for. Raises ValueError
    for a word not in `REQUESTABLE`."""
    if requested not in REQUESTABLE:
        raise ValueError(f"unknown backend {requested!r}: choose one of {', '.join(REQUESTABLE)}")
    if requested in ("auto", "gds") and gds is not None and gds.usable:
        return Choice(gds=True, direct=True, reason=gds.reason)
    host = _choose_host(requested, cached_ratio)
    notes = [f"gds was asked for, but {gds.reason if gds else 'it was not probed'}"] if requested == "gds" else []
    if device is None or requested not in _INTO_DEVICE:
        return msgspec.structs.replace(host, reason="; ".join((*notes, host.reason)))
    if device.missing:
        missing = f"cuda:{device.index} was asked for, but {device.missing}"
        notes = [*(notes or [missing]), "so the bytes end in host memory"]
        return msgspec.structs.replace(host, reason="; ".join((*notes, host.reason)), unreached=missing)
    if requested == "auto" and gds is not None:
        notes.append(f"not straight to the GPU, since {gds.reason}")
    notes.append(f"blocks go to cuda:{device.index} through pinned host memory")
    return msgspec.structs.replace(host, bounce=True, reason="; ".join((*notes, host.reason)))


def _choose_host(requested: str, cached_ratio: float | None) -> Choice:
    """How the bytes come into host memory, wherever they go from there."""
    from_cache = cached_ratio is not None and cached_ratio >= _CACHE_PAYS_AT_LEAST
    if requested == "host_buffered":
        return Choice(gds=False, direct=False, reason="asked for", from_cache=from_cache)
    if requested == "host_direct":
        return Choice(gds=False, direct=True, reason="asked for")
    if from_cache:
        reason = f"{cached_ratio:.0%} of the bytes are in the page cache, so reads go through it"
        return Choice(gds=False, direct=False, reason=reason, from_cache=True)
    return Choice(gds=False, direct=True, reason="reads around the page cache are the fastest cold path")


def effective_host(
    direct_bytes: int, buffered_bytes: int, wanted_direct: bool, dropped_bytes: int = 0
) -> tuple[Backend, str]:
    """(the path the bytes took, a reason where it is not the wanted one) of a read through host memory. Ends of files
    that are not a multiple of 4 KiB come in the same direct read and count with it. `dropped_bytes` of the buffered
    ones left nothing in the page cache."""
    left = ", and left nothing there (RWF_DONTCACHE)" if dropped_bytes and dropped_bytes == buffered_bytes else ""
    if buffered_bytes and direct_bytes:
        return Backend.MIXED, f"{buffered_bytes} bytes were refused by O_DIRECT and went through the page cache{left}"
    if buffered_bytes:
        reason = f"the file system refuses O_DIRECT, so reads went through the page cache{left}"
        return Backend.HOST_BUFFERED, reason if wanted_direct else ""
    return (Backend.HOST_DIRECT if wanted_direct else Backend.HOST_BUFFERED), ""


def effective_gds(counts: dict[str, int] | None) -> tuple[Backend, str]:
    """(the path the bytes took, why) of a read through cuFile, from its counters over this very reload."""
    path, reason = classify_counts(counts)
    return Backend(path), reason


def is_as_requested(requested: str, effective: str) -> bool:
    """Whether a named backend really happened; `auto` and `host` leave the choice to us."""
    return requested in ("auto", "host") or requested == effective


def describe(choice: Choice, note: str) -> str:
    """The report's reason: why this path was tried, and what became of it."""
    return f"{choice.reason}; {note}" if note else choice.reason


def host_evidence(direct_bytes: int, buffered_bytes: int, **more: Any) -> dict[str, Any]:
    """The evidence behind a host backend."""
    return {"direct_bytes": direct_bytes, "buffered_bytes": buffered_bytes, **more}
